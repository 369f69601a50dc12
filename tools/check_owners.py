"""One owner per dependency: who may include a library's headers is said in CONTRIBUTING.md.

usage: check_owners.py [ROOT]

Rows of the table there: | name | packages | headers | owner | why |. `headers` are prefixes of what
stands in #include <…>, `owner` path patterns. A header of no row must be of the C or C++ library or
of the system (the list below). Exit code: 0 kept, 1 broken (one line each), 2 no table.
"""

import fnmatch
import pathlib
import re
import sys
from typing import List, NamedTuple

ROW = re.compile(r"^\|([^|]+)\|([^|]+)\|([^|]+)\|([^|]+)\|([^|]+)\|\s*$")
INCLUDE = re.compile(r"^\s*#\s*include\s*<([^>]+)>")
FOLDERS = ("src", "shim", "tools", "tests")
# Headers of libc, the kernel and the compiler; C++'s own have neither a suffix nor a slash.
SYSTEM = re.compile(r"^(?:[a-z_0-9]+|c[a-z]+|(?:sys|linux|asm|bits|gnu|arpa|netinet)/[\w/.-]+\.h|"
                    r"(?:assert|ctype|dirent|dlfcn|elf|errno|fcntl|ftw|getopt|glob|grp|inttypes|libgen|limits|link|"
                    r"locale|math|poll|pthread|pwd|sched|semaphore|setjmp|signal|spawn|stdarg|stdatomic|stdbool|stddef|"
                    r"stdint|stdio|stdlib|string|strings|syscall|termios|time|ucontext|unistd|unwind|cxxabi|alloca|"
                    r"malloc|execinfo|sysexits|wait)\.h)$")


class Rule(NamedTuple):
    name: str
    headers: List[str]
    owners: List[str]


def ticked(cell: str) -> List[str]:
    return re.findall(r"`([^`]+)`", cell)


def read_rules(root: pathlib.Path) -> List[Rule]:
    rules = []
    for line in (root / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines():
        row = ROW.match(line)
        if row and ticked(row.group(3)) and ticked(row.group(4)):
            rules.append(Rule(row.group(1).strip(), ticked(row.group(3)), ticked(row.group(4))))
    return rules


def check_include(rules: List[Rule], name: str, header: str) -> str:
    for rule in rules:
        if any(header == prefix or (prefix.endswith("/") and header.startswith(prefix)) for prefix in rule.headers):
            allowed = any(fnmatch.fnmatch(name, owner) for owner in rule.owners)
            return "" if allowed else f"<{header}> belongs to {', '.join(rule.owners)} ({rule.name})"
    return "" if SYSTEM.match(header) else f"<{header}> is of no dependency that CONTRIBUTING.md lists"


def main(arguments: List[str]) -> int:
    root = pathlib.Path(arguments[0]) if arguments else pathlib.Path(__file__).resolve().parent.parent
    rules = read_rules(root)
    if not rules:
        print("check_owners: no table found in CONTRIBUTING.md", file=sys.stderr)
        return 2
    broken = 0
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in {".h", ".cpp", ".def"} or not path.is_file():
                continue
            name = path.relative_to(root).as_posix()
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                match = INCLUDE.match(line)
                problem = check_include(rules, name, match.group(1)) if match else ""
                if problem:
                    print(f"{name}:{number}: {problem}")
                    broken = 1
    return broken


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
