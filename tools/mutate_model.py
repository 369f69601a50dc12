#!/usr/bin/env python3
"""Mutates src/model and looks for a change that no test notices.

usage: mutate_model.py [--seed N] [--count N] [--jobs N] [--file GLOB]... [--list]

A mutant is one generic change of one line (the operators are in OPERATORS below), drawn by the seed
from all that are possible. Each is compiled in build/mutants without optimisation and run against
the unit, golden, oracle-digest and property tests of src/model and src/replay. A mutant whose
object code is the original's at -O2 is proved equivalent by the compiler; those that a person has
proved are listed with the reason in tools/mutate_model.equivalent. A mutant that runs longer than
twenty times the original, or takes all memory, counts as noticed.

Prints every survivor with its line before and after. The last line counts.
Exit code: 0 no survivors, 1 survivors, 2 wrong usage or the original does not build or pass.
"""

import argparse
import concurrent.futures
import fnmatch
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
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

from check_sizes import blank_out

CHECKOUT = pathlib.Path(__file__).resolve().parent.parent
ROOT = CHECKOUT / "build" / "mutants" / "tree"  # a copy: the checkout may change meanwhile
MODEL = "src/model"
LIBRARIES = ("base", "event", "trace", "model", "replay")  # folders of src that the tests link
TESTS = ("model", "replay")                                # folders of tests/unit
STAGES = (("model", "~[property]"), ("replay", ""), ("model", "[property]"))  # quick ones first
EQUIVALENT = CHECKOUT / "tools" / "mutate_model.equivalent"
MEMORY_LIMIT = 6 << 30


class Mutant(NamedTuple):
    path: str       # below ROOT
    line: int
    operator: str
    begin: int      # of the text that is replaced
    end: int
    text: str       # what stands there instead

    def apply(self, source: str) -> str:
        return source[:self.begin] + self.text + source[self.end:]


# --- operators ----------------------------------------------------------------------------------
# Each yields (begin, end, replacement). `code` is the source with comments, literals and
# preprocessor lines blanked, position by position. clang-format sets spaces around binary
# operators, so `a < b` is a comparison and `vector<int>` is not.

Change = Tuple[int, int, str]

RELATIONAL = {"<": ("<=", ">="), "<=": ("<", ">"), ">": (">=", "<="), ">=": (">", "<"), "==": ("!=",), "!=": ("==",)}
ARITHMETIC = {"+": ("-",), "-": ("+",), "*": ("/",), "/": ("*",), "%": ("*",), "+=": ("-=",), "-=": ("+=",),
              "<<": (">>",), ">>": ("<<",), "&": ("|",), "|": ("&",), "|=": ("&=",), "&=": ("|=",), "*=": ("/=",),
              "/=": ("*=",), ">>=": ("<<=",), "<<=": (">>=",), "^": ("&",)}
BOOLEAN = {"&&": ("||",), "||": ("&&",)}


def binary_operators(code: str, table: Dict[str, Tuple[str, ...]]) -> Iterator[Change]:
    for match in re.finditer(r"(?<= )(?:<<=|>>=|[<>=!+\-*/%&|^]=|&&|\|\||<<|>>|[<>+\-*/%&|^])(?=[ \n])", code):
        for other in table.get(match.group(0), ()):
            yield match.start(), match.end(), other


def relational(code: str) -> Iterator[Change]:
    yield from binary_operators(code, RELATIONAL)


def arithmetic(code: str) -> Iterator[Change]:
    yield from binary_operators(code, ARITHMETIC)
    for match in re.finditer(r"(?<![+\-])(\+\+|--)(?![+\-])", code):
        yield match.start(), match.end(), "--" if match.group(0) == "++" else "++"
    for match in re.finditer(r"(?<=[(\s,=])[-~](?=[\w(])", code):
        before = code[:match.start()].rstrip(" \n")
        if before and before[-1] in "(,=?:" or before.endswith("return"):
            yield match.start(), match.end(), ""


