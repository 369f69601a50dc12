#!/usr/bin/env python3
"""Mutates src/model and looks for a change that no test notices.

usage: mutate_model.py [--seed N] [--count N] [--jobs N] [--file GLOB]... [--list]

A mutant is one generic change of one line (the operators are in OPERATORS of mutants.py), drawn by the seed
from all that are possible. Only what sees the change is compiled again, in build/mutants, and run
against the unit, golden, oracle-digest (all releases) and property tests of src/model, then those of
src/replay; first of all the cases that noticed other mutants of the same file. A mutant whose object
code is the original's at -O2 is proved equivalent by the compiler; those that a person has proved
are listed with the reason in tools/mutate_model.equivalent. A mutant that takes several times
the CPU time of the original, or all memory, counts as noticed.
A comment `// tuning: REASON` says that its line (alone on one: the statement or condition below)
decides how fast an answer comes, not which: nothing is changed there.

Prints what it prepares (compiling the original takes minutes; ccache keeps it), every survivor with
its line before and after, and every ten mutants how far it is. The last line counts.
Exit code: 0 no survivors, 1 survivors, 2 wrong usage or the original does not build or pass.
"""

import argparse
import concurrent.futures
import fcntl
import fnmatch
import html
import json
import os
import pathlib
import random
import re
import resource
import shutil
import subprocess
import sys
import threading
import time
from typing import Dict, List, NamedTuple, Optional, Tuple

from mutants import Mutant, mutants_of

CHECKOUT = pathlib.Path(__file__).resolve().parent.parent
ROOT = CHECKOUT / "build" / "mutants" / "tree"  # a copy: the checkout may change meanwhile
MODEL = "src/model"
# Programs of tests/unit, and the folders of src that each links.
PROGRAMS = {"model": ("base", "model"), "replay": ("base", "event", "trace", "model", "replay")}
STAGES = (("model", "~[property]"), ("model", "[property]"), ("replay", ""))  # quick ones first
STRONGEST = "compared_lists_test.cpp"
EQUIVALENT = CHECKOUT / "tools" / "mutate_model.equivalent"
MEMORY_LIMIT = 2 << 30
CHECKED = ("-D_GLIBCXX_ASSERTIONS",)  # reads beside a container end the program
WALL_LIMIT = 600.0  # for what waits instead of working


# --- building -----------------------------------------------------------------------------------

def compiler() -> str:
    return subprocess.run([str(CHECKOUT / "tools" / "compiler.sh")], stdout=subprocess.PIPE, check=True, text=True).stdout.strip()


