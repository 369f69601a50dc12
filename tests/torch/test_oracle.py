"""The allocator model against the real libc10_cuda of the installed torch, without a GPU."""

import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "oracle"))
import wheels  # noqa: E402

GOLDEN = sorted((ROOT / "tests" / "golden" / "model").glob("*.txt"))


@pytest.fixture(scope="module")
def version():
    newest = wheels.newest_installed()
    if newest is None:
        pytest.skip("no CUDA build of a known torch release is installed")
    return newest


@pytest.fixture(scope="module")
def oracle(version):
    return wheels.build(wheels.find(version))


def header(text, name):
    match = re.search(rf"^#! {name} (.*)$", text, re.MULTILINE)
    return match.group(1) if match else ""


def test_golden_lists_get_the_same_answers_from_the_library(oracle, version):
    checked = 0
    for path in GOLDEN:
        text = path.read_text(encoding="utf-8")
        if version not in header(text, "torch").split():
            continue
        answer = subprocess.run([oracle, "annotate", path], env=wheels.environment(header(text, "alloc-conf")),
                                stdout=subprocess.PIPE, text=True, check=True).stdout
        assert answer == text, path.name
        checked += 1
    assert checked >= 5


def test_random_lists_get_the_same_answers(oracle, version):
    done = subprocess.run([ROOT / "tests/oracle/fuzz", "--torch", version, "--lists", "12"],
                          stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count(" 0 differences") >= 15


def test_answers_have_the_form_of_the_command_line(oracle, version, build, tmp_path):
    commands = tmp_path / "list.txt"
    commands.write_text("capacity 100MiB\nalloc a 60MiB\nfree a\nalloc b 101MiB 2\nempty_cache\n")
    library = subprocess.run([ROOT / "tests/oracle/run", commands, "--torch", version, "--json"],
                             stdout=subprocess.PIPE, text=True, check=True).stdout
    model = subprocess.run([build / "bin/fragscope", "model", commands, "--torch", version, "--json"],
                           stdout=subprocess.PIPE, text=True, check=True).stdout
    differing = set(library.splitlines()) ^ set(model.splitlines())
    assert {line.split(":")[0] for line in differing} == {'"allocator"', '"library"', '"build_id"'}


def test_a_wrong_rule_would_be_noticed(oracle, version):
    """The comparison itself: other settings in the library than in the model must differ."""
    environment = dict(wheels.environment("max_split_size_mb:21"), FRAGSCOPE_ORACLE_MODEL_SETTINGS="")
    done = subprocess.run([oracle, "fuzz", "--lists", "2"], env=environment, stdout=subprocess.PIPE, text=True,
                          check=False)
    assert done.returncode == 1
    assert "model:" in done.stdout and "library:" in done.stdout
