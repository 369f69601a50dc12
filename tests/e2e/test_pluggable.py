"""libfragscope_alloc.so under stock PyTorch on the simulated GPU, beside PyTorch's own allocator."""

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.torch

WORK = """
import random, sys, torch
if "plug" in sys.argv[1]:
    import fragscope.torch
    fragscope.torch.enable(alloc_conf=sys.argv[2])
random.seed(3)
streams = [torch.cuda.default_stream()] + [torch.cuda.Stream() for _ in range(2)]
live, failures = [], 0
for step in range(1500):
    if not live or random.random() < 0.55:
        size = random.choice([random.randrange(1, 5000), random.randrange(1, 3 << 20),
                              random.randrange(1, 60 << 20)])
        with torch.cuda.stream(random.choice(streams)):
            try:
                live.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
            except torch.OutOfMemoryError as error:
                failures += str(error).startswith("CUDA out of memory. Tried to allocate")
                live.clear()
        if live and random.random() < 0.3:
            live[-1].record_stream(random.choice(streams))
    else:
        live.pop(random.randrange(len(live)))
    if step % 500 == 499:
        torch.cuda.empty_cache()
live.clear()
x = torch.ones(1000, 1000, device="cuda")
graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    y = x @ x
torch.cuda.current_stream().wait_stream(side)
with torch.cuda.graph(graph):
    y = x @ x
    z = y + 1
    del y
    y = x * 2
graph.replay()
del graph, y, z
torch.cuda.empty_cache()
print("failures", failures)
# How often a split came and went depends on the order in which PyTorch asks its streams' events.
print({key: value for key, value in torch.cuda.memory_stats().items()
       if "inactive_split" not in key or key.endswith("current")})
torch.cuda.reset_peak_memory_stats()
print(torch.cuda.memory_allocated(), torch.cuda.max_memory_reserved())
"""


@pytest.fixture
def torch_python():
    return os.environ.get("FRAGSCOPE_TORCH_PYTHON") or sys.executable


@pytest.fixture
def env(root):
    return {"PYTHONPATH": str(root / "tools/python"), "PYTHONWARNINGS": "ignore"}


def segments(run):
    """The driver plane: sizes and addresses of cudaMalloc and cudaFree, failures too."""
    return [(e["kind"], e["size"], e["address"], e["result"]) for e in run.events()
            if e["kind"] in ("device_alloc", "device_free")]


def blocks(run):
    """Which block each request got, and on which of the streams, in their order of appearance."""
    streams = {}
    return [(e["requested"], e["size"], e["address"],
             streams.setdefault(e["stream"], len(streams))) for e in run.events()
            if e["kind"] == "alloc"]


@pytest.mark.parametrize("settings", ["", "max_split_size_mb:32,roundup_power2_divisions:4"])
def test_segments_and_addresses_are_pytorchs(fragscope, torch_python, env, settings):
    native = fragscope.record(torch_python, "-c", WORK, "native", gpu="2GiB",
                              env=env | {"PYTORCH_CUDA_ALLOC_CONF": settings})
    served = fragscope.record(torch_python, "-c", WORK, "plug", settings, gpu="2GiB", env=env)
    assert native.finished.returncode == 0, native.finished.stderr.decode()
    assert served.finished.returncode == 0, served.finished.stderr.decode()
    assert served.finished.stdout == native.finished.stdout
    assert b"failures 0" not in native.finished.stdout
    assert segments(served) == segments(native)
    assert blocks(served) == blocks(native)
    assert len(blocks(native)) > 700
    properties = served.info()["processes"][0]["properties"]
    assert (properties["enforce"], properties["alloc_conf"]) == ("pluggable", settings)
    # The model predicts every block of the recording. (Not the order in which a flush gives segments
    # back: which pool they belong to is not told through fragscope_api.h.)
    answer = json.loads(fragscope("replay", "--json", served.directory, check=True).stdout)
    verify = answer["processes"][0]["devices"][0]["verify"]
    assert verify["address_matches"] == verify["block_events"] > 700, verify["first_divergence"]


def run_plain(fragscope, torch_python, build, env, script, *options):
    environment = {"FRAGSCOPE_ALLOC_LIBRARY": str(build / "lib/libfragscope_alloc.so")}
    return fragscope("run", "-q", "--no-record", "--gpu", "2GiB", *options, "--", torch_python, "-c",
                     script, env=env | environment)


