"""nvidia-ml-py, gpustat and nvitop see who uses a simulated card, and that a killed process is gone."""

import json
import subprocess

import pytest

from test_clients import CACHE, PROGRAMS, TIMEOUT

MIB = 1 << 20


@pytest.fixture(scope="module")
def told(build):
    venv = CACHE / "monitors-venv"
    if not (venv / "bin/python").exists():
        pytest.fail(f"{venv} is missing: run make test-clients")
    command = [build / "bin/fragscope", "run", "-q", "--no-record", "--gpu", "a10g-24gb", "--", venv / "bin/python",
               PROGRAMS / "two_tenants.py", build / "tests/sim/sim_tenant_13", venv / "bin"]
    done = subprocess.run([str(word) for word in command], text=True, stdin=subprocess.DEVNULL, capture_output=True,
                          timeout=TIMEOUT, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_what_does_not_fit_beside_the_others_is_refused(told):
    assert told[0]["said"] == ["held", "held", "cudaErrorMemoryAllocation"]


def test_monitors_agree_on_both_processes(told):
    first, second = (str(pid) for pid in told[0]["pids"])
    seen = told[1]
    context = seen["nvml"][first] - 1000 * MIB
    assert context > 100 * MIB
    assert seen["nvml"][second] == context + 500 * MIB
    # The refused one holds its context, too.
    assert seen["used"] == sum(seen["nvml"].values()) == 3 * context + 1500 * MIB
    assert seen["gpustat"] == {pid: used // MIB for pid, used in seen["nvml"].items()}
    for pid in (first, second):
        assert f" {pid} " in seen["nvitop"]


def test_after_a_kill_the_memory_is_back(told):
    first = str(told[0]["pids"][0])
    before, after = told[1], told[2]
    assert first not in after["nvml"] and first not in after["gpustat"] and f" {first} " not in after["nvitop"]
    assert after["used"] == before["used"] - before["nvml"][first]
