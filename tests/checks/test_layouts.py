"""check_layouts.py: a layout cannot change under its version, an id cannot be given out twice."""

import pytest

TREE = {
    "src/log/log_layout.h": "inline constexpr int kVersion = 1;  // first\nstruct Header { int a; };\n",
    "src/trace/format.h": "inline constexpr int kTraceVersion = 3;\n",
    "src/trace/FORMAT.md": "| version | what |\n|---|---|\n| 3 | the present one |\n",
    "src/event/event_kinds.def": "EVENT_KIND(device_alloc, 1, driver)\nEVENT_KIND(alloc, 40, block)\n",
}


@pytest.fixture
def approved(check, tree):
    """A planted tree with an approved list; returns a function that overwrites files of it."""
    assert check("layouts", "--approve", tree(TREE)) == (0, [])
    return tree


def test_the_tree_keeps_its_layouts(check):
    assert check("layouts") == (0, [])


def test_an_approved_tree_passes(check, approved):
    assert check("layouts", approved({})) == (0, [])


def test_comments_and_spacing_do_not_count(check, approved):
    text = "inline constexpr int kVersion = 1;\n\nstruct Header {\n  int a;  // pid\n};\n"
    assert check("layouts", approved({"src/log/log_layout.h": text})) == (0, [])


def test_a_changed_layout_needs_a_new_version(check, approved):
    text = TREE["src/log/log_layout.h"].replace("int a;", "long a;")
    assert check("layouts", approved({"src/log/log_layout.h": text})) == \
        (1, ["tests/golden/layouts.txt: the layout of log changed and is still version 1"])


def test_a_new_version_must_be_listed_and_documented(check, approved):
    root = approved({"src/trace/format.h": "inline constexpr int kTraceVersion = 4;\n"})
    assert check("layouts", root) == (1, [
        "src/trace/FORMAT.md: no row for version 4",
        "tests/golden/layouts.txt: trace 4 is not listed (check_layouts.py --approve)"])
    approved({"src/trace/FORMAT.md": TREE["src/trace/FORMAT.md"] + "| 4 | next |\n"})
    assert check("layouts", "--approve", root) == (0, [])
    assert check("layouts", root) == (0, [])


@pytest.mark.parametrize("kinds, expected", [
    ("EVENT_KIND(device_alloc, 1, driver)\n", "src/event/event_kinds.def: id 40 (alloc) is gone"),
    ("EVENT_KIND(pool_trim, 1, driver)\nEVENT_KIND(alloc, 40, block)\n",
     "src/event/event_kinds.def: id 1 was device_alloc and is now pool_trim"),
])
def test_wire_ids_are_for_ever(check, approved, kinds, expected):
    assert check("layouts", approved({"src/event/event_kinds.def": kinds})) == (1, [expected])


def test_a_new_kind_must_be_listed(check, approved):
    kinds = TREE["src/event/event_kinds.def"] + "EVENT_KIND(oom, 47, block)\n"
    assert check("layouts", approved({"src/event/event_kinds.def": kinds})) == \
        (1, ["tests/golden/layouts.txt: event 47 is not listed (check_layouts.py --approve)"])
