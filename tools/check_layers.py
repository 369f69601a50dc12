"""Holds the includes and the CMake link lines against the table in src/README.md.

usage: check_layers.py [ROOT]

A folder may include itself, `base` and what its row names. An entry of a row is
  `folder`          the whole folder
  `folder/prefix`   only files of it whose path starts so
  `folder` (in `pattern` only)   only from the row's own files that match the pattern
  all               everything
Nobody includes tools or tests. System headers (<…>) are check_words.py's business.
Exit code: 0 all kept, 1 some broken (one line each: file:line: what), 2 the table is unreadable.
"""

import fnmatch
import pathlib
import re
import sys
from typing import Dict, List, NamedTuple, Optional

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')
ROW = re.compile(r"^\|\s*`([\w./]+)`\s*\|[^|]*\|([^|]*)\|\s*$")
ENTRY = re.compile(r"`([\w/]+)`(?:\s*\(in `([\w*.]+)` only\))?")
SOURCES = {".h", ".cpp", ".def"}


class Entry(NamedTuple):
    target: str
    only_in: Optional[str]  # file name pattern of the including file


Table = Dict[str, List[Entry]]


def read_table(root: pathlib.Path) -> Table:
    """Rows of src/README.md, keyed by folder relative to the root ("src/base", "shim", …)."""
    table: Table = {}
    for line in (root / "src/README.md").read_text(encoding="utf-8").splitlines():
        row = ROW.match(line)
        if not row:
            continue
        folder = row.group(1)[3:] if row.group(1).startswith("../") else "src/" + row.group(1)
        entries = [Entry(name, only or None) for name, only in ENTRY.findall(row.group(2))]
        if row.group(2).strip() == "all":
            entries.append(Entry("*", None))
        table[folder] = entries
    return table


def folder_of(path: str, table: Table) -> Optional[str]:
    """The row a path (relative to the root) belongs to."""
    matches = [folder for folder in table if path.startswith(folder + "/")]
    return max(matches, key=len) if matches else None


def allowed(table: Table, source: str, target: str) -> bool:
    """May the file `source` include the file `target` (both relative to the root)?"""
    home = folder_of(source, table)
    if home is None:
        return False
    if target.startswith((home + "/", "src/base/")):
        return True
    inside = target[4:] if target.startswith("src/") else target
    for entry in table[home]:
        if entry.only_in and not fnmatch.fnmatch(pathlib.PurePath(source).name, entry.only_in):
            continue
        if entry.target == "*" or (inside + "/").startswith(entry.target + "/"):
            return True
        if "/" in entry.target and inside.startswith(entry.target):
            return True
    return False


def resolve(root: pathlib.Path, source: pathlib.Path, name: str) -> Optional[str]:
    """The file an #include "name" means: beside the source, below src/, below the root."""
    for base in (source.parent, root / "src", root):
        candidate = base / name
        if candidate.is_file():
            return candidate.resolve().relative_to(root.resolve()).as_posix()
    return None


def check_includes(root: pathlib.Path, table: Table) -> List[str]:
    problems = []
    for top in ("src", "shim", "alloc", "tools"):
        for path in sorted((root / top).rglob("*")):
            if path.suffix not in SOURCES or not path.is_file():
                continue
            source = path.relative_to(root).as_posix()
            if folder_of(source, table) is None:
                problems.append(f"{source}:1: its folder has no row in src/README.md")
                continue
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                match = INCLUDE.match(line)
                target = resolve(root, path, match.group(1)) if match else None
                if target and not allowed(table, source, target):
                    problems.append(f"{source}:{number}: may not include {target}")
    return problems


def link_names(text: str) -> List[str]:
    """Folders that a CMakeLists.txt links: words after DEPS, and targets fs_<folder>."""
    text = re.sub(r"#.*", "", text)
    names = re.findall(r"\bfs_(\w+)", text)
    for block in re.findall(r"\bDEPS\b([^)]*)", text):
        for word in block.split():
            if word.isupper():
                break
            names.append(word)
    return names


def check_links(root: pathlib.Path, table: Table) -> List[str]:
    """Link lines may name what the includes may; an entry below a folder allows the folder."""
    problems = []
    for folder, entries in table.items():
        path = root / folder / "CMakeLists.txt"
        if not path.is_file():
            continue
        may = {entry.target.split("/")[0] for entry in entries} | {"base", folder.split("/")[-1]}
        for name in link_names(path.read_text(encoding="utf-8")):
            known = f"src/{name}" in table
            if known and name not in may and "*" not in may:
                problems.append(f"{folder}/CMakeLists.txt:1: may not link {name}")
    return problems


def main(arguments: List[str]) -> int:
    default = pathlib.Path(__file__).resolve().parent.parent
    root = pathlib.Path(arguments[0]) if arguments else default
    table = read_table(root)
    if not table:
        print("check_layers: no table found in src/README.md", file=sys.stderr)
        return 2
    problems = check_includes(root, table) + check_links(root, table)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