class Workshop:
    """Objects of the original, and what a mutant needs beside them."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory = directory
        self.compiler = compiler()
        self.launcher = ["ccache"] if shutil.which("ccache") else []
        self.linker = ["-fuse-ld=lld"] if shutil.which("ld.lld") else []
        self.objects: Dict[str, pathlib.Path] = {}
        self.includes: Dict[str, set] = {}
        self.lock = threading.Lock()
        self.reference: Dict[str, str] = {}
        self.seconds: Dict[Tuple[str, str], int] = {}  # CPU time that a stage may take
        self.killers = Killers(directory / "killers.json")
        self.catch_main = "catch_all" not in self._headers(ROOT / "tests/support/catch.h")
        self.programs = {name: self._sources(name) for name in PROGRAMS}
        self.sources = list(dict.fromkeys(s for sources in self.programs.values() for s in sources))

    def _sources(self, program: str) -> List[str]:
        result = sorted(p.relative_to(ROOT).as_posix() for p in (ROOT / "tests/unit" / program).glob("*_test.cpp"))
        if self.catch_main:
            result.append("tests/support/catch_main.cpp")
        for folder in PROGRAMS[program]:
            listed = re.findall(r"\b[\w.]+\.cpp\b", (ROOT / "src" / folder / "CMakeLists.txt").read_text())
            result += [f"src/{folder}/{name}" for name in dict.fromkeys(listed)]
        return result

    def command(self, source: pathlib.Path, output: pathlib.Path, overlay: Optional[pathlib.Path], optimise: str) -> List[str]:
        first = ["-I", str(overlay / "src"), "-I", str(overlay)] if overlay else []
        return [self.compiler, "-std=c++20", optimise, "-w", *CHECKED, *first, "-I", str(ROOT / "src"), "-I", str(ROOT),
                f'-DFRAGSCOPE_TEST_DATA="{ROOT}/tests/golden"', "-c", str(source), "-o", str(output)]

    def compile(self, source: str, output: pathlib.Path, overlay: Optional[pathlib.Path] = None, optimise: str = "") -> str:
        """Empty, or the first line of what is wrong. Tests run for milliseconds: they are not optimised."""
        here = overlay / source if overlay and (overlay / source).exists() else ROOT / source
        launcher = [] if overlay else self.launcher
        optimise = optimise or ("-O0" if source.startswith("tests/") else "-O1")
        done = subprocess.run([*launcher, *self.command(here, output, overlay, optimise)], stderr=subprocess.PIPE, text=True)
        return "" if done.returncode == 0 else (done.stderr.splitlines() or ["failed"])[0]

    def _headers(self, source: pathlib.Path) -> str:
        done = subprocess.run([self.compiler, "-std=c++20", "-MM" if source.suffix == ".cpp" else "-M", "-I", str(ROOT / "src"),
                               "-I", str(ROOT), str(source)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        return done.stdout.replace("\\\n", " ")

    def headers_of(self, source: str) -> set:
        """Headers below ROOT that `source` includes, directly or not."""
        if source not in self.includes:
            paths = [pathlib.Path(os.path.normpath(word)) for word in self._headers(ROOT / source).split()[1:]]
            self.includes[source] = {p.relative_to(ROOT).as_posix() for p in paths if ROOT in p.parents}
        return self.includes[source]

    def link(self, name: str, replaced: Dict[str, pathlib.Path], output: pathlib.Path, without: Tuple[str, ...] = ()) -> str:
        objects = [str(replaced.get(s, self.objects[s])) for s in self.programs[name] if s not in without]
        catch = [] if self.catch_main else ["-lCatch2Main", "-lCatch2"]
        done = subprocess.run([self.compiler, *self.linker, *objects, *catch, "-lzstd", "-lpthread", "-o", str(output)],
                              stderr=subprocess.PIPE, text=True)
        return "" if done.returncode == 0 else "; ".join(done.stderr.splitlines()[:3])

    def prepare(self, jobs: int) -> Optional[str]:
        (self.directory / "original").mkdir(parents=True, exist_ok=True)
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            def build(source: str) -> str:
                output = self.directory / "original" / (source.replace("/", "_") + ".o")
                self.objects[source] = output
                return self.compile(source, output)
            for source, problem in zip(self.sources, pool.map(build, self.sources)):
                if problem:
                    return f"{source}: {problem}"
        for name in PROGRAMS:
            problem = self.link(name, {}, self.directory / "original" / f"test_{name}")
            if problem:
                return problem
        for name, cases in STAGES:
            before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
            ended, case = run_tests(self.directory / "original" / f"test_{name}", [cases], None)
            if ended:
                return f"test_{name} fails without any change: {ended}, {case}"
            took = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
            self.seconds[name, cases] = int(5 + 5 * took)
        return None


class Killers:
    """Which test cases noticed mutants of a file, in this run and earlier ones."""

    AT_ONCE = 8

    def __init__(self, place: pathlib.Path) -> None:
        self.place = place
        self.lock = threading.Lock()
        self.counts: Dict[str, Dict[str, int]] = json.loads(place.read_text()) if place.exists() else {}

    def of(self, path: str, program: str) -> List[str]:
        with self.lock:
            counts = {key.split(":", 1)[1]: n for key, n in self.counts.get(path, {}).items() if key.startswith(program + ":")}
        return sorted(counts, key=lambda case: -counts[case])[:self.AT_ONCE]

    def note(self, path: str, program: str, case: str) -> None:
        if not case:
            return
        with self.lock:
            counts = self.counts.setdefault(path, {})
            counts[f"{program}:{case}"] = counts.get(f"{program}:{case}", 0) + 1
            self.place.write_text(json.dumps(self.counts, indent=1, sort_keys=True))


def limit_resources(seconds: Optional[int]) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if seconds is not None:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))


def run_tests(program: pathlib.Path, cases: List[str], seconds: Optional[int]) -> Tuple[str, str]:
    """How the program ended (empty: all passed) and in which test case."""
    named = [",".join(case for case in cases)] if any(cases) else []
    try:
        done = subprocess.run([str(program), "--abort", "-r", "xml", *named], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              stdin=subprocess.DEVNULL, timeout=WALL_LIMIT, preexec_fn=lambda: limit_resources(seconds))
    except subprocess.TimeoutExpired:
        return "does not end", ""
    if done.returncode == 0:
        return "", ""
    started = re.findall(r'<TestCase name="([^"]*)"', done.stdout.decode(errors="replace"))
    return f"exit {done.returncode}", html.unescape(started[-1]) if started else ""


def quoted(case: str) -> str:
    """A test case's name as a test specification."""
    return '"' + re.sub(r'([\\,\[\]"])', r"\\\1", case) + '"'


