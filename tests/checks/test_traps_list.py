"""tests/e2e/TRAPS.md names tests that exist."""

import re

PYTHON = re.compile(r"`(\w+/\w+\.py)::(\w+)`")
UNIT = re.compile(r"`(unit/[\w/]+\.cpp): ([^`]+)`")


def missing(root, text):
    problems = []
    for name, function in PYTHON.findall(text):
        path = root / "tests" / name
        if not path.is_file() or f"def {function}(" not in path.read_text(encoding="utf-8"):
            problems.append(f"{name}::{function}")
    for name, case in UNIT.findall(text):
        path = root / "tests" / name
        if not path.is_file() or f'TEST_CASE("{case}' not in path.read_text(encoding="utf-8"):
            problems.append(f"{name}: {case}")
    return problems


def rows(text):
    return [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| trap")]


def test_every_named_test_exists(root):
    text = (root / "tests/e2e/TRAPS.md").read_text(encoding="utf-8")
    assert missing(root, text) == []
    assert len(rows(text)) > 45
    for row in rows(text):  # a test, or a sentence why there is none
        held_by = row.split("|")[2].strip()
        assert PYTHON.search(held_by) or UNIT.search(held_by) or len(held_by.split()) > 5, row


def test_a_test_that_is_gone_is_found(root):
    text = "| x | `e2e/test_books.py::test_no_such_thing` `unit/log/log_reader_test.cpp: no such case` |"
    assert missing(root, text) == ["e2e/test_books.py::test_no_such_thing",
                                   "unit/log/log_reader_test.cpp: no such case"]
