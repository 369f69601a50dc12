"""Other people's programs on the simulated GPU, recorded: their results are those without the
recorder, and the log has every call that the device served (tools/check_books.py).

Run by `make test-clients`, with the clients from cached virtual environments. CuPy, RMM and the
runtime bindings of cuda-python carry a CUDA runtime inside: they need a real GPU.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "fragscope"
PROGRAMS = pathlib.Path(__file__).resolve().parent / "programs"
TIMEOUT = 600


class Client:
    def __init__(self, build, root, venv, scratch):
        self.fragscope = build / "bin/fragscope"
        self.checker = root / "tools/check_books.py"
        self.python = CACHE / venv / "bin/python"
        self.scratch = scratch
        self.books, self.directory = scratch / "books.txt", scratch / "run.fsr"
        if not self.python.exists():
            pytest.fail(f"{self.python} is missing: run make test-clients")

    def run(self, *command, record, **variables):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("FRAGSCOPE_")} | variables
        how = ["--sim-log", self.books, "-o", self.directory] if record else ["--no-record"]
        command = [self.fragscope, "run", "-q", "--gpu", "8GiB", *how, "--", self.python, *command]
        return subprocess.run([str(word) for word in command], env=environment, text=True, check=False,
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT, cwd=self.scratch)

    def record(self, program, **variables):
        """Runs a program, checks its end and its books; the events."""
        done = self.run(PROGRAMS / program, record=True, **variables)
        assert done.returncode == 0 and done.stdout.endswith("done\n"), done.stdout + done.stderr
        self.check_books()
        return self.events()

    def check_books(self):
        done = subprocess.run([sys.executable, str(self.checker), str(self.directory), str(self.books),
                               "--fragscope", str(self.fragscope)], text=True, capture_output=True,
                              timeout=TIMEOUT, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert len(self.books.read_text(encoding="ascii").splitlines()) > 0

    def events(self):
        done = subprocess.run([str(self.fragscope), "events", "--jsonl", str(self.directory)], text=True,
                              capture_output=True, timeout=TIMEOUT, check=True)
        return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def client(build, root, tmp_path):
    return lambda venv: Client(build, root, venv, tmp_path)


def kinds(events):
    return {event["kind"] for event in events}


def test_driver_bindings(client):
    events = client("clients-venv").record("bindings_driver.py")
    assert kinds(events) >= {"device_alloc", "async_alloc", "managed_alloc", "pinned_alloc", "array_alloc",
                             "phys_create", "va_reserve", "va_map", "memory_info", "context_destroy"}
    failed = [e for e in events if e["result"]]
    assert [(e["kind"], e["result"], e["size"]) for e in failed] == [("device_alloc", 2, 1 << 50)]


def test_numba_arrays(client):
    events = client("clients-venv").record("numba_arrays.py")
    assert kinds(events) >= {"device_alloc", "device_free", "managed_alloc", "pinned_alloc", "pinned_free",
                             "context_destroy"}
    assert sorted(e["size"] for e in events if e["kind"] == "device_alloc") == [4000, 16000]


# numba's own tests of memory. Kernels do nothing on the simulated GPU, so some of them fail there;
# the recorder must not change which.
NUMBA_TESTS = """test_cuda_memory test_host_alloc test_managed_alloc test_pinned test_deallocations
    test_cuda_ndarray test_emm_plugins test_context_stack test_reset_device test_events test_streams
    test_select_device test_array_attr test_cuda_auto_context test_cuda_devicerecord""".split()


def outcomes(text):
    """"test_name (module.Class.test_name) ... ok" -> {name: outcome}"""
    return dict(re.findall(r"^(\w+ \([\w.]+\)).*? \.\.\. (ok|FAIL|ERROR|skipped)", text, re.M))


def test_numba_tests_of_memory(client):
    numba = client("clients-venv")
    command = ["-m", "unittest", "-v", *(f"numba.cuda.tests.cudadrv.{name}" for name in NUMBA_TESTS)]
    plain = outcomes(numba.run(*command, record=False).stderr)
    recorded = outcomes(numba.run(*command, record=True).stderr)
    passed = [name for name, outcome in plain.items() if outcome == "ok"]
    assert len(passed) > 100, plain
    assert recorded == plain
    numba.check_books()


# XLA asks for memory through VMM calls, plain cuMemAlloc or pools, by this variable.
@pytest.mark.parametrize("allocator, kind", [
    ("default", "phys_create"), ("platform", "phys_create"), ("cuda_async", "async_alloc")])
def test_jax(client, allocator, kind):
    events = client("clients-venv").record("jax_arrays.py", JAX_SKIP_CUDA_CONSTRAINTS_CHECK="1",
                                           XLA_PYTHON_CLIENT_ALLOCATOR=allocator)
    assert kind in kinds(events)
    if allocator == "default":  # three quarters of the card at once
        assert max(e["size"] for e in events if e["kind"] == kind) == 6 << 30


@pytest.fixture
def empty_libraries(tmp_path):
    """TensorFlow wants these to be there; nothing here calls them."""
    compiler = next(c for c in ("g++", "g++-12", "clang++") if shutil.which(c))
    place = tmp_path / "libraries"
    place.mkdir()
    for name in ("libcufft.so.11", "libcusolver.so.11", "libcusparse.so.12", "libcudnn.so.9"):
        subprocess.run([compiler, "-shared", "-x", "c++", "/dev/null", "-o", str(place / name),
                        f"-Wl,-soname,{name}"], check=True)
    return str(place)


@pytest.mark.parametrize("allocator, kind", [("", "device_alloc"), ("cuda_malloc_async", "async_alloc")])
def test_tensorflow_counts_once(client, empty_libraries, allocator, kind):
    events = client("tensorflow-venv").record("tensorflow_arrays.py", TF_GPU_ALLOCATOR=allocator,
                                              LD_LIBRARY_PATH=empty_libraries, TF_CPP_MIN_LOG_LEVEL="3")
    assert kind in kinds(events)
    addresses = [e["address"] for e in events if e["kind"] == kind and e["result"] == 0]
    live = set()
    for event in events:  # the same memory is not handed out twice
        if event["kind"] == kind:
            assert event["address"] not in live
            live.add(event["address"])
        elif event["kind"] in ("device_free", "async_free"):
            live.discard(event["address"])
    assert addresses
