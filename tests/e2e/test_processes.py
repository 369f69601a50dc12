"""Processes of one run: however they were made, each that touches CUDA has a trace, no other one has."""

import json
import os
import pathlib
import subprocess
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


REUSE = """
import ctypes, os, sys
for size in (3000, 3001):
    with open("/proc/sys/kernel/ns_last_pid", "w") as file:
        file.write("4000")
    child = os.fork()
    if child == 0:
        runtime = ctypes.CDLL(sys.argv[1])
        address = ctypes.c_void_p()
        error = runtime.cudaMalloc(ctypes.byref(address), size)
        os._exit(error + size - 3000)
    assert child == 4001, child
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == size - 3000
"""


def test_a_pid_that_comes_again_is_another_process(fragscope, build):
    """In a pid namespace of its own the next pid can be chosen, by those who may."""
    private = ["unshare", "--pid", "--fork", "--mount-proc"]
    allowed = subprocess.run([*private, "sh", "-c", "echo 4000 > /proc/sys/kernel/ns_last_pid"],
                             capture_output=True, check=False)
    if allowed.returncode != 0:
        pytest.skip("pids cannot be chosen here: " + allowed.stderr.decode().strip())
    directory = fragscope.new_directory()
    done = subprocess.run([*private, str(fragscope.path), "run", "--gpu", "1GiB", "-o", directory, "--", sys.executable,
                           "-c", REUSE, build / "lib/fragscope/sim/libcudart.so.13"],
                          env=fragscope.environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    traces = sorted(directory.glob("*.fst"))
    assert [trace.name.split("-")[0] for trace in traces] == ["4001", "4001"]
    each = [fragscope("events", "--jsonl", trace, check=True).stdout.splitlines() for trace in traces]
    sizes = [[json.loads(line)["size"] for line in lines] for lines in each]
    assert sorted(sizes) == [[3000], [3001]]


TRAIN = """
import os, sys
import torch
rank = int(os.environ.get("RANK", "0"))
x = torch.ones(1000 * (rank + 1), device="cuda")
if "RANK" in os.environ:
    torch.distributed.init_process_group("gloo")
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
print("rank", rank, "done", flush=True)
os._exit(0)
"""


def recorded_by_rank(fragscope, run):
    """Requested sizes of the first block, by process; each has blocks with exact sizes."""
    info = run.info()
    assert all(p["properties"]["block_source"] == "adaptor" for p in info["processes"]), info
    requested = {}
    for event in run.events():
        if event["kind"] == "alloc":
            requested.setdefault(event["pid"], event["requested"])
    return requested


@pytest.mark.torch
def test_torchrun_has_a_trace_for_each_rank_in_one_directory(fragscope, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    torchrun = pathlib.Path(sys.executable).with_name("torchrun")
    run = fragscope.record(torchrun, "--standalone", "--nproc-per-node", "2", script, gpu="2GiB")
    assert run.finished.returncode == 0, run.finished.stderr.decode()
    assert len(run.traces()) == 2  # none of the launcher's
    requested = recorded_by_rank(fragscope, run)
    assert sorted(requested.values()) == [4000, 8000]


@pytest.mark.torch
def test_the_torch_of_a_script_that_a_shell_starts_is_found(fragscope, tmp_path):
    (tmp_path / "train.py").write_text(TRAIN)
    shell = tmp_path / "train.sh"
    shell.write_text(f'cd "{tmp_path}" && python train.py\n')
    path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    run = fragscope.record("bash", shell, gpu="2GiB", env={"PATH": path})
    assert run.finished.stdout == b"rank 0 done\n", run.finished.stderr.decode()
    assert list(recorded_by_rank(fragscope, run).values()) == [4000]
