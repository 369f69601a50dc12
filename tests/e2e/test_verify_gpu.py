"""fragscope verify-gpu: two recordings of one command, and the whole of it where a card is there.

The card is a simulated one: what runs inside `fragscope run --gpu` sees a driver."""

import ctypes
import json
import subprocess

import pytest

from conftest import one_line


@pytest.fixture
def recorded(fragscope):
    def record(*steps):
        return fragscope.record(*fragscope.steps(*steps)).directory
    return record


def answer(done):
    return json.loads(done.stdout)


def test_the_same_command_twice_is_equal(fragscope, recorded):
    first, second = (recorded("alloc", 4 << 20, "alloc", 1 << 20, "free") for _ in range(2))
    done = fragscope("verify-gpu", "--json", first, second)
    assert done.returncode == 0
    told = answer(done)
    assert told["equal"] and told["devices"][0]["first_difference"] is None
    assert told["devices"][0]["requests"]["real"] == told["devices"][0]["requests"]["equal"] > 0


def test_a_simulated_run_is_not_called_real(fragscope, recorded):
    first, second = recorded("alloc", 4 << 20), recorded("alloc", 2 << 20)
    done = fragscope("verify-gpu", first, second)
    text = done.stdout.decode()
    assert done.returncode == 1
    assert text.startswith(f"first   {first}\nsecond  {second}\n")
    assert "simulated device, like the second: nothing here was compared with a real card" in text
    assert "first against" not in text and "second against first" in text
    assert "real " not in text.replace("a real card", "")


def test_another_request_is_named(fragscope, recorded):
    done = fragscope("verify-gpu", "--json", recorded("alloc", 4 << 20, "alloc", 1 << 20),
                     recorded("alloc", 4 << 20, "alloc", 2 << 20))
    assert done.returncode == 1
    device = answer(done)["devices"][0]
    assert device["requests"]["equal"] == 1
    assert "alloc 1048576" in device["first_difference"]["real"]
    assert "alloc 2097152" in device["first_difference"]["twin"]


def test_both_runs_where_there_is_a_card(fragscope, build, tmp_path):
    program = build / "bin/fragscope-demo-train"
    done = fragscope("run", "-q", "--gpu", "rtx4090-24gb", "-o", tmp_path / "outer.fsr", "--",
                     build / "bin/fragscope", "verify-gpu", "--json", "-o", tmp_path / "both", "--", program)
    told = answer(done)
    assert (done.returncode, told["equal"]) == (0, True), done.stderr
    info = subprocess.run([str(build / "bin/fragscope"), "info", "--json", str(tmp_path / "both/twin.fsr")],
                          stdout=subprocess.PIPE, check=True)
    assert b"NVIDIA GeForce RTX 4090" in info.stdout  # found by the recorded name


@pytest.mark.parametrize("arguments, code", [([], 2), (["one.fsr"], 2), (["a.fsr", "b.fsr", "--", "true"], 2),
                                             (["a.fsr", "b.fsr"], 3)])
def test_wrong_calls_are_one_line(fragscope, arguments, code):
    done = fragscope("verify-gpu", *arguments)
    assert done.returncode == code
    one_line(done.stderr)


def test_without_a_card_it_says_so(fragscope):
    try:
        ctypes.CDLL("libcuda.so.1")
        pytest.skip("this machine has a driver")
    except OSError:
        pass
    done = fragscope("verify-gpu", "--", "true")
    assert done.returncode == 1
    assert "skipped, no NVIDIA driver here" in one_line(done.stderr)
