"""The adaptor is attached inside PyTorch's own calls: no order of locks, profiler, collection of garbage
or constructor of a module may hang it or change what the trace adds up to."""

import json
import subprocess
import sys

import pytest

# Runs the function whose address the environment names, with the loader's lock held.
CONSTRUCTOR = """
#include <stdlib.h>
__attribute__((constructor)) static void allocate(void) {
  void (*call)(void) = (void (*)(void))strtoull(getenv("TEST_CALLBACK"), 0, 0);
  call();
}
"""

# Thread A makes the allocator's first request, in which the adaptor is attached, while thread B is in
# the constructor of a module and then asks the allocator for memory as well.
SCRIPT = """
import ctypes, gc, os, sys, threading
import torch
from torch.profiler import ProfilerActivity, profile

torch.cuda.init()
begin, entered, live = threading.Event(), threading.Event(), []
tid = 0

def warm_up():
    # PyTorch's own thread-local objects take the loader's lock when they are made.
    torch.empty(1)
    torch.cuda.current_stream()
    if hasattr(torch._C, "_cuda_getMemoryMetadata"):  # 2.10 and later; the tracker's, too
        torch._C._cuda_getMemoryMetadata()

def first():
    global tid
    warm_up()
    tid = threading.get_native_id()
    entered.set()
    begin.wait()
    live.append(torch.empty(1 << 20, dtype=torch.uint8, device="cuda"))

def look_at_a():
    # Gives A time, by work: it ends, or comes to stand where it waits.
    try:
        with open(f"/proc/self/task/{tid}/stat") as file:
            file.read()
    except OSError:
        pass

@ctypes.CFUNCTYPE(None)
def in_constructor():
    begin.set()
    for _ in range(2000):  # until A stands still: it is through, or waits for this thread
        if not a.is_alive():
            break
        look_at_a()
    live.append(torch.empty(2 << 20, dtype=torch.uint8, device="cuda"))

def garbage(phase, info):
    if phase == "start" and len(live) < 40:
        live.append(torch.empty(3 << 20, dtype=torch.uint8, device="cuda"))

a = threading.Thread(target=first)
with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
    a.start()
    entered.wait()
    os.environ["TEST_CALLBACK"] = str(ctypes.cast(in_constructor, ctypes.c_void_p).value)
    b = threading.Thread(target=lambda: (warm_up(), ctypes.CDLL(sys.argv[1])))
    b.start()
    a.join()
    b.join()
    gc.callbacks.append(garbage)
    for i in range(200):
        cycle = [torch.empty(4096 * (i + 1), dtype=torch.uint8, device="cuda")]
        cycle.append(cycle)
        del cycle
        if i % 7 == 0:
            gc.collect()
    gc.callbacks.remove(garbage)
    gc.collect()
seen = sum(event.name == "[memory]" for event in profiler.events())
stats = torch.cuda.memory_stats()
print(seen > 100, *(stats[f"{key}_bytes.all.{what}"] for key in ("allocated", "requested")
                    for what in ("peak", "current", "allocated", "freed")))
sys.stdout.flush()
os._exit(0)
"""


@pytest.fixture
def programs(build, tmp_path):
    compiler = (build / "compiler.txt").read_text().strip()
    source, library, script = tmp_path / "module.c", tmp_path / "module.so", tmp_path / "attach.py"
    source.write_text(CONSTRUCTOR)
    script.write_text(SCRIPT)
    subprocess.run([compiler, "-x", "c", "-shared", "-fPIC", "-o", library, source], check=True)
    return script, library


def run(build, programs, *options, python=sys.executable):
    done = subprocess.run([build / "bin/fragscope", "run", "-q", "--gpu", "4GiB", *options, "--", python,
                           "-W", "ignore", *programs], capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_constructor_that_allocates_while_another_thread_attaches(build, tmp_path, programs):
    out = tmp_path / "run.fsr"
    printed = run(build, programs, "-o", out)
    assert printed[0] == "True"  # the profiler had its reports
    plain = run(build, programs, "--no-record")
    assert printed[0] == plain[0]
    listing = subprocess.run([build / "bin/fragscope", "events", "--jsonl", out], capture_output=True,
                             text=True, check=True).stdout
    blocks = [event for event in map(json.loads, listing.splitlines()) if event["plane"] == "block"]
    total = {"size": 0, "requested": 0}
    peak, current, freed, live = dict(total), dict(total), dict(total), {}
    for event in blocks:
        if event["kind"] == "alloc":
            live[event["address"]] = event
        elif event["kind"] == "free_requested":
            event = live.pop(event["address"])
            for key in total:
                current[key] -= event[key]
                freed[key] += event[key]
            continue
        else:
            continue
        for key in total:
            total[key] += event[key]
            current[key] += event[key]
            peak[key] = max(peak[key], current[key])
    figures = [table[key] for key in ("size", "requested") for table in (peak, current, total, freed)]
    assert figures == [int(word) for word in printed[1:]]
    assert all(event["stream"] is not None for event in blocks)