def boolean(code: str) -> Iterator[Change]:
    yield from binary_operators(code, BOOLEAN)
    for match in re.finditer(r"!(?=[\w(])", code):
        yield match.start(), match.end(), ""
    for match in re.finditer(r"\b(true|false)\b", code):
        yield match.start(), match.end(), "false" if match.group(1) == "true" else "true"


def constants(code: str) -> Iterator[Change]:
    for match in re.finditer(r"(?<![\w.'])(0x[0-9a-fA-F']+|\d[\d']*(?:\.\d+)?)(u?l{0,2})\b(?![.'])", code):
        if re.search(r":\s*$", code[:match.start()]) and re.match(r"\s*=|;", code[match.end():]):
            continue  # width of a bit field
        digits = match.group(1).replace("'", "")
        if "." in digits:
            values = [str(float(digits) + step) for step in (1.0, -1.0)]
        else:
            value = int(digits, 0)
            values = [str(value + 1)] + ([str(value - 1)] if value > 0 else [])
        for value in values:
            yield match.start(), match.end(), value + match.group(2)


DECLARATION = re.compile(
    r"^(?:const|constexpr|inline|static|using|typedef|auto|struct|class|enum|friend|template|extern|namespace|public|"
    r"private|virtual|explicit|return|case|default|break|continue|else|if|for|while|do|switch|[\w:<>,\s*&]+[\s*&]\w+\s*"
    r"(?:=|;|\{|\(.*\)\s*(?:const|override|;)))")
STATEMENT = re.compile(r"(?<=[;{}:)])\s*\n\s*((?:\+\+|--|\*|\(|[\w:]+)[^;{}]*;)", re.S)


def statements(code: str) -> Iterator[Change]:
    position = 0
    while True:
        match = STATEMENT.search(code, position)
        if match is None:
            break
        position = match.end() - 1
        text = match.group(1)
        # At namespace scope everything is a declaration, below it starts with two spaces or more.
        if code[match.start(1) - 1] == "\n" or (DECLARATION.match(text) and not re.match(r"^[\w.\[\]>:\-()]+\s*[-+|&*/]?=[^=]", text)):
            continue
        if text.count("(") == text.count(")"):
            yield match.start(1), match.end(1), ";"
    for match in re.finditer(r"\b(break|continue);", code):
        yield match.start(), match.end(), ";"
    for match in re.finditer(r"\) (return(?: [^;{}]*)?;)", code):  # an early return
        yield match.start(1), match.end(1), ";"
    for match in re.finditer(r"\) ((?!return|continue|break|const|override|noexcept)[\w+\-*][^;{}]*;)", code):
        if match.group(1).count("(") == match.group(1).count(")"):
            yield match.start(1), match.end(1), ";"


def closing(code: str, position: int) -> int:
    """Position after the parenthesis that closes the one at `position`."""
    depth = 0
    for index in range(position, len(code)):
        depth += {"(": 1, ")": -1}.get(code[index], 0)
        if depth == 0:
            return index + 1
    return len(code)


def condition_start(code: str, question: int) -> int:
    """Where the condition of the conditional expression whose `?` is at `question` begins."""
    depth, index = 0, question - 1
    while index >= 0:
        char = code[index]
        if char in ")]}":
            depth += 1
        elif char in "([{":
            if depth == 0:
                return index + 1
            depth -= 1
        elif depth == 0:
            if char in ",;?" or (char == "=" and code[index - 1] not in "=!<>" and code[index + 1] != "="):
                return index + 1
            if char == ":" and code[index - 1] != ":" and code[index + 1] != ":":
                return index + 1
            if code.startswith("return", index) and not code[index - 1].isalnum():
                return index + len("return")
        index -= 1
    return 0


def branches(code: str) -> Iterator[Change]:
    for match in re.finditer(r"\b(?:if|while) \(", code):
        end = closing(code, match.end() - 1)
        inside = (match.end(), end - 1)
        text = code[inside[0]:inside[1]]
        if ";" in text or re.match(r"\s*(?:const )?(?:auto|[\w:<>]+)[\s*&]+\w+ = ", text):
            semicolon = inside[0] + text.rfind(";") + 1
            if ";" not in text:
                continue
            inside = (semicolon, inside[1])
        yield inside[0], inside[1], " !(" + code[inside[0]:inside[1]].strip() + ")"
    for match in re.finditer(r" \? ", code):
        begin = condition_start(code, match.start())
        yield begin, match.start(), " !(" + code[begin:match.start()].strip() + ")"
    for match in re.finditer(r"\bstd::(min|max)\b", code):
        yield match.start(1), match.end(1), "max" if match.group(1) == "min" else "min"


