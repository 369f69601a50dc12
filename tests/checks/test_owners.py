"""check_owners.py: a dependency's headers stay with their owner."""

import pytest

TABLE = """
| dependency | packages | headers | owner | why |
|---|---|---|---|---|
| zstd | libzstd-dev | `zstd.h` | `src/trace/compression.cpp` | compression |
| Boost | libboost-dev | `boost/` | `src/log/*` | mapping |
"""


def test_the_tree_keeps_its_owners(check):
    assert check("owners") == (0, [])


@pytest.mark.parametrize("name, header, expected", [
    ("src/trace/compression.cpp", "zstd.h", None),
    ("src/log/region.h", "boost/interprocess/mapped_region.hpp", None),
    ("src/event/a.h", "cstdint", None),
    ("src/event/a.h", "sys/mman.h", None),
    ("src/event/a.h", "zstd.h", "<zstd.h> belongs to src/trace/compression.cpp (zstd)"),
    ("tools/a.cpp", "boost/version.hpp", "<boost/version.hpp> belongs to src/log/* (Boost)"),
    ("shim/a.cpp", "libunwind.h", "<libunwind.h> is of no dependency that CONTRIBUTING.md lists"),
    ("tests/a.cpp", "gtest/gtest.h", "<gtest/gtest.h> is of no dependency that CONTRIBUTING.md lists"),
])
def test_headers_and_owners(check, tree, name, header, expected):
    files = {"CONTRIBUTING.md": TABLE, name: f"#pragma once\n#include <{header}>\n"}
    assert check("owners", tree(files)) == ((1, [f"{name}:2: {expected}"]) if expected else (0, []))


def test_a_missing_table_is_an_error_of_its_own(check, tree):
    assert check("owners", tree({"CONTRIBUTING.md": "nothing"}))[0] == 2
