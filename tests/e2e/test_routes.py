"""Every route by which a program can reach CUDA, on the simulated device: what the device served must
be in the recording, and each route's own allocation among it."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest


@pytest.fixture
def sim(build):
    return build / "lib/fragscope/sim"


def runtime_of(sim):
    return sorted(sim.glob("libcudart.so.*"))[-1]


@pytest.fixture
def routes(build, root, fragscope, sim, tmp_path):
    """routes(preload…) -> (what the program printed, the events, the comparison's text)."""

    def run(command, *before, after=(), **extra):
        books, out = tmp_path / "books.txt", tmp_path / "run.fsr"
        preload = [*before, build / "lib/libfragscope.so", *after]
        environment = fragscope.environment | {
            "LD_PRELOAD": ":".join(map(str, preload)), "FRAGSCOPE_OUT": str(out),
            "LD_LIBRARY_PATH": str(sim), "FRAGSCOPE_SIM": f"total_bytes={2**30};books={books}"} | extra
        done = subprocess.run([str(word) for word in command], env=environment, text=True,
                              capture_output=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        check = subprocess.run([sys.executable, str(root / "tools/check_books.py"), str(out), str(books),
                                "--fragscope", str(fragscope.path)], text=True, capture_output=True,
                               timeout=60, check=False)
        assert check.returncode == 0, check.stdout + check.stderr
        return done, out

    return run


def events_of(fragscope, out):
    listing = fragscope("events", "--jsonl", out, check=True).stdout
    return [json.loads(line) for line in listing.splitlines()]


def sizes(fragscope, out):
    return [e["size"] for e in events_of(fragscope, out) if e["kind"] in ("device_alloc", "async_alloc")]


ROUTES = ["dlsym of the oldest libc", "dlsym of this libc", "dlsym default", "dlsym next", "local", "dlvsym",
          "dlvsym of the oldest libc", "deepbind", "cuGetProcAddress", "cuGetProcAddress_v2",
          "cuGetProcAddress_v2 per thread", "cuGetProcAddress of cuGetProcAddress",
          "cudaGetDriverEntryPoint", "cudaGetDriverEntryPointByVersion"]


def routes_program(build, sim):
    return [build / "tests/sim/sim_routes", sim / "libcuda.so.1", runtime_of(sim)]


def worked(text):
    table = dict(line.rsplit(" ", 1) for line in text.splitlines())
    assert "error" not in text, text
    return table


def test_every_route_is_seen(build, fragscope, sim, routes):
    done, out = routes(routes_program(build, sim))
    table = worked(done.stdout)
    # cudaGetDriverEntryPoint left the runtime with CUDA 13.
    assert set(ROUTES) - set(table) <= {"cudaGetDriverEntryPoint"}
    assert sizes(fragscope, out) == [int(size) for size in table.values()]


@pytest.mark.parametrize("ours_first", [True, False])
def test_beside_a_preload_that_overrides_dlsym_too(build, fragscope, sim, routes, ours_first):
    other = build / "tests/sim/libsim_dlsym_preload.so"
    before, after = ([], [other]) if ours_first else ([other], [])
    done, out = routes(routes_program(build, sim), *before, after=after, COUNT_DLSYM="1")
    table = worked(done.stdout)
    assert sizes(fragscope, out) == [int(size) for size in table.values()]
    if not ours_first:  # behind us it is not asked for what we answer from the C library
        assert "asked for cuMemAlloc_v2" in done.stderr


def test_a_runtime_inside_the_program(build, fragscope, sim, routes):
    done, out = routes([build / "tests/sim/sim_static_runtime"])
    requests = int(done.stdout.split()[0])
    assert requests > 400 and done.stdout.endswith("0 failures\n")
    events = events_of(fragscope, out)
    assert [(e["api"], e["size"]) for e in events if e["kind"].endswith("_alloc")] == [
        ("cuMemAlloc_v2", 1111), ("cuMemAllocAsync", 2222), ("cuMemAllocAsync_ptsz", 3333),
        ("cuMemHostAlloc", 4444)]
    assert [e["stream"] for e in events if e["api"] == "cuMemFreeAsync_ptsz"] == [2]
    text = fragscope("report", "--no-stacks", out, check=True).stdout.decode()
    assert "runtime inside /proc/self/exe" in text
    # Old 32-bit ABIs, and nothing that this version does not know.
    unhooked = next(line for line in text.splitlines() if "passed through unhooked" in line)
    names = {word.strip().split()[0] for word in unhooked.split("unhooked:")[1].split(",")}
    assert {"cuMemAlloc", "cuMemFree"} <= names
    assert all(name in UNHOOKED_ABIS for name in names), names


# Requested by the program at versions before CUDA 3.2, or another process's memory.
UNHOOKED_ABIS = {"cuMemAlloc", "cuMemAllocPitch", "cuMemAllocHost", "cuMemFree", "cuMemGetInfo", "cuArrayCreate",
                 "cuArray3DCreate", "cuDeviceTotalMem", "cuCheckpointProcessCheckpoint",
                 "cuCheckpointProcessRestore"}


@pytest.mark.parametrize("major", [12, 13])
def test_a_table_that_the_loader_filled(build, fragscope, routes, major):
    program = build / f"tests/sim/sim_table_{major}"
    if not program.exists():
        pytest.skip(f"built without CUDA {major} headers")
    _, out = routes([program])
    assert sizes(fragscope, out) == [1234]


def test_the_vendors_own_static_runtime(build, fragscope, sim, tmp_path):
    """It finds its functions before it refuses our driver: they are hooks, and it is named. That it
    refuses is as it should be (the simulated driver does not pretend to be the vendor's)."""
    archives = sorted(pathlib.Path("/usr/local").glob("cuda*/lib64/libcudart_static.a"))
    compiler = shutil.which("g++") or shutil.which("clang++")
    if not archives or compiler is None:
        pytest.skip("no CUDA toolkit with libcudart_static.a on this machine")
    source, program = tmp_path / "static.cpp", tmp_path / "static"
    source.write_text(STATIC_PROGRAM)
    subprocess.run([compiler, str(source), "-o", str(program), str(archives[-1]), "-ldl", "-lrt", "-lpthread"],
                   check=True)
    out = tmp_path / "run.fsr"
    environment = fragscope.environment | {
        "LD_PRELOAD": str(build / "lib/libfragscope.so"), "FRAGSCOPE_OUT": str(out),
        "LD_LIBRARY_PATH": str(sim), "FRAGSCOPE_SIM": f"total_bytes={2**30}"}
    done = subprocess.run([str(program)], env=environment, text=True, capture_output=True, timeout=60, check=True)
    assert done.stdout == "runtime refused, driver 0\n"
    report = json.loads(fragscope("report", "--json", "--no-stacks", out, check=True).stdout)
    coverage = report["processes"][0]["coverage"]
    assert coverage["cudart_static"] == ["/proc/self/exe"]
    assert coverage["hooked"] > 40 and set(coverage["unhooked"]) <= UNHOOKED_ABIS


STATIC_PROGRAM = """
#include <dlfcn.h>
#include <cstdio>
extern "C" int cudaMalloc(void**, unsigned long);
int main() {
  void *block = nullptr, *context = nullptr;
  unsigned long long address = 0;
  const bool refused = cudaMalloc(&block, 100) != 0;
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"))(0);
  reinterpret_cast<int (*)(void**, int)>(dlsym(driver, "cuDevicePrimaryCtxRetain"))(&context, 0);
  reinterpret_cast<int (*)(void*)>(dlsym(driver, "cuCtxSetCurrent"))(context);
  const int result = reinterpret_cast<int (*)(unsigned long long*, unsigned long)>(
      dlsym(driver, "cuMemAlloc_v2"))(&address, 777);
  std::printf("runtime %s, driver %d\\n", refused ? "refused" : "worked", result);
}
"""


PROBE = """
import ctypes
everything = ctypes.CDLL(None)
everything.dlsym.restype = ctypes.c_void_p
everything.dlsym.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
everything.dlerror.restype = ctypes.c_char_p
for name in (b"cudaMalloc", b"cuMemAlloc_v2", b"cu", b"", b"printf"):
    found = everything.dlsym(None, name) is not None
    print(name, found, everything.dlerror(), hasattr(everything, name.decode() or "-"))
    try:
        everything[name.decode() or "-"]
    except AttributeError as error:
        print(error)
"""


def test_a_program_without_cuda_finds_none(build, tmp_path):
    """The recorder exports CUDA's names: who asks whether CUDA is there gets the answer of without it."""
    answers = []
    for variables in ({}, {"LD_PRELOAD": str(build / "lib/libfragscope.so"), "FRAGSCOPE_OUT": str(tmp_path / "r")}):
        done = subprocess.run([sys.executable, "-c", PROBE], env=dict(os.environ) | variables, check=True,
                              capture_output=True, text=True)
        answers.append(done.stdout)
    assert answers[0] == answers[1]
    assert "b'cudaMalloc' False" in answers[0] and "b'printf' True" in answers[0]
    assert "undefined symbol: cudaMalloc" in answers[1] and "libfragscope" not in answers[1]
    assert not (tmp_path / "r").exists()
