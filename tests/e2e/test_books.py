"""The recorder against the simulated device's own books (tools/check_books.py): whatever the device
served is in the recording, by count, bytes, address and result; and with one hook taken out of the
library the comparison fails.
"""

import pathlib
import re
import subprocess
import sys

import pytest

from conftest import one_line

MAJORS = (12, 13)


def check_books(root, fragscope, run, books):
    command = [sys.executable, root / "tools/check_books.py", run, books, "--fragscope", fragscope.path]
    done = subprocess.run([str(word) for word in command], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, check=False, timeout=120)
    return done.returncode, done.stdout + done.stderr


def program(build, name):
    path = build / "tests/sim" / name
    if not path.exists():
        pytest.skip(f"{name}: built without the headers of that CUDA major")
    return path


@pytest.fixture
def recorded(root, fragscope, tmp_path):
    """recorded(command…) -> (exit code of the comparison, its text, the run)."""

    def record(*command, **options):
        books = tmp_path / "books.txt"
        run = fragscope.record(*command, options=("--sim-log", books), **options)
        assert run.finished.returncode == 0, run.finished.stderr.decode()
        return *check_books(root, fragscope, run.directory, books), run

    return record


@pytest.mark.parametrize("major", MAJORS)
@pytest.mark.parametrize("name, words", [
    ("every_call", ()), ("memory", ()), ("pools", ()), ("streams", ("0",)),
    ("runtime_calls", ()), ("runtime_calls", ("share",)), ("tenant", ("addresses", "3"))],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else value)
def test_nothing_that_was_served_is_missing(build, recorded, major, name, words):
    code, text, _ = recorded(program(build, f"sim_{name}_{major}"), *words)
    assert code == 0, text


@pytest.mark.parametrize("major", MAJORS)
def test_the_other_default_stream_is_covered(build, recorded, major):
    code, text, run = recorded(program(build, f"sim_every_call_{major}_ptds"))
    assert code == 0, text
    named = {e["api"]: e["stream"] for e in run.events() if e["kind"] in ("async_alloc", "async_free")}
    assert named["cuMemAllocAsync_ptsz"] == named["cuMemFreeAsync_ptsz"] == 2


def test_a_forked_test_run_of_every_process_is_compared(build, recorded):
    code, text, run = recorded(program(build, "sim_runtime_calls_13"), "share")
    assert code == 0, text
    assert len({e["pid"] for e in run.events()}) == 2


# --- one hook less

DRIVER_ROW = re.compile(r"^CUDA_HOOK\((\w+), driver, (\w+), \d+, (\w+),", re.M)
# Rows for which the program has no call that the device answers, and why.
UNEXERCISED = {
    "cuMemHostRegister": "older ABI of cuMemHostRegister_v2, same base",
    "cuMemMapArrayAsync": "sparse arrays are not simulated", "cuMulticastCreate": "not simulated",
    "cuMulticastBindMem": "not simulated", "cuMulticastBindAddr": "not simulated",
    "cuMulticastUnbind": "not simulated", "cuStreamCreate": "not in the books",
    "cuStreamCreateWithPriority": "not in the books", "cuMemGetInfo": "not in the books",
    "cuDeviceTotalMem": "an answer, no memory",
    "cuExternalMemoryGetMappedMipmappedArray": "not simulated",
    "cuDevicePrimaryCtxRelease": "the program's releases are not the last", "cuCtxCreate": "not in the books",
    "cuCtxDetach": "as cuCtxDestroy", "cuGraphInstantiate": "the name of older ABIs",
    "cuGraphAddNode": "the same node as cuGraphAddMemAllocNode's",
}


def without_hook(library, base, symbols, target):
    """A copy of the library in which the functions of one base have another name, in its symbol
    table and in its own tables: programs and look-ups no longer find their hooks."""
    data = pathlib.Path(library).read_bytes()
    for name in {base, *symbols}:
        old = b"\0" + name.encode() + b"\0"
        assert old in data
        data = data.replace(old, b"\0" + b"xx" + name.encode()[2:] + b"\0")
    target.write_bytes(data)
    return target


def driver_bases():
    text = (pathlib.Path(__file__).parents[2] / "shim/intercepts.def").read_text(encoding="utf-8")
    bases = {}
    for symbol, base, _ in DRIVER_ROW.findall(text):
        bases.setdefault(base, []).append(symbol)
    return bases


@pytest.mark.parametrize("base", sorted(set(driver_bases()) - set(UNEXERCISED)))
def test_a_missing_hook_is_noticed(build, root, fragscope, tmp_path, base):
    library = without_hook(build / "lib/libfragscope.so", base, driver_bases()[base],
                           tmp_path / "libfragscope.so")
    books, out = tmp_path / "books.txt", tmp_path / "run.fsr"
    environment = fragscope.environment | {
        "LD_PRELOAD": str(library), "FRAGSCOPE_OUT": str(out),
        "FRAGSCOPE_SIM": f"total_bytes={2**30};books={books}"}
    done = subprocess.run([program(build, "sim_every_call_13")], env=environment, text=True,
                          capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    code, text = check_books(root, fragscope, out, books)
    assert code == 1 and "not recorded" in text, text


def test_reasons_are_given_for_functions_that_exist_only():
    assert set(UNEXERCISED) <= set(driver_bases())


# --- the option and the checker

def test_a_sim_log_needs_a_simulated_device(fragscope, tmp_path):
    done = fragscope("run", "--sim-log", tmp_path / "books.txt", "--", "true")
    assert done.returncode == 2 and "add --gpu" in one_line(done.stderr)


def test_a_sim_log_that_cannot_be_written(fragscope, tmp_path):
    done = fragscope("run", "--gpu", "1GiB", "--sim-log", tmp_path / "no/books.txt", "--", "true")
    assert done.returncode != 0 and "no/books.txt" in one_line(done.stderr)


def test_a_sim_log_is_of_one_run(fragscope, build, tmp_path):
    books = tmp_path / "books.txt"
    books.write_text("old\n")
    fragscope("run", "--gpu", "1GiB", "--sim-log", books, "-o", tmp_path / "r.fsr", "--",
              *fragscope.steps("alloc", 1048576))
    lines = books.read_text().splitlines()
    assert lines and all(len(line.split()) == 6 for line in lines)


def test_events_that_nobody_served_are_noticed(build, recorded, root, fragscope, tmp_path):
    code, _, run = recorded(program(build, "sim_memory_13"))
    assert code == 0
    books = tmp_path / "books.txt"
    lines = books.read_text().splitlines(True)
    index = next(i for i, line in enumerate(lines) if "cuMemAlloc_v2 0x2" in line)
    books.write_text("".join(lines[:index] + lines[index + 1:]))
    code, text = check_books(root, fragscope, run.directory, books)
    assert code == 1 and "not served (1): pid" in text


def test_books_that_cannot_be_read(root, fragscope, tmp_path):
    (tmp_path / "books.txt").write_text("1 2 cuConjure 0x0 0 0\n")
    assert check_books(root, fragscope, tmp_path, tmp_path / "books.txt")[0] == 2
    assert check_books(root, fragscope, tmp_path, tmp_path / "none.txt")[0] == 2
