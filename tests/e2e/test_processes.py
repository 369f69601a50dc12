"""Processes of one run: however they were made, each that touches CUDA has a trace, no other one has."""

import pathlib
import sys

import pytest

PROGRAM = pathlib.Path(__file__).parent / "programs/python_children.py"


def record(fragscope, build, way):
    run = fragscope.record(sys.executable, PROGRAM, build / "lib/fragscope/sim/libcudart.so.13", way)
    assert run.finished.returncode == 0, run.finished.stderr.decode()
    return run


@pytest.mark.parametrize("way", ["spawn", "forkserver", "fork", "posix_spawn", "subprocess"])
def test_children_have_traces_of_their_own(fragscope, build, way):
    run = record(fragscope, build, way)
    allocs = [e for e in run.events() if e["kind"] == "device_alloc"]
    assert sorted(e["size"] for e in allocs) == [3000, 3001]
    assert len({e["pid"] for e in allocs}) == len(run.traces()) == 2  # the parent made no CUDA call


def test_children_without_cuda_leave_nothing(fragscope, build):
    run = record(fragscope, build, "idle")
    assert run.finished.stdout == b"quiet\n"
    assert [e["size"] for e in run.events() if e["kind"] == "device_alloc"] == [2999]
    assert len(run.traces()) == 1 and not list(run.directory.glob("*.fslog"))