OPERATORS = {"relational": relational, "arithmetic": arithmetic, "boolean": boolean, "constant": constants,
             "statement": statements, "branch": branches}


def literal_free(source: str) -> str:
    """`blank_out` leaves nothing of literals, so that no operator acts inside one."""
    return re.sub(r"\bstatic_assert\([^;]*;", lambda m: re.sub(r"[^\n]", " ", m.group(0)), blank_out(source), flags=re.S)


def mutants_of(path: str, source: str) -> Iterator[Mutant]:
    code = literal_free(source)
    for name, operator in OPERATORS.items():
        for begin, end, text in operator(code):
            if name == "branch":  # the replaced text may hold literals
                inner = source[begin:end].strip()
                text = " !(" + inner + ")" if text.startswith(" !(") else text
            yield Mutant(path, source.count("\n", 0, begin + 1) + 1, name, begin, end, text)


# --- building -----------------------------------------------------------------------------------

def compiler() -> str:
    return subprocess.run([str(CHECKOUT / "tools" / "compiler.sh")], stdout=subprocess.PIPE, check=True, text=True).stdout.strip()


class Workshop:
    """Objects of the original, and what a mutant needs beside them."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory = directory
        self.compiler = compiler()
        self.launcher = ["ccache"] if shutil.which("ccache") else []
        self.objects: Dict[str, pathlib.Path] = {}
        self.includes: Dict[str, set] = {}
        self.lock = threading.Lock()
        self.reference: Dict[str, str] = {}
        self.seconds = 60.0
        self.catch_main = "catch_all" not in self._headers(ROOT / "tests/support/catch.h")

    def sources(self) -> List[str]:
        result = []
        for folder in LIBRARIES:
            listed = re.findall(r"\b[\w.]+\.cpp\b", (ROOT / "src" / folder / "CMakeLists.txt").read_text())
            result += [f"src/{folder}/{name}" for name in dict.fromkeys(listed)]
        for folder in TESTS:
            result += sorted(p.relative_to(ROOT).as_posix() for p in (ROOT / "tests/unit" / folder).glob("*_test.cpp"))
        if self.catch_main:
            result.append("tests/support/catch_main.cpp")
        return result

    def command(self, source: pathlib.Path, output: pathlib.Path, overlay: Optional[pathlib.Path], optimise: str) -> List[str]:
        first = ["-I", str(overlay / "src"), "-I", str(overlay)] if overlay else []
        return [self.compiler, "-std=c++20", optimise, "-w", *first, "-I", str(ROOT / "src"), "-I", str(ROOT),
                f'-DFRAGSCOPE_TEST_DATA="{ROOT}/tests/golden"', "-c", str(source), "-o", str(output)]

    def compile(self, source: str, output: pathlib.Path, overlay: Optional[pathlib.Path] = None, optimise: str = "-O1") -> str:
        """Empty, or the first line of what is wrong."""
        here = overlay / source if overlay and (overlay / source).exists() else ROOT / source
        launcher = [] if overlay else self.launcher
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

    def program(self, name: str) -> List[str]:
        mine = [s for s in self.sources() if s.startswith(f"tests/unit/{name}/") or s == "tests/support/catch_main.cpp"]
        return mine + [s for s in self.sources() if s.startswith("src/")]

    def link(self, name: str, replaced: Dict[str, pathlib.Path], output: pathlib.Path) -> str:
        objects = [str(replaced.get(s, self.objects[s])) for s in self.program(name)]
        catch = [] if self.catch_main else ["-lCatch2Main", "-lCatch2"]
        done = subprocess.run([self.compiler, *objects, *catch, "-lzstd", "-lpthread", "-o", str(output)],
                              stderr=subprocess.PIPE, text=True)
        return "" if done.returncode == 0 else "; ".join(done.stderr.splitlines()[:3])

    def prepare(self, jobs: int) -> Optional[str]:
        (self.directory / "original").mkdir(parents=True, exist_ok=True)
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            def build(source: str) -> str:
                output = self.directory / "original" / (source.replace("/", "_") + ".o")
                self.objects[source] = output
                return self.compile(source, output)
            for source, problem in zip(self.sources(), pool.map(build, self.sources())):
                if problem:
                    return f"{source}: {problem}"
        longest = 0.0
        for name in TESTS:
            problem = self.link(name, {}, self.directory / "original" / f"test_{name}")
            if problem:
                return problem
        for name, cases in STAGES:
            began = time.monotonic()
            if run_tests(self.directory / "original" / f"test_{name}", cases, None) != "":
                return f"test_{name} fails without any change"
            longest = max(longest, time.monotonic() - began)
        self.seconds = 30 + 20 * longest
        return None


def limit_resources() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def run_tests(program: pathlib.Path, cases: str, seconds: Optional[float]) -> str:
    """Empty: all passed; else how the program ended."""
    try:
        done = subprocess.run([str(program), "--abort", *([cases] if cases else [])], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              stdin=subprocess.DEVNULL, timeout=seconds, preexec_fn=limit_resources)
    except subprocess.TimeoutExpired:
        return "does not end"
    return "" if done.returncode == 0 else f"exit {done.returncode}"


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
    if mutant.path.endswith(".cpp"):
        touched = [mutant.path]
    else:
        touched = [s for s in shop.sources() if mutant.path in shop.headers_of(s)]
    replaced = {}
    for item in touched:
        output = place / (item.replace("/", "_") + ".o")
        if shop.compile(item, output, place):
            return Verdict(mutant, "not compiled", "")
        replaced[item] = output
    for name in TESTS:
        problem = shop.link(name, replaced, place / f"test_{name}")
        if problem:
            return Verdict(mutant, "not compiled", problem)
    for name, cases in STAGES:
        ended = run_tests(place / f"test_{name}", cases, shop.seconds)
        if ended:
            return Verdict(mutant, "killed", f"test_{name}: {ended}")
    if same_code(shop, touched, place, place):
        return Verdict(mutant, "equivalent", "the compiler makes the same code")
    return Verdict(mutant, "survived", "")


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


def known_equivalents() -> Dict[Tuple[str, str, str], str]:
    """(file name, line before, line after) -> reason. The file's head explains its form."""
    known = {}
    if not EQUIVALENT.exists():
        return known
    fields: Dict[str, str] = {}
    for line in EQUIVALENT.read_text().splitlines():
        match = re.match(r"(file|-|\+|why):? (.*)", line)
        if match is None:
            continue
        fields[match.group(1)] = match.group(2).strip()
        if match.group(1) == "why":
            known[fields["file"], squeeze(fields["-"]), squeeze(fields["+"])] = fields["why"]
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
    if sys.stderr.isatty():
        print(f"\r{number}/{total}", end="", file=sys.stderr, flush=True)


def main() -> int:
    options = arguments()
    copy_tree()
    mutants = draw(options)
    if options.list:
        for mutant in mutants:
            print(describe(mutant))
        return 0
    if not mutants:
        print("mutate-model: no file matches", file=sys.stderr)
        return 2
    shop = Workshop(CHECKOUT / "build" / "mutants")
    problem = shop.prepare(options.jobs)
    if problem:
        print(f"mutate-model: {problem}", file=sys.stderr)
        return 2
    known = known_equivalents()
    places = [shop.directory / f"mutant-{os.getpid()}-{n}" for n in range(options.jobs)]
    counts = {"killed": 0, "survived": 0, "equivalent": 0, "not compiled": 0}

    def work(mutant: Mutant) -> Verdict:
        before, after = changed_lines(mutant)
        reason = known.get((pathlib.Path(mutant.path).name, before, after))
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