def test_it_serves_without_the_recorder(fragscope, torch_python, build, env):
    done = run_plain(fragscope, torch_python, build, env, """
import torch, fragscope.torch as served
served.enable(max_split_size_mb=64)
kept = torch.empty(30 << 20, dtype=torch.uint8, device="cuda")
stats = served.memory_stats()
print(stats["allocated_bytes.all.current"] >> 20, stats["reserved_bytes.all.current"] >> 20)
torch.cuda.set_per_process_memory_fraction(0.02)
try:
    torch.empty(30 << 20, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError as error:
    print("40.96 MiB allowed" in str(error))
served.set_settings("max_split_size_mb:21")
try:
    served.set_settings("max_split_size_mb:many")
except ValueError as error:
    print(error)
""")
    lines = done.stdout.decode().splitlines()
    assert done.returncode == 0, done.stderr.decode()
    assert lines[:2] == ["30 30", "True"]
    assert lines[2].startswith("settings 'max_split_size_mb:many' are not accepted: ")


def test_impossible_sizes_fail_as_pytorch_does(fragscope, torch_python, build, env):
    script = """
import torch
torch.empty(1000, device="cuda")
for size in (2**60, 2**63 - 1, 2**60 - 1):
    try:
        torch.empty(size, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError as error:
        print(str(error).split(" GiB")[0])
"""
    enable = "import fragscope.torch as f; f.enable(alloc_conf='roundup_power2_divisions:4')"
    plain = run_plain(fragscope, torch_python, build, env, script)
    served = run_plain(fragscope, torch_python, build, env, enable + script)
    assert plain.stdout.count(b"more than 1EB memory") == 2, plain.stderr.decode()
    assert served.stdout == plain.stdout, served.stderr.decode()


@pytest.mark.parametrize("script, words", [
    ("import torch; torch.ones(1, device='cuda')\nimport fragscope.torch as f; f.enable()",
     "RuntimeError: CUDA is initialised already: call fragscope.torch.enable() before"),
    ("import fragscope.torch as f; f.enable(alloc_conf='expandable_segments:True')",
     "ValueError: settings 'expandable_segments:True' are not served"),
    ("import fragscope.torch as f; f.enable(max_split_size_mb=1)", "ValueError: settings "),
    ("import fragscope.torch as f; f.enable(); f.enable()", "RuntimeError: fragscope.torch.enable()"),
    ("import fragscope.torch as f; f.enable(max_split_size_mb='128')", "TypeError: max_split_size_mb"),
    ("import fragscope.torch as f; f.enable(max_split_size_mb=-3)",
     "ValueError: max_split_size_mb is a whole number of MiB, not -3"),
    ("import fragscope.torch as f; f.enable(max_split_size_mb=10**30)", "ValueError: settings "),
    ("import fragscope.torch as f; f.enable(alloc_conf=5)", "TypeError: alloc_conf is text such as"),
    ("import fragscope.torch as f; f.enable(alloc_conf='max_split_size_mb:64\\0,nothing:1')",
     "ValueError: settings 'max_split_size_mb:64\\x00,nothing:1' are not accepted: a NUL character"),
    ("import fragscope.torch as f; f.enable(); f.set_settings(5)", "TypeError: alloc_conf is text"),
    ("import fragscope.torch as f; f.enable(); f.memory_stats(5)",
     "RuntimeError: Invalid device argument 5: did you call init?"),
    ("import os; os.environ['FRAGSCOPE_ALLOC_LIBRARY'] = ''; os.environ['PATH'] = ''\n"
     "import fragscope.torch as f; f.enable()", "FileNotFoundError: libfragscope_alloc.so is not found"),
])
def test_misuse_is_named(fragscope, torch_python, build, env, script, words):
    done = run_plain(fragscope, torch_python, build, env, script)
    assert done.returncode == 1
    assert words in done.stderr.decode().splitlines()[-1]


def test_absent_devices_raise_as_in_pytorch(fragscope, torch_python, build, env):
    script = """
import torch
torch.empty(10, device="cuda")
for name in ("memory_stats", "memory_allocated", "max_memory_reserved", "reset_peak_memory_stats",
             "reset_accumulated_memory_stats", "memory_stats_as_nested_dict"):
    for device in (1, 7, "cuda:7"):
        try:
            print(name, device, getattr(torch.cuda, name)(device))
        except RuntimeError as error:
            print(name, device, str(error).split("argument")[0])
    getattr(torch.cuda, name)(0)
"""
    plain = run_plain(fragscope, torch_python, build, env, script)
    served = run_plain(fragscope, torch_python, build, env,
                       "import fragscope.torch as f; f.enable()" + script)
    assert plain.stdout.count(b"Invalid device") == 18, plain.stderr.decode()
    assert served.stdout == plain.stdout, served.stderr.decode()


