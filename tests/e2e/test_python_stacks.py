"""Python frames in recorded stacks, held against what the interpreter itself says, for every CPython
at hand: FRAGSCOPE_TEST_PYTHONS (paths separated by ':'), else those of pyenv, those that tools/pythons.sh
has fetched, and the one of the tests."""

import json
import os
import pathlib
import sys

import pytest

PROGRAM = pathlib.Path(__file__).parent / "programs/python_frames.py"


def interpreters():
    named = [p for p in os.environ.get("FRAGSCOPE_TEST_PYTHONS", "").split(":") if p]
    if named:
        return named
    root = pathlib.Path(os.environ.get("PYENV_ROOT") or pathlib.Path.home() / ".pyenv")
    found = [p for p in sorted(root.glob("versions/3.*/bin/python3")) if version_of(p) >= (3, 9)]
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    found += sorted(cache.glob("fragscope/pythons/bin/python3.*"))
    return [str(p) for p in found] + [sys.executable, "/usr/bin/python3"]


def version_of(path):
    return tuple(int(n) for n in path.parent.parent.name.split(".")[:2])


def python_frames(event):
    return [[f["function"], f["file"], f["line"]] for f in event["stack"] or [] if f.get("python")]


def name_of(path):
    return "/".join(pathlib.Path(path).parts[-3:])


@pytest.fixture(params=interpreters(), ids=name_of)
def python(request):
    if not pathlib.Path(request.param).exists():
        pytest.skip(f"no {request.param}")
    return request.param


def runtime(build):
    return build / "lib/fragscope/sim/libcudart.so.13"


def recorded(fragscope, build, python, *options, env=None):
    run = fragscope.record(python, PROGRAM, runtime(build), options=options, env=env)
    assert run.finished.returncode == 0, run.finished.stderr.decode()
    expected = {}
    for line in run.finished.stdout.decode().splitlines():
        size, frames = json.loads(line)
        expected[size] = frames
    events = {e["size"]: e for e in run.events("--stacks") if e["kind"] == "device_alloc"}
    return expected, events, run


def status(run):
    return run.info()["processes"][0]["properties"].get("python_stacks")


def test_frames_are_those_of_the_interpreter(fragscope, build, python):
    expected, events, run = recorded(fragscope, build, python, "--depth", "1000")
    assert status(run).startswith("cpython 3."), status(run)
    assert len(expected) > 100
    for size, frames in expected.items():
        assert python_frames(events[size]) == frames, size
        kinds = ["python" in frame for frame in events[size]["stack"]]
        assert kinds == sorted(kinds, reverse=True)  # Python first


def test_a_trampoline_of_perf_hides_no_frame(fragscope, build, python):
    """From 3.12 on with code of its own between the frames; older ones do not know the variable."""
    maps = pathlib.Path("/tmp")  # perf's place for them
    before = set(maps.glob("perf-*.map"))
    expected, events, _ = recorded(fragscope, build, python, env={"PYTHONPERFSUPPORT": "1"})
    for path in set(maps.glob("perf-*.map")) - before:
        path.unlink(missing_ok=True)
    assert len(expected) > 100
    for size, frames in expected.items():
        assert python_frames(events[size]) == frames[:128], size


def test_deep_stacks_are_cut_and_say_so(fragscope, build, python):
    expected, events, _ = recorded(fragscope, build, python, "--depth", "20")
    for size, frames in expected.items():
        assert python_frames(events[size]) == frames[:20]
        assert events[size].get("stack_truncated") or len(frames) <= 20


@pytest.mark.parametrize("kind", ["none", "native", "python", "both"])
def test_kinds_of_stacks(fragscope, build, kind):
    _, events, run = recorded(fragscope, build, sys.executable, "--stacks", kind)
    assert run.info()["processes"][0]["properties"]["stacks"] == kind
    first = events[1000]
    assert bool(python_frames(first)) == (kind in ("python", "both"))
    native = [f for f in first["stack"] or [] if f["address"] is not None]
    assert bool(native) == (kind in ("native", "both"))


def test_results_are_the_same_without_the_recorder(fragscope, build, python):
    def run(*options):
        done = fragscope("run", "--gpu", "1GiB", *options, "--", python, PROGRAM, runtime(build))
        return done.returncode, done.stdout
    assert run("--no-record") == run("-o", fragscope.new_directory())


def test_a_program_without_python_says_so(fragscope):
    run = fragscope.record(*fragscope.steps("alloc", 100))
    assert status(run) == "none: no CPython is loaded"


