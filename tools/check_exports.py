"""A library exports exactly what its list says.

usage: check_exports.py LIBRARY LIST… [--node NODE] [--also NAME]…

LIST is a .def file: the first argument of each of its macro rows is a symbol, except of
NOT_HOOKED rows. Without --node no exported symbol may carry a version node (a versioned definition
in a preloaded library silently fails to override); with it, all symbols must carry exactly that
one. --also names symbols from outside the lists.
Exit code: 0 equal, 1 different (one line each), 2 something cannot be read.
"""

import argparse
import pathlib
import re
import subprocess
import sys
from typing import List, Set, Tuple

ROW = re.compile(r"^([A-Z][A-Z0-9_]*)\(\s*(\w+)", re.M)
NOT_EXPORTED = {"NOT_HOOKED"}


def listed(path: str) -> Set[str]:
    text = pathlib.Path(path).read_text(encoding="utf-8")
    return {symbol for macro, symbol in ROW.findall(text) if macro not in NOT_EXPORTED}


def exported(library: str) -> Set[Tuple[str, str]]:
    """(symbol, version node or "") of everything the library defines for others."""
    command = ["nm", "-D", "--defined-only", "--with-symbol-versions", library]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        print(f"check_exports: {done.stderr.strip()}", file=sys.stderr)
        sys.exit(2)
    result = set()
    for line in done.stdout.splitlines():
        kind, name = line.split()[-2:]
        if kind != "A":  # the version node itself is an absolute symbol
            symbol, _, node = name.partition("@")
            result.add((symbol, node.lstrip("@")))
    return result


def compare(library: str, wanted: Set[str], node: str) -> List[str]:
    found = exported(library)
    names = {symbol for symbol, _ in found}
    problems = [f"{library}: does not export {name}" for name in sorted(wanted - names)]
    problems += [f"{library}: exports {name}, which no list names" for name in sorted(names - wanted)]
    for symbol, carried in sorted(found):
        if symbol in wanted and carried != node:
            problems.append(f"{library}: {symbol} carries version node {carried or 'none'}, not {node or 'none'}")
    return problems


def main(arguments: List[str]) -> int:
    parser = argparse.ArgumentParser(description="Exports of a library against its list.")
    parser.add_argument("library")
    parser.add_argument("lists", nargs="+")
    parser.add_argument("--node", default="")
    parser.add_argument("--also", action="append", default=[])
    options = parser.parse_args(arguments)
    wanted = set(options.also)
    for path in options.lists:
        names = listed(path)
        if not names:
            print(f"check_exports: {path} has no rows", file=sys.stderr)
            return 2
        wanted |= names
    problems = compare(options.library, wanted, options.node)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
