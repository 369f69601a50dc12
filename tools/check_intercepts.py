"""Every function with which CUDA makes, maps, resizes or ends memory is hooked, or its reason is stated.

usage: check_intercepts.py [--include DIR]… [--libraries DIR]… [ROOT]

Judged by the vendor's lists and not by ours: the names that cuda.h and cuda_runtime_api.h of every
CUDA major declare (--include; default: the toolkits, header wheels and torch installation that
tools/setup.sh uses), those that torch's libraries import (--libraries), and the ABIs that
cudaTypedefs.h names by version and stream. Each name must be
- a row of shim/intercepts.def, by its exact symbol; or
- a NOT_HOOKED row there; or
- in shim/not_allocations.txt with a reason, without its suffixes. Functions whose base has a row
  are held to the first two: a new version of a hooked function is a finding.
Exit code: 0 complete, 1 not (one line each), 2 headers missing or unreadable.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
from typing import Dict, List, NamedTuple, Set, Tuple

ROOT = pathlib.Path(__file__).resolve().parent.parent
CACHE = pathlib.Path("~/.cache/fragscope").expanduser()
SUFFIX = re.compile(r"(_v\d+)?(_ptsz|_ptds)?$")
CUDA_NAME = re.compile(r"^(__cuda[A-Z]|cuda[A-Z]|cu(?!File)[A-Z])\w*$")


def base_of(symbol: str) -> str:
    return SUFFIX.sub("", symbol, count=1)


class Row(NamedTuple):
    symbol: str
    base: str
    since: int
    flavour: str


class Lists(NamedTuple):
    rows: List[Row]
    unhooked: Set[str]
    reasons: Dict[str, str]  # name -> reason
    through_driver: Dict[str, str]  # runtime name -> driver symbol


def read_lists(root: pathlib.Path) -> Lists:
    text = (root / "shim/intercepts.def").read_text(encoding="utf-8")
    hook = re.compile(r"^CUDA_HOOK\((\w+), \w+, (\w+), (\d+), (\w+),", re.M)
    resolver = re.compile(r"^RESOLVER_HOOK\((\w+), \w+, (\w+), (\d+),", re.M)
    rows = [Row(s, b, int(n), f) for s, b, n, f in hook.findall(text)]
    rows += [Row(s, b, int(n), "plain") for s, b, n in resolver.findall(text)]
    reasons, through, reason = {}, {}, ""
    for line in (root / "shim/not_allocations.txt").read_text(encoding="utf-8").splitlines():
        if line and line[0] not in "# ":
            reason = line.rstrip(":")
        elif line.startswith(" "):
            for word in line.split():
                name, _, driver = word.partition("=")
                reasons[name] = reason
                if driver:
                    through[name] = driver
    return Lists(rows, set(re.findall(r"^NOT_HOOKED\((\w+)", text, re.M)), reasons, through)


def preprocessed(include: pathlib.Path, header: str, macro: str) -> str:
    compiler = os.environ.get("CXX") or next(filter(shutil.which, ("g++", "g++-12", "clang++")), "c++")
    command = [*compiler.split(), "-x", "c++", "-E", "-P", f"-I{include}", "-"]
    done = subprocess.run(command, input=f"#define {macro}\n#include <{header}>\n", text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if done.returncode != 0:
        print(f"check_intercepts: {include / header}: {done.stderr.splitlines()[0]}", file=sys.stderr)
        sys.exit(2)
    return done.stdout


def declared(include: pathlib.Path) -> Set[str]:
    driver = preprocessed(include, "cuda.h", "__CUDA_API_VERSION_INTERNAL")
    runtime = preprocessed(include, "cuda_runtime_api.h", "__CUDART_API_VERSION_INTERNAL")
    names = set(re.findall(r"\bCUresult\s+(cu[A-Z]\w*)\s*\(", driver))
    return names | set(re.findall(r"\bcudaError_t\s+(?:__attribute__\S+\s+)?(cuda[A-Z]\w*)\s*\(", runtime))


def abis(include: pathlib.Path) -> Set[Tuple[str, int, str]]:
    """(base, version, flavour) of every function type in cudaTypedefs.h."""
    path = include / "cudaTypedefs.h"
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    found = re.findall(r"\*PFN_(cu\w+?)_v(\d+)(_ptsz|_ptds)?\)", text)
    return {(name, int(version), twin[1:] or "plain") for name, version, twin in found}


def imported(directory: pathlib.Path) -> Set[str]:
    """Names of CUDA's two APIs that the shared libraries below `directory` import."""
    names = set()
    for library in sorted(directory.rglob("*.so*")):
        done = subprocess.run(["nm", "-D", "--undefined-only", str(library)], text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        words = (line.split()[-1].partition("@")[0] for line in done.stdout.splitlines() if line)
        names |= {word for word in words if CUDA_NAME.match(word)}
    return names


def unexplained(names: Set[str], lists: Lists) -> List[str]:
    symbols = {row.symbol for row in lists.rows}
    bases = {row.base for row in lists.rows}
    problems = []
    for name in sorted(names - symbols - lists.unhooked):
        if base_of(name) in bases:
            problems.append(f"{name}: an ABI of a hooked function without a row in shim/intercepts.def")
        elif base_of(name) not in lists.reasons and base_of(name) not in lists.unhooked:
            problems.append(f"{name}: neither in shim/intercepts.def nor in shim/not_allocations.txt")
    return problems


def missing_abis(types: Set[Tuple[str, int, str]], lists: Lists) -> List[str]:
    """Versions of hooked functions that no row stands for. ABIs older than the oldest row of a
    function belong to its symbol without suffix, which then must be a NOT_HOOKED row."""
    rows = {(row.base, row.since, row.flavour) for row in lists.rows}
    oldest: Dict[str, int] = {}
    for base, since, _ in rows:
        oldest[base] = min(since, oldest.get(base, since))
    problems = []
    for base, version, flavour in sorted(types):
        if base not in oldest or (base, version, flavour) in rows:
            continue
        if version < oldest[base] and base in lists.unhooked:
            continue
        problems.append(f"{base} version {version} {flavour}: no row in shim/intercepts.def")
    return problems


def contradictions(lists: Lists) -> List[str]:
    symbols = {row.symbol for row in lists.rows}
    problems = [f"{name}: has a row and a reason not to" for name in sorted(symbols & set(lists.reasons))]
    problems += [f"{name}: {driver} has no row" for name, driver in sorted(lists.through_driver.items())
                 if driver not in symbols]
    return problems + [f"{name}: without a reason" for name, reason in sorted(lists.reasons.items()) if not reason]


def default_includes() -> List[pathlib.Path]:
    places = [CACHE / "cuda-headers/12/include", CACHE / "cuda-headers/13/include", *
              sorted(pathlib.Path("/usr/local").glob("cuda*/include")),
              *CACHE.glob("*-venv/lib/python3*/site-packages/nvidia/cu13/include")]
    unique = {place.resolve(): place for place in places if (place / "cuda.h").is_file()}
    return list(unique.values())


def main(arguments: List[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--include", action="append", type=pathlib.Path)
    parser.add_argument("--libraries", action="append", type=pathlib.Path)
    parser.add_argument("root", nargs="?", type=pathlib.Path, default=ROOT)
    options = parser.parse_args(arguments)
    includes = options.include or default_includes()
    libraries = options.libraries or list(CACHE.glob("torch-venv/lib/python3*/site-packages/torch/lib"))
    lists = read_lists(options.root)
    for include in includes:
        if not (include / "cuda.h").is_file():
            print(f"check_intercepts: no cuda.h in {include}", file=sys.stderr)
            return 2
    names = set().union(*map(declared, includes), *map(imported, libraries))
    if not names:
        print("check_intercepts: no CUDA headers found; run tools/setup.sh", file=sys.stderr)
        return 2
    types = set().union(*map(abis, includes))
    problems = unexplained(names, lists) + missing_abis(types, lists) + contradictions(lists)
    for problem in problems:
        print(problem)
    if not problems:
        print(f"{len(names)} names of {len(includes)} header sets and {len(libraries)} sets of libraries, "
              f"{len(lists.rows)} rows")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
