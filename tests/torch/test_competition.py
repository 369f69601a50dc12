"""Two processes of stock PyTorch on one simulated card: one gets the message that names the other's use,
monitors see both, and a killed process's memory is back."""
import json
import os
import pathlib
import subprocess
import sys

import pytest

pytestmark = pytest.mark.torch
PROGRAM = pathlib.Path(__file__).with_name("competing.py")
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "fragscope"
MONITORS = CACHE / "monitors-venv/bin"
MIB, GIB = 1 << 20, 1 << 30


@pytest.fixture(scope="module")
def steps(build, tmp_path_factory):
    pytest.importorskip("torch")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("FRAGSCOPE_", "PYTORCH_"))}
    if (MONITORS / "nvitop").exists():
        environment["FRAGSCOPE_MONITORS"] = str(MONITORS)
    directory = tmp_path_factory.mktemp("competition")
    done = subprocess.run([build / "bin/fragscope", "run", "--gpu", "a10g-24gb", "--stacks", "none", "-o",
                           directory / "run.fsr", "--", sys.executable, PROGRAM],
                          env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report = subprocess.run([build / "bin/fragscope", "report", "--json", directory / "run.fsr"],
                            capture_output=True, check=True).stdout
    return [json.loads(line) for line in done.stdout.splitlines()] + [json.loads(report)]


def test_the_message_names_the_other_process_and_its_use(steps):
    first, refused = steps[0], steps[1]
    assert first["refused"] is None and first["reserved"] == 10 * GIB
    context = first["used"] - first["reserved"]
    assert refused["used"] == first["used"] + context  # both contexts, and the first's memory
    assert "CUDA out of memory. Tried to allocate 15.00 GiB." in refused["refused"]
    assert f"Process {first['pid']} has {first['used'] / GIB:.2f} GiB memory in use." in refused["refused"]


def test_after_a_kill_the_memory_is_back(steps):
    first, refused, served = steps[0], steps[1], steps[3]
    assert served["refused"] is None and served["reserved"] == 15 * GIB
    assert served["used"] == refused["used"] - first["used"] + 15 * GIB


def test_the_recording_agrees_with_both(steps):
    found = {process["pid"]: process for process in steps[5]["processes"]}
    first, second = found[steps[0]["pid"]], found[steps[1]["pid"]]
    assert first["devices"][0]["reserved_bytes"]["peak"] == 10 * GIB
    assert second["devices"][0]["reserved_bytes"]["peak"] == 15 * GIB
    assert len(second["devices"][0]["ooms"]) == 1
    assert first["exit"] == {"kind": "signaled", "code": 9}


def test_monitors_see_both_and_then_one(steps):
    if steps[2] is None:
        pytest.skip(f"{MONITORS} is missing: make test-clients installs nvitop and gpustat there")
    first, second, before, after = steps[0], steps[1], steps[2], steps[4]
    context = first["used"] - first["reserved"]
    assert before["processes"] == {str(first["pid"]): first["used"] // MIB, str(second["pid"]): context // MIB}
    assert before["used_mib"] == second["used"] // MIB
    assert all(f" {step['pid']} " in before["nvitop"] for step in (first, second))
    assert after["processes"] == {str(second["pid"]): steps[3]["used"] // MIB}
    assert f" {first['pid']} " not in after["nvitop"] and f" {second['pid']} " in after["nvitop"]
