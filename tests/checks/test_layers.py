"""check_layers.py: the tree keeps the table of src/README.md, and breaking it is noticed."""

import pytest

TABLE = """
| folder | what | may include |
|---|---|---|
| `base` | bytes | – |
| `event` | events | – |
| `log` | log | `event` |
| `model` | model | – |
| `simcuda` | simulated | `model/device_memory` |
| `../shim` | preload | `event`, `log/log_writer`, `model` (in `policy*` only) |
| `../tools` | the command line | all |
"""

CLEAN = {
    "src/README.md": TABLE,
    "src/base/bytes.h": "#pragma once\n",
    "src/event/event.h": '#include "base/bytes.h"\n',
    "src/log/log_writer.h": '#include "event/event.h"\n',
    "src/log/log_reader.h": '#include "log_writer.h"\n#include <vector>\n',
    "src/log/CMakeLists.txt": "fragscope_library(log SOURCES a.cpp DEPS base event LINK Boost::headers)\n",
    "src/model/device_memory.h": "",
    "src/model/allocator.h": '#include "model/device_memory.h"\n',
    "src/simcuda/memory.cpp": '#include "model/device_memory.h"\n',
    "shim/policy.cpp": '#include "model/allocator.h"\n#include "shim/session.h"\n',
    "shim/session.h": '#include "log/log_writer.h"\n',
    "tools/main.cpp": '#include "model/allocator.h"\n#include "log/log_reader.h"\n',
}


def test_the_tree_keeps_its_layers(check):
    assert check("layers") == (0, [])


def test_a_clean_small_tree_passes(check, tree):
    assert check("layers", tree(CLEAN)) == (0, [])


@pytest.mark.parametrize("name, text, expected", [
    ("src/event/bad.h", '#include "log/log_writer.h"\n', "src/event/bad.h:1: may not include src/log/log_writer.h"),
    ("src/log/bad.h", '\n#include "../model/allocator.h"\n', "src/log/bad.h:2: may not include src/model/allocator.h"),
    ("src/simcuda/bad.h", '#include "model/allocator.h"\n', "src/simcuda/bad.h:1: may not include src/model/allocator.h"),
    ("shim/observers.cpp", '#include "model/allocator.h"\n', "shim/observers.cpp:1: may not include src/model/allocator.h"),
    ("shim/bad.cpp", '#include "log/log_reader.h"\n', "shim/bad.cpp:1: may not include src/log/log_reader.h"),
    ("src/base/bad.h", '#include "event/event.h"\n', "src/base/bad.h:1: may not include src/event/event.h"),
    ("src/nowhere/new.h", "", "src/nowhere/new.h:1: its folder has no row in src/README.md"),
    ("src/model/CMakeLists.txt", "fragscope_library(model DEPS base log)\n", "src/model/CMakeLists.txt:1: may not link log"),
    ("src/event/CMakeLists.txt", "target_link_libraries(fs_event PUBLIC fs_model)\n", "src/event/CMakeLists.txt:1: may not link model"),
])
def test_a_forbidden_arrow_is_reported(check, tree, name, text, expected):
    assert check("layers", tree({**CLEAN, name: text})) == (1, [expected])


def test_tools_are_nobodys_dependency(check, tree):
    files = {**CLEAN, "tools/open_run.h": "", "src/log/bad.h": '#include "tools/open_run.h"\n'}
    assert check("layers", tree(files)) == (1, ["src/log/bad.h:1: may not include tools/open_run.h"])


def test_a_missing_table_is_an_error_of_its_own(check, tree):
    assert check("layers", tree({"src/README.md": "nothing"}))[0] == 2
