"""The operators of tools/mutate_model.py, and its list of equivalents."""

import importlib
import sys

import pytest


@pytest.fixture
def tool(root, monkeypatch):
    monkeypatch.syspath_prepend(str(root / "tools"))
    sys.modules.pop("mutate_model", None)
    return importlib.import_module("mutate_model")


def changed(tool, source, operator):
    return {mutant.apply(source).strip() for mutant in tool.mutants_of("x.cpp", source) if mutant.operator == operator}


def test_comparisons_are_not_confused_with_templates(tool):
    assert changed(tool, "bool f(std::vector<int> a) { return a.size() < 3; }", "relational") == {
        "bool f(std::vector<int> a) { return a.size() <= 3; }", "bool f(std::vector<int> a) { return a.size() >= 3; }"}


def test_arithmetic_boolean_and_constants(tool):
    assert "x = a - b;" in changed(tool, "x = a + b;", "arithmetic")
    assert "--n;" in changed(tool, "++n;", "arithmetic")
    assert "if (a || b) x();" in changed(tool, "if (a && b) x();", "boolean")
    assert "if (a) x();" in changed(tool, "if (!a) x();", "boolean")
    assert changed(tool, "x = 10;", "constant") == {"x = 11;", "x = 9;"}
    assert changed(tool, "y = 0ull;", "constant") == {"y = 1ull;"}
    assert changed(tool, "uint8_t bits : 1;", "constant") == set()


def test_branches_and_statements(tool):
    assert "if ( !(a > b)) x();" in changed(tool, "if (a > b) x();", "branch")
    assert "y = !(a) ? b : c;" in changed(tool, "y = a ? b : c;", "branch")
    assert "y = std::max(a, b);" in changed(tool, "y = std::min(a, b);", "branch")
    body = "void f() {\n  g(1);\n  const int x = 1;\n  a.b += 2;\n}"
    assert changed(tool, body, "statement") == {body.replace("g(1);", ";"), body.replace("a.b += 2;", ";")}


def test_texts_and_comments_are_left_alone(tool):
    assert list(tool.mutants_of("x.cpp", '// a < 1 && b\nauto x = "a < 1 && b";\n#include <x>\n')) == []


def test_every_listed_equivalent_is_a_change_that_the_tool_can_make(tool, root):
    known = tool.known_equivalents()
    assert known
    tool.ROOT = root
    possible = set()
    for name in {name for name, _, _ in known}:
        path = f"{tool.MODEL}/{name}"
        for mutant in tool.mutants_of(path, (root / path).read_text(encoding="utf-8")):
            possible.add((name, *tool.changed_lines(mutant)))
    assert set(known) <= possible
    assert all(len(reason) > 20 for reason in known.values())
