"""tools/run_tests.py: what it adds up, and that silence is not success."""

import importlib.util
import os
import sys

import pytest


@pytest.fixture(scope="module")
def runner(root):
    spec = importlib.util.spec_from_file_location("run_tests", root / "tools/run_tests.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PASSED = '<testcase name="a"/>'
FAILED = '<testcase name="b"><failure message="x"/></testcase>'
BROKEN = '<testcase name="c"><error/></testcase>'
SKIPPED = '<testcase name="d"><skipped/></testcase>'


def write(path, cases):
    path.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>", encoding="utf-8")
    return path


def python(code):
    return [sys.executable, "-c", code]


def test_cases_are_counted_by_kind(runner, tmp_path):
    path = write(tmp_path / "junit.xml", PASSED * 3 + FAILED + BROKEN + SKIPPED)
    assert runner.count_junit(path) == (3, 2, 1)


@pytest.mark.parametrize("text", ["", "<testsuites>", "no xml"])
def test_a_broken_file_counts_nothing(runner, tmp_path, text):
    (tmp_path / "junit.xml").write_text(text, encoding="utf-8")
    assert runner.count_junit(tmp_path / "junit.xml") is None
    assert runner.count_junit(tmp_path / "missing.xml") is None


def test_a_tier_without_results_is_a_failure(runner, tmp_path):
    assert runner.run("silent", python("pass"), tmp_path / "junit.xml", os.environ) == (0, 1)


def test_an_empty_tier_is_a_failure(runner, tmp_path):
    assert runner.run("empty", python("pass"), write(tmp_path / "junit.xml", ""), os.environ) == (0, 1)


def test_a_bad_exit_code_is_a_failure_although_all_cases_passed(runner, tmp_path):
    path = write(tmp_path / "junit.xml", PASSED * 2)
    assert runner.run("odd", python("raise SystemExit(3)"), path, os.environ) == (2, 1)


def test_results_are_returned(runner, tmp_path):
    path = write(tmp_path / "junit.xml", PASSED * 2 + FAILED)
    assert runner.run("fine", python("raise SystemExit(1)"), path, os.environ) == (2, 1)
