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
    assert changed(tool, "x = a ? b : 7;", "constant") == {"x = a ? b : 8;", "x = a ? b : 6;"}


def test_branches_and_statements(tool):
    assert "if ( !(a > b)) x();" in changed(tool, "if (a > b) x();", "branch")
    assert "y = !(a) ? b : c;" in changed(tool, "y = a ? b : c;", "branch")
    assert "y = std::max(a, b);" in changed(tool, "y = std::min(a, b);", "branch")
    body = "void f() {\n  g(1);\n  const int x = 1;\n  a.b += 2;\n}"
    assert changed(tool, body, "statement") == {body.replace("g(1);", ";"), body.replace("a.b += 2;", ";")}


def test_texts_and_comments_are_left_alone(tool):
    assert list(tool.mutants_of("x.cpp", '// a < 1 && b\nauto x = "a < 1 && b";\n#include <x>\n')) == []


def test_a_tuning_mark_covers_its_line_or_what_stands_below(tool):
    assert list(tool.mutants_of("x.cpp", "constexpr int kWalk = 64;  // tuning: when to turn\n")) == []
    below = "// tuning: how soon\nif (a > 64 &&\n    b > 2) {\n  x = 1;\n}\ny = 3;\n"
    assert changed(tool, below, "relational") == set()
    assert changed(tool, below, "constant") == {below.replace(*pair).strip() for pair in (("= 1", "= 2"), ("= 1", "= 0"), ("= 3", "= 4"), ("= 3", "= 2"))}
    assert changed(tool, "x = 1;  // tuning:\n", "constant") != set()  # without a reason it is none


def test_a_known_change_may_leave_parts_open(tool):
    left, right = tool.pattern("if (a) …(b *   2);"), tool.pattern("if (a) g(b * 2);")
    assert left.match("if (a) f(b * 2);") and left.match("if (a) (b * 2);")
    assert not left.match("if (a) f(b * 3);") and not left.match("if (a) f(b * 2); c();")
    assert right.match("if (a) g(b * 2);") and not right.match("if (a) g(bb 2);")


def test_every_listed_equivalent_is_a_change_that_the_tool_can_make(tool, root):
    known = tool.known_equivalents()
    assert known
    tool.ROOT = root
    for name in {each.file for each in known}:
        path = f"{tool.MODEL}/{name}"
        possible = [tool.changed_lines(m) for m in tool.mutants_of(path, (root / path).read_text(encoding="utf-8"))]
        for each in known:
            if each.file == name:
                assert any(each.before.match(before) and each.after.match(after) for before, after in possible), each
    assert all(len(each.why) > 20 for each in known)
