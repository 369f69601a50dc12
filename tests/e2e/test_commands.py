"""The commands that look at the machine: check, gpus, torch-adaptor, version; --help of all."""

import json
import os
import sys

import pytest

from conftest import one_line


def test_version(fragscope):
    words = fragscope("version", check=True).stdout.split()
    assert words[0] == b"fragscope" and words[1].count(b".") == 2
    assert fragscope("--version", check=True).stdout.split() == words


def test_help_names_every_command_and_the_exit_codes(fragscope):
    text = fragscope("--help", check=True).stdout.decode()
    for name in ("run", "info", "events", "report", "replay", "model", "check", "gpus",
                 "torch-adaptor", "version"):
        assert f"\n  {name} " in text
        assert fragscope(name, "--help", check=True).stdout
    assert "126 command not executable" in text


def test_gpus_lists_what_run_accepts(fragscope):
    gpus = json.loads(fragscope("gpus", "--json", check=True).stdout)["gpus"]
    table = fragscope("gpus", check=True).stdout.decode()
    assert len(gpus) > 5
    for gpu in gpus:
        assert gpu["id"] in table and gpu["total_bytes"] > gpu["context_bytes"] > 0
    run = fragscope.record(*fragscope.steps("alloc", 4096), gpu=gpus[0]["id"])
    device = run.info()["processes"][0]["devices"][0]
    assert device == {"index": 0, "name": gpus[0]["name"], "simulated": True,
                      "total_bytes": gpus[0]["total_bytes"]}


def test_check_says_yes_and_no(fragscope):
    yes = fragscope("check", "--gpu", "1GiB", "--json")
    answer = json.loads(yes.stdout)
    assert (yes.returncode, answer["can_record"]) == (0, True), yes.stdout
    states = {check["what"]: check["state"] for check in answer["checks"]}
    assert states["recorder"] == states["simulation"] == "ok" and "GPU" not in states
    no = fragscope("check", "--gpu", "no-such-card")
    assert no.returncode == 1
    assert b"missing  simulation" in no.stdout
    assert no.stdout.endswith(b"Runs with --gpu no-such-card cannot be recorded here.\n")
    told = fragscope("check", "--gpu", "1GiB", check=True).stdout
    assert told.endswith(b"Runs with --gpu 1GiB can be recorded here.\n")  # of the machine's own: nothing
    assert fragscope("check", "--gpu", "").returncode == 2


def test_check_without_a_gpu_says_what_works(fragscope):
    done = fragscope("check", "--json")
    answer = json.loads(done.stdout)
    states = {check["what"]: check["state"] for check in answer["checks"]}
    assert (done.returncode, answer["can_record"], answer["can_record_simulated"]) == (0, True, True)
    assert answer["can_record_gpu"] == (states["GPU"] == "ok")
    text = fragscope("check", check=True).stdout
    assert (b"simulated GPU (--gpu) only" in text) == (states["GPU"] != "ok")


def test_adaptor_cache_is_listed_and_cleaned(fragscope, tmp_path):
    env = {"FRAGSCOPE_TORCH_ADAPTOR_DIR": str(tmp_path / "adaptors")}
    assert fragscope("torch-adaptor", "list", env=env, check=True).stdout == b""
    assert b"removed 0 adaptors" in fragscope("torch-adaptor", "clean", env=env, check=True).stdout
    folder = tmp_path / "adaptors"
    folder.mkdir()
    (folder / "00ff.so").write_bytes(b"")
    (folder / "00ff.txt").write_text("torch=2.6.0+cu124\nsource=0\n")
    listed = fragscope("torch-adaptor", "list", env=env, check=True).stdout
    assert listed.startswith(b"00ff  torch 2.6.0+cu124  ")
    assert b"removed 1 adaptor " in fragscope("torch-adaptor", "clean", env=env, check=True).stdout
    assert not list(folder.glob("*.so")) and not list(folder.glob("*.txt"))


def test_adaptor_for_a_python_without_torch(fragscope, tmp_path):
    lonely = tmp_path / "python3"
    lonely.write_text(f"#!/bin/sh\nexec {sys.executable} -I -S \"$@\"\n")
    lonely.chmod(0o755)
    done = fragscope("torch-adaptor", "build", "--python", lonely)
    assert done.returncode == 1
    assert "has no torch" in one_line(done.stderr)
    missing = fragscope("torch-adaptor", "build", "--python", tmp_path / "none")
    assert missing.returncode == 3
    one_line(missing.stderr)


@pytest.mark.torch
def test_adaptor_is_built_once(fragscope, tmp_path):
    python = os.environ.get("FRAGSCOPE_TORCH_PYTHON") or sys.executable
    env = {"FRAGSCOPE_TORCH_ADAPTOR_DIR": str(tmp_path)}
    first = fragscope("torch-adaptor", "build", "--python", python, env=env, check=True)
    assert b"building the adaptor" in first.stderr
    again = fragscope("torch-adaptor", "build", "--python", python, env=env, check=True)
    assert again.stderr == b"" and again.stdout == first.stdout
