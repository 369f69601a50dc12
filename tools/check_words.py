"""Looks for words that do not belong into the project's files.

usage: check_words.py [ROOT]

- paths of one machine (home directories and the like)
- marks of unfinished work
- tests that wait by the clock (tests/bench measures and may)
Tracked files of a git checkout are read, all files of another directory.
Exit code: 0 nothing found, 1 findings, one line each.
"""

import pathlib
import re
import subprocess
import sys
from typing import Iterator, List

# Written in pieces so that this file does not find itself.
MACHINE_PATHS = re.compile("(?<![\\w.$}~])/" + "(?:work|root|Users|home/[a-z]\\w*)/")
UNFINISHED = re.compile("\\b(?:TO" + "DO|FIX" + "ME|XX" + "X|HA" + "CK)\\b|Not" + "ImplementedError|not implemented " + "yet", re.I)
WAITS = re.compile("\\b(?:sleep_" + "for|sleep_" + "until|usleep|nanosleep)\\b|\\btime\\.sl" + "eep\\b|(?<![\\w.])sl" + "eep\\(")
MARK_EXEMPT = {"LICENSE"}


def files(root: pathlib.Path) -> Iterator[pathlib.Path]:
    if (root / ".git").exists():
        listed = subprocess.run(["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                                stdout=subprocess.PIPE, check=True, text=True)
        names = [name for name in listed.stdout.split("\0") if name]
    else:
        names = [path.relative_to(root).as_posix() for path in root.rglob("*")]
    for name in sorted(names):
        if (root / name).is_file() and name not in MARK_EXEMPT:
            yield root / name


def waits_matter(name: str) -> bool:
    return name.startswith("tests/") and not name.startswith("tests/bench/") and name.endswith((".cpp", ".h", ".py"))


def check_file(root: pathlib.Path, path: pathlib.Path) -> Iterator[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return
    name = path.relative_to(root).as_posix()
    for number, line in enumerate(text.splitlines(), 1):
        if MACHINE_PATHS.search(line):
            yield f"{name}:{number}: path of one machine"
        if UNFINISHED.search(line):
            yield f"{name}:{number}: mark of unfinished work"
        if waits_matter(name) and WAITS.search(line):
            yield f"{name}:{number}: a test waits by the clock"


def main(arguments: List[str]) -> int:
    root = pathlib.Path(arguments[0]) if arguments else pathlib.Path(__file__).resolve().parent.parent
    problems = [problem for path in files(root) for problem in check_file(root, path)]
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
