"""What the fuzzer has compared so far: coverage.tsv, and COVERAGE.md made from it."""

import fcntl
import pathlib
import subprocess
from typing import List, NamedTuple

import families
import wheels

HERE = pathlib.Path(__file__).resolve().parent
DATA = HERE / "coverage.tsv"
PAGE = HERE / "COVERAGE.md"


class Row(NamedTuple):
    version: str
    family: str
    commands: int
    seed: int  # of the first list; the others follow
    lists: int
    differences: int
    model: str  # git's name of src/model


def model_revision() -> str:
    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=wheels.ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()

    changed = git("status", "--porcelain", "--", "src/model")
    return git("rev-parse", "--short=10", "HEAD:src/model") + ("+" if changed else "")


def read_rows() -> List[Row]:
    if not DATA.exists():
        return []
    rows = []
    for line in DATA.read_text(encoding="utf-8").splitlines():
        version, family, commands, seed, lists, differences, model = line.split("\t")
        rows.append(Row(version, family, int(commands), int(seed), int(lists), int(differences), model))
    return rows


def is_covered(version: str, family: str, commands: int) -> bool:
    current = model_revision()
    return any(row.version == version and row.family == family and row.commands >= commands
               and row.model == current and row.differences == 0 for row in read_rows())


def note(row: Row) -> None:
    """Replaces what is noted of the same release and family."""
    lock_place = wheels.BUILD / "oracle"
    lock_place.mkdir(parents=True, exist_ok=True)
    with open(lock_place / "coverage.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        rows = [r for r in read_rows() if (r.version, r.family) != (row.version, row.family)] + [row]
        order = {name: i for i, name in enumerate(wheels.RELEASES)}
        names = {family.name: i for i, family in enumerate(families.FAMILIES)}
        rows = sorted((r for r in rows if r.family in names), key=lambda r: (order[r.version], names[r.family]))
        DATA.write_text("".join("\t".join(map(str, r)) + "\n" for r in rows), encoding="utf-8")
        write_page(rows)


def cell(rows: dict, version: str, family: families.Family) -> str:
    if not family.applies(version):
        return ""
    row = rows.get((version, family.name))
    if row is None:
        return "not run"
    count = f"{row.commands // 1000} k"
    return count if row.differences == 0 else f"**{row.differences} differ** of {count}"


def write_page(rows: List[Row]) -> None:
    by_place = {(row.version, row.family): row for row in rows}
    versions = list(wheels.RELEASES)
    total = sum(row.commands for row in rows)
    bad = sum(row.differences for row in rows)
    lines = ["# What the model was compared on", "",
             f"Made by `tests/oracle/fuzz --cover N`: {total:,} commands of random lists on the real allocators, "
             f"{bad} differences.", "Cells: commands compared, in thousands; empty where the release lacks the option. "
             "Seeds and the revision of `src/model` (`+`: with changes) are in `coverage.tsv`;", "settings and arguments of each family in "
             "`families.py`. Torch 2.0 has no oracle.", "",
             "| family | " + " | ".join(versions) + " |", "|---|" + "---|" * len(versions)]
    for family in families.FAMILIES:
        lines.append(f"| {family.name} | " + " | ".join(cell(by_place, v, family) for v in versions) + " |")
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")
