"""Families of random command lists: which settings and which commands are tried on which releases."""

import pathlib
from typing import List, NamedTuple

DATA = pathlib.Path(__file__).resolve().parent.parent / "golden" / "oracle" / "families.tsv"
GOLDEN_FAMILIES = 27


class Family(NamedTuple):
    name: str
    first: int  # minor release that has the option
    settings: str  # PYTORCH_CUDA_ALLOC_CONF
    arguments: List[str] = []  # of the oracle program
    last: int = 99

    @property
    def host(self) -> bool:
        return "--host" in self.arguments

    def applies(self, version: str) -> bool:
        return self.first <= int(version.split(".")[1]) <= self.last


def read_families() -> List[Family]:
    families = []
    for line in DATA.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            continue
        name, first, last, settings, arguments = line.split("\t")
        families.append(Family(name, int(first), settings, arguments.split(), int(last or 99)))
    return families


FAMILIES = read_families()
