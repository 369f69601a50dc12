"""check_words.py: machine paths, marks of unfinished work and waiting tests are noticed."""

import pytest


def test_the_tree_is_clean(check):
    assert check("words") == (0, [])


@pytest.mark.parametrize("name, text, expected", [
    ("README.md", "see /ho" + "me/someone/x", "README.md:1: path of one machine"),
    ("src/a.cpp", "\nopen(\"/wo" + "rk/x\")", "src/a.cpp:2: path of one machine"),
    ("src/a.cpp", "// TO" + "DO later", "src/a.cpp:1: mark of unfinished work"),
    ("tools/a.py", "raise Not" + "ImplementedError  # FIX" + "ME", "tools/a.py:1: mark of unfinished work"),
    ("tests/unit/a_test.cpp", "std::this_thread::sleep" + "_for(1s);", "tests/unit/a_test.cpp:1: a test waits by the clock"),
    ("tests/e2e/test_a.py", "time.sl" + "eep(1)", "tests/e2e/test_a.py:1: a test waits by the clock"),
    ("tests/e2e/programs/a.cpp", "sl" + "eep(1);", "tests/e2e/programs/a.cpp:1: a test waits by the clock"),
])
def test_a_planted_word_is_found(check, tree, name, text, expected):
    assert check("words", tree({name: text})) == (1, [expected])


@pytest.mark.parametrize("name, text", [
    ("src/a.cpp", "std::this_thread::sleep" + "_for(1ms);  // the collector waits"),
    ("tests/bench/a.cpp", "usl" + "eep(10);"),
    ("README.md", "~/.cache/fragscope and /usr/local/cuda and ${HOME}/work/x"),
    ("tests/unit/a_test.cpp", "TEST_CASE(\"a sleeping thread\")"),
])
def test_what_is_allowed_passes(check, tree, name, text):
    assert check("words", tree({name: text})) == (0, [])