# --- one mutant ---------------------------------------------------------------------------------

class Verdict(NamedTuple):
    mutant: Mutant
    outcome: str  # killed, survived, equivalent, not compiled
    detail: str


def same_code(shop: Workshop, sources: List[str], overlay: pathlib.Path, place: pathlib.Path) -> bool:
    """The optimised code of every source that sees the change is the original's."""
    for source in sources:
        name = source.replace("/", "_")
        original = shop.directory / "original" / (name + ".O2.o")
        mutated = place / (name + ".O2.o")
        with shop.lock:
            if source not in shop.reference:
                if shop.compile(source, original, None, "-O2"):
                    return False
                shop.reference[source] = dump(original)
        if shop.compile(source, mutated, overlay, "-O2") or dump(mutated) != shop.reference[source]:
            return False
    return True


def dump(path: pathlib.Path) -> str:
    text = subprocess.run(["objdump", "-d", "-r", "-s", "-j", ".text", "-j", ".rodata", "--no-show-raw-insn", str(path)],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    return "\n".join(line for line in text.splitlines() if "file format" not in line)


def judge(shop: Workshop, mutant: Mutant, place: pathlib.Path) -> Verdict:
    shutil.rmtree(place, ignore_errors=True)
    target = place / mutant.path
    target.parent.mkdir(parents=True)
    source = (ROOT / mutant.path).read_text()
    target.write_text(mutant.apply(source))
    replaced: Dict[str, pathlib.Path] = {}
    for name in PROGRAMS:  # a mutant that the first notices costs nothing of the second
        seen = seen_by(shop, mutant, name)
        later = unlikely_tests(shop, mutant, name, seen)
        for left_out in dict.fromkeys((later, ())):
            for item in seen:
                output = place / (item.replace("/", "_") + ".o")
                if item in replaced or item in left_out:
                    continue
                if shop.compile(item, output, place):
                    return Verdict(mutant, "not compiled", "")
                replaced[item] = output
            problem = shop.link(name, replaced, place / f"test_{name}", left_out)
            if problem:
                return Verdict(mutant, "not compiled", problem)
            ended = first_failure(shop, mutant, name, place / f"test_{name}", bool(left_out))
            if ended:
                return Verdict(mutant, "killed", f"test_{name}: {ended}")
    if same_code(shop, [source for source in replaced if source.startswith("src/")], place, place):
        return Verdict(mutant, "equivalent", "the compiler makes the same code")
    return Verdict(mutant, "survived", "")


def seen_by(shop: Workshop, mutant: Mutant, program: str) -> List[str]:
    """Sources of a program that hold the change or include it."""
    if mutant.path.endswith(".cpp"):
        return [source for source in shop.programs[program] if source == mutant.path]
    return [source for source in shop.programs[program] if mutant.path in shop.headers_of(source)]


def unlikely_tests(shop: Workshop, mutant: Mutant, program: str, seen: List[str]) -> Tuple[str, ...]:
    """Of a change that most tests have to be compiled for: those that wait until the likely ones, alone in a
    program, have not noticed it. The likely ones bear the header's name or have noticed changes of it."""
    tests = [source for source in seen if source.startswith("tests/")]
    if len(tests) <= 3:
        return ()
    killers = shop.killers.of(mutant.path, program)[:4]
    stem = pathlib.Path(mutant.path).stem

    def is_likely(source: str) -> bool:
        if pathlib.Path(source).name.startswith(stem):
            return True
        text = (ROOT / source).read_text()
        return any(f'"{case}"' in text for case in killers)

    likely = [source for source in tests if is_likely(source)] or [s for s in tests if s.endswith("/" + STRONGEST)]
    return tuple(source for source in tests if source not in likely) if likely else ()


def first_failure(shop: Workshop, mutant: Mutant, name: str, program: pathlib.Path, partly: bool = False) -> str:
    """How the first test that notices the mutant ended; `partly`: the program has only the likely ones."""
    mine = [cases for stage, cases in STAGES if stage == name]
    if partly:
        ended, case = run_tests(program, [""], sum(shop.seconds[name, cases] for cases in mine))
        if ended:
            shop.killers.note(mutant.path, name, case)
        return f"{ended}, {case}" if ended else ""
    likely = [quoted(case) for case in shop.killers.of(mutant.path, name)]
    stages = [(likely, sum(shop.seconds[name, cases] for cases in mine))] if likely else []
    stages += [([cases], shop.seconds[name, cases]) for cases in mine]
    for cases, seconds in stages:
        ended, case = run_tests(program, cases, seconds)
        if ended:
            shop.killers.note(mutant.path, name, case)
            return f"{ended}, {case}"
    return ""


# --- known equivalents ----------------------------------------------------------------------------

def squeeze(text: str) -> str:
    return " ".join(text.split())


def changed_lines(mutant: Mutant) -> Tuple[str, str]:
    """The changed lines before and after, white space squeezed."""
    source = (ROOT / mutant.path).read_text()
    begin = source.rfind("\n", 0, mutant.begin) + 1
    end = source.find("\n", mutant.end)
    end = len(source) if end < 0 else end
    return squeeze(source[begin:end]), squeeze(source[begin:mutant.begin] + mutant.text + source[mutant.end:end])


def pattern(text: str) -> "re.Pattern[str]":
    """`…` stands for any text."""
    return re.compile(".*".join(re.escape(part) for part in squeeze(text).split("…")) + r"\Z")


class Known(NamedTuple):
    file: str
    before: "re.Pattern[str]"
    after: "re.Pattern[str]"
    why: str


def known_reason(known: List[Known], mutant: Mutant) -> str:
    """Empty, or why the mutant is known to be equivalent."""
    before, after = changed_lines(mutant)
    name = pathlib.Path(mutant.path).name
    return next((k.why for k in known if k.file == name and k.before.match(before) and k.after.match(after)), "")


def known_equivalents() -> List[Known]:
    """The file's head explains its form."""
    known: List[Known] = []
    if not EQUIVALENT.exists():
        return known
    fields: Dict[str, str] = {}
    for line in EQUIVALENT.read_text().splitlines():
        match = re.match(r"(file|-|\+|why):? (.*)", line)
        if match is None:
            continue
        fields[match.group(1)] = match.group(2).strip()
        if match.group(1) == "why":
            known.append(Known(fields["file"], pattern(fields["-"]), pattern(fields["+"]), fields["why"]))
    return known


# --- command line -----------------------------------------------------------------------------------

def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="which mutants are drawn (default 1)")
    parser.add_argument("--count", type=int, default=100, help="how many; 0: all (default 100)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="mutants at a time (default: all cores)")
    parser.add_argument("--file", action="append", default=[], metavar="GLOB", help="only files that match, as block.*")
    parser.add_argument("--list", action="store_true", help="print the drawn mutants and stop")
    return parser.parse_args()


def take_workshop() -> bool:
    """False: another run has it. It is given back when the process ends."""
    ROOT.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(ROOT.parent / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def copy_tree() -> None:
    shutil.rmtree(ROOT, ignore_errors=True)
    for part in ("src", "tests/unit", "tests/support", "tests/golden"):
        shutil.copytree(CHECKOUT / part, ROOT / part)


def draw(options: argparse.Namespace) -> List[Mutant]:
    mutants = []
    for path in sorted((ROOT / MODEL).glob("*")):
        if path.suffix not in (".cpp", ".h"):
            continue
        if options.file and not any(fnmatch.fnmatch(path.name, pattern) for pattern in options.file):
            continue
        mutants += mutants_of(path.relative_to(ROOT).as_posix(), path.read_text())
    if options.count and options.count < len(mutants):
        mutants = random.Random(options.seed).sample(mutants, options.count)
    return mutants


def describe(mutant: Mutant) -> str:
    before, after = changed_lines(mutant)
    return f"{mutant.path}:{mutant.line}: {mutant.operator}\n  - {before}\n  + {after}"


def report(verdict: Verdict, number: int, total: int) -> None:
    if verdict.outcome == "survived":
        print(f"survived {describe(verdict.mutant)}", flush=True)
    if number % 10 == 0 and number < total:
        print(f"{number} of {total} tried", flush=True)
    if sys.stderr.isatty():
        print(f"\r{number}/{total}", end="", file=sys.stderr, flush=True)


def main() -> int:
    global ROOT
    options = arguments()
    if options.list:
        ROOT = CHECKOUT
        for mutant in draw(options):
            print(describe(mutant))
        return 0
    if not take_workshop():
        print("mutate-model: another run is under way in build/mutants; wait for its end", file=sys.stderr)
        return 2
    copy_tree()
    mutants = draw(options)
    if not mutants:
        print("mutate-model: no file matches", file=sys.stderr)
        return 2
    shop = Workshop(CHECKOUT / "build" / "mutants")
    print(f"seed {options.seed}: {len(mutants)} mutants, {options.jobs} at a time; first the original: {len(shop.sources)} "
          f"sources{' by ccache' if shop.launcher else ''}, every test once", flush=True)
    began = time.monotonic()
    problem = shop.prepare(options.jobs)
    if problem:
        print(f"mutate-model: {problem}", file=sys.stderr)
        return 2
    print(f"the original passes ({time.monotonic() - began:.0f} s)", flush=True)
    known = known_equivalents()
    places = [shop.directory / f"mutant-{os.getpid()}-{n}" for n in range(options.jobs)]
    counts = {"killed": 0, "survived": 0, "equivalent": 0, "not compiled": 0}

    def work(mutant: Mutant) -> Verdict:
        reason = known_reason(known, mutant)
        if reason:
            return Verdict(mutant, "equivalent", reason)
        with shop.lock:
            place = places.pop()
        try:
            return judge(shop, mutant, place)
        finally:
            shutil.rmtree(place, ignore_errors=True)
            with shop.lock:
                places.append(place)

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for number, verdict in enumerate(pool.map(work, mutants), 1):
            counts[verdict.outcome] += 1
            report(verdict, number, len(mutants))
    print(f"seed {options.seed}: {len(mutants)} mutants: {counts['killed']} killed, {counts['survived']} survived, "
          f"{counts['equivalent']} equivalent, {counts['not compiled']} not compiled")
    return 1 if counts["survived"] else 0


if __name__ == "__main__":
    sys.exit(main())
