"""A layout never changes under the same version number; wire ids are for ever.

usage: check_layouts.py [--approve] [ROOT]

tests/golden/layouts.txt keeps, per layout and version, a fingerprint of the header that states the
layout (comments and spacing do not count), and every wire id of event_kinds.def. The check fails
when a header changed and its version did not, when the version is not in the list or not in the
format's document, and when an id that was given out is gone or means something else.
--approve writes the present state into the list; the diff of that file is what a reviewer reads.
Exit code: 0 kept, 1 broken (one line each).
"""

import hashlib
import pathlib
import re
import sys
from typing import Dict, List, NamedTuple, Tuple

GOLDEN = "tests/golden/layouts.txt"
KINDS = "src/event/event_kinds.def"


class Layout(NamedTuple):
    name: str
    header: str
    version: str  # constant that holds the version
    document: str  # must name the version in a row of its version table; "" = the header itself


LAYOUTS = [
    Layout("log", "src/log/log_layout.h", "kVersion", ""),
    Layout("trace", "src/trace/format.h", "kTraceVersion", "src/trace/FORMAT.md"),
]


def fingerprint(text: str) -> str:
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.S)
    return hashlib.sha256(" ".join(text.split()).encode()).hexdigest()[:16]


def version_of(text: str, constant: str) -> int:
    match = re.search(rf"\b{constant}\s*=\s*(\d+)", text)
    return int(match.group(1)) if match else -1


def wire_ids(root: pathlib.Path) -> Dict[str, str]:
    text = (root / KINDS).read_text(encoding="utf-8")
    return dict(re.findall(r"^EVENT_KIND\((\w+),\s*(\d+),", text, re.M))


def read_golden(root: pathlib.Path) -> Dict[Tuple[str, str], str]:
    path = root / GOLDEN
    rows = [line.split() for line in path.read_text(encoding="utf-8").splitlines()] if path.is_file() else []
    return {(row[0], row[1]): row[2] for row in rows if len(row) == 3 and not row[0].startswith("#")}


def present_state(root: pathlib.Path) -> Tuple[Dict[Tuple[str, str], str], List[str]]:
    """What the golden file should say of the tree, and what is wrong with the documents."""
    state, problems = {}, []
    for layout in LAYOUTS:
        text = (root / layout.header).read_text(encoding="utf-8")
        version = version_of(text, layout.version)
        state[(layout.name, str(version))] = fingerprint(text)
        if layout.document:
            document = (root / layout.document).read_text(encoding="utf-8")
            if not re.search(rf"^\|\s*{version}\s*\|", document, re.M):
                problems.append(f"{layout.document}: no row for version {version}")
    for name, number in wire_ids(root).items():
        state[("event", number)] = name
    return state, problems


def compare(golden: Dict[Tuple[str, str], str], state: Dict[Tuple[str, str], str]) -> List[str]:
    problems = []
    for key, value in state.items():
        if key not in golden:
            problems.append(f"{GOLDEN}: {key[0]} {key[1]} is not listed (check_layouts.py --approve)")
        elif golden[key] != value and key[0] == "event":
            problems.append(f"{KINDS}: id {key[1]} was {golden[key]} and is now {value}")
        elif golden[key] != value:
            problems.append(f"{GOLDEN}: the layout of {key[0]} changed and is still version {key[1]}")
    for name, number in golden:
        if name == "event" and (name, number) not in state:
            problems.append(f"{KINDS}: id {number} ({golden[(name, number)]}) is gone")
    return problems


def approve(root: pathlib.Path, golden: Dict[Tuple[str, str], str], state: Dict[Tuple[str, str], str]) -> None:
    merged = sorted({**golden, **state}.items(), key=lambda item: (item[0][0], int(item[0][1])))
    lines = ["# layout, version, fingerprint; event, wire id, name. See tools/check_layouts.py."]
    lines += [f"{key[0]} {key[1]} {value}" for key, value in merged]
    (root / GOLDEN).parent.mkdir(parents=True, exist_ok=True)
    (root / GOLDEN).write_text("\n".join(lines) + "\n", encoding="utf-8")


def main(arguments: List[str]) -> int:
    approving = "--approve" in arguments
    rest = [argument for argument in arguments if argument != "--approve"]
    root = pathlib.Path(rest[0]) if rest else pathlib.Path(__file__).resolve().parent.parent
    golden = read_golden(root)
    state, problems = present_state(root)
    if approving:
        approve(root, golden, state)
    else:
        problems += compare(golden, state)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