def test_the_c_entry_points_alone(fragscope, torch_python, build, env):
    """PyTorch's own class, without the module; settings come from the environment."""
    script = """
import os, torch
memory = torch.cuda.memory
memory.change_current_allocator(memory.CUDAPluggableAllocator(
    os.environ["FRAGSCOPE_ALLOC_LIBRARY"], "fragscope_alloc_malloc", "fragscope_alloc_free"))
first = torch.empty(1000, device="cuda")
place = first.data_ptr()
del first
print(torch.empty(1000, device="cuda").data_ptr() == place)
"""
    good = run_plain(fragscope, torch_python, build, env, script)
    assert (good.returncode, good.stdout) == (0, b"True\n")
    bad = run_plain(fragscope, torch_python, build, env | {"FRAGSCOPE_ALLOC_CONF": "no_key:1"}, script)
    assert bad.returncode == 1
    assert "FRAGSCOPE_ALLOC_CONF: settings 'no_key:1' are not accepted" in bad.stderr.decode()


def test_a_block_waits_for_the_streams_that_use_it(fragscope, torch_python, build, env):
    """Events are late: 50 queries after its record one is not done."""
    sim = build / "lib/fragscope/sim"
    script = """
import torch, fragscope.torch
fragscope.torch.enable()
side = torch.cuda.Stream()
block = torch.empty(3 << 20, dtype=torch.uint8, device="cuda")
place = block.data_ptr()
with torch.cuda.stream(side):
    block.fill_(1)
block.record_stream(side)
del block
held = [torch.empty(3 << 20, dtype=torch.uint8, device="cuda") for _ in range(3)]
print(place in [b.data_ptr() for b in held])
side.synchronize()
print(torch.empty(3 << 20, dtype=torch.uint8, device="cuda").data_ptr() == place)
"""
    stand_ins = ":".join(str(sim / name) for name in
                         ("libcudart.so.13", "libcublas.so.13", "libcublasLt.so.13",
                          "libcudart.so.12", "libcublas.so.12", "libcublasLt.so.12"))
    done = subprocess.run([torch_python, "-c", script], capture_output=True, text=True, check=False,
                          env=fragscope.environment | env | {
                              "LD_PRELOAD": stand_ins, "LD_LIBRARY_PATH": str(sim),
                              "FRAGSCOPE_SIM": f"total_bytes={2**31};event_latency_queries=50",
                              "FRAGSCOPE_ALLOC_LIBRARY": str(build / "lib/libfragscope_alloc.so")})
    assert (done.returncode, done.stdout) == (0, "False\nTrue\n"), done.stderr


def test_the_settings_of_the_command_line_are_its_own(fragscope, torch_python, build, env):
    done = run_plain(fragscope, torch_python, build, env, """
import torch, fragscope.torch
fragscope.torch.enable()
block = torch.empty(30 << 20, dtype=torch.uint8, device="cuda")
print(torch.cuda.memory_stats()["max_split_size"] >> 20)
""", "--max-split-size-mb", "64")
    assert (done.returncode, done.stdout) == (0, b"64\n"), done.stderr.decode()


def test_pools_by_stream(fragscope, torch_python, build, env):
    """What torch 2.1 and 2.2 call for a capture, called by hand."""
    done = run_plain(fragscope, torch_python, build, env, """
import ctypes, os, torch
torch.cuda.init()
library = ctypes.CDLL(os.environ["FRAGSCOPE_ALLOC_LIBRARY"])
word, pointer = ctypes.c_uint64, ctypes.c_void_p
library.fragscope_alloc_malloc.restype = pointer
library.fragscope_alloc_malloc.argtypes = [ctypes.c_size_t, ctypes.c_int, pointer]
library.fragscope_alloc_free.argtypes = [pointer, ctypes.c_size_t, ctypes.c_int, pointer]
library.fragscope_alloc_begin_stream_pool.argtypes = [ctypes.c_int, pointer, word, word]
library.fragscope_alloc_end_stream_pool.argtypes = [ctypes.c_int, pointer]
side = torch.cuda.Stream().cuda_stream
def place(stream):
    block = library.fragscope_alloc_malloc(3 << 20, 0, stream)
    library.fragscope_alloc_free(block, 3 << 20, 0, stream)
    return block
main, other = place(0), place(side)
library.fragscope_alloc_begin_stream_pool(0, side, 0, 1)
print(place(0) == main, place(side) == other)
library.fragscope_alloc_end_stream_pool(0, side)
library.fragscope_alloc_end_stream_pool(0, side)
print(place(0) == main, place(side) == other)
""")
    assert (done.returncode, done.stdout) == (0, b"True False\nTrue True\n"), done.stderr.decode()
