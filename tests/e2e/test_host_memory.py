"""Memory of the host as `fragscope run` sees it: processes without CUDA too."""

import json
import os
import pathlib
import sys

import pytest

from conftest import Run

# A parent that makes CUDA calls through ctypes and a child that holds shared memory; both stay until
# the collector has seen the child.
PARENT = """
import ctypes, json, mmap, os, sys
driver = ctypes.CDLL("libcudart.so.12")
address = ctypes.c_void_p()
assert driver.cudaMalloc(ctypes.byref(address), 1 << 20) == 0
ready, told = os.pipe()
stay, leave = os.pipe()
child = os.fork()
if child == 0:
    os.close(leave)
    path = "/dev/shm/fragscope-test-%d" % os.getpid()
    with open(path, "w+b") as file:
        file.truncate(8 << 20)
        memory = mmap.mmap(file.fileno(), 8 << 20)
    os.unlink(path)
    memory[:] = bytes(8 << 20)
    os.write(told, b"x")
    os.read(stay, 1)
    os._exit(0)
os.read(ready, 1)
seen = False
while not seen:
    driver.cudaFree(None)
    path = sys.argv[1] + "/host.jsonl"  # made once the run records
    for line in open(path).read().splitlines() if os.path.exists(path) else ():
        entry = json.loads(line) if line.endswith("}") else {}
        seen = seen or any(row[3] for row in entry.get("by_process", ()))
os.close(leave)
os.waitpid(child, 0)
"""


def test_a_child_without_cuda_is_seen_and_has_no_trace(fragscope, tmp_path):
    directory = fragscope.new_directory()
    done = fragscope("run", "--gpu", "1GiB", "--sample-ms", "50", "-o", directory, "--", sys.executable, "-c",
                     PARENT, directory)
    assert done.returncode == 0, done.stderr.decode()
    info = json.loads(fragscope("info", "--json", directory, check=True).stdout)
    host = info["host_memory"]
    assert len(info["processes"]) == 1
    [child] = [p for p in host["processes"] if p["peak_shm_bytes"]]
    assert child["peak_shm_bytes"] == 8 << 20
    assert child["peak_rss_bytes"] >= 8 << 20
    assert not child["recorded"]
    [parent] = [p for p in host["processes"] if p["pid"] == child["parent_pid"]]
    assert parent["recorded"]
    assert parent["pid"] == info["processes"][0]["pid"]
    assert host["peak"]["shm_unlinked_bytes"] == 8 << 20
    assert host["peak"]["shm_bytes"] == 8 << 20
    text = fragscope("report", directory, check=True).stdout.decode()
    assert f"process {child['pid']} " in text
    assert "maps 8.00 MiB of /dev/shm" in text


def test_sampling_can_be_switched_off(fragscope):
    run = fragscope.record(*fragscope.steps("alloc", 1 << 20, "free"), options=["--sample-ms", "0"])
    assert run.finished.returncode == 0, run.finished.stderr.decode()
    assert run.info()["host_memory"] is None
    assert not list(run.directory.glob("host*.jsonl"))


def test_a_damaged_record_of_the_host_spoils_nothing_else(fragscope):
    run = fragscope.record(*fragscope.steps("alloc", 1 << 20, "free"), options=["--sample-ms", "0"])
    (run.directory / "host.jsonl").write_text('{"host_memory": 1, "interval_ns": 5}\nrubbish\n')
    done = fragscope("info", "--json", run.directory, check=True)
    assert b"host.jsonl:2: " in done.stderr
    assert json.loads(done.stdout)["processes"][0]["events"] > 0
    (run.directory / "host.jsonl").write_text('{"host_memory": 9, "interval_ns": 5}\n')
    assert b"use a newer fragscope" in fragscope("info", run.directory, check=True).stderr


LIMIT = 512 << 20


@pytest.fixture
def group():
    """A control group with a limit on memory, of either kind; skips where none can be made."""
    for parent, file in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        place = pathlib.Path(parent) / f"fragscope-test-{os.getpid()}"
        try:
            place.mkdir()
        except OSError:
            continue
        try:
            (place / file).write_text(str(LIMIT))
        except OSError:
            place.rmdir()
            continue
        yield place
        place.rmdir()
        return
    pytest.skip("no control group can be made here")


def test_the_limit_of_a_control_group_is_seen(fragscope, group):
    directory = fragscope.new_directory()
    runner = fragscope.start("run", "--gpu", "1GiB", "--sample-ms", "50", "-o", directory, "--", "bash", "-c",
                             f'echo $$ > {group}/cgroup.procs; exec "$@"', "bash",
                             *fragscope.steps("alloc", 4096, "wait"))
    seen = directory / "host.jsonl"
    while not (seen.exists() and f",{LIMIT}]" in seen.read_text()):
        assert runner.poll() is None
        os.sched_yield()
    runner.communicate(b"\n", timeout=60)
    run = Run(fragscope, directory, None)
    peak = run.info()["host_memory"]["peak"]
    assert peak["cgroup_limit_bytes"] == LIMIT
    assert 0 < peak["cgroup_used_bytes"] < LIMIT
    for command in ("info", "report"):
        text = fragscope(command, run.directory, check=True).stdout.decode()
        assert "of its limit of 512.00 MiB in use" in text
