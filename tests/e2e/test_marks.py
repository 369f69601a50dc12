"""Marks and ranges: the Python module, the C API, NVTX."""

import json
import pathlib
import subprocess
import sys

import pytest

PROGRAM = pathlib.Path(__file__).parent / "programs/python_marks.py"


@pytest.fixture
def module_path(root):
    return {"PYTHONPATH": str(root / "tools/python")}


def runtime(build):
    return build / "lib/fragscope/sim/libcudart.so.13"


def marks(events):
    return [(e["kind"], e.get("text")) for e in events if e["plane"] == "mark"]


def test_python_marks_and_ranges(fragscope, build, module_path):
    run = fragscope.record(sys.executable, PROGRAM, runtime(build), env=module_path)
    assert run.finished.returncode == 0 and run.finished.stdout == b"True\n", run.finished.stderr
    step = [("range_push", "step é"), ("range_pop", None)]
    assert marks(run.events()) == [
        ("range_push", "outer"), *step, *step, ("mark", "x" * 1000), *step,
        ("range_push", "fails"), ("range_pop", None), ("range_pop", None), ("range_pop", None)]
    first = [e for e in run.events("--stacks") if e["kind"] == "range_push"][1]
    assert any(f["function"].endswith("<module>") for f in first["stack"] if f.get("python"))


def test_phases_of_the_report(fragscope, build, module_path):
    run = fragscope.record(sys.executable, PROGRAM, runtime(build), env=module_path)
    report = json.loads(fragscope("report", "--json", run.directory, check=True).stdout)
    phases = {p["name"]: p for p in report["processes"][0]["phases"]}
    assert [*phases] == ["outer", "step é", "fails"]
    assert (phases["outer"]["count"], phases["step é"]["count"]) == (1, 3)
    assert phases["outer"]["driver_peak_bytes"] == 1000 + 3 * 2000
    assert phases["outer"]["allocated_peak_bytes"] is None  # no framework's allocator
    text = fragscope("report", run.directory, check=True).stdout.decode()
    assert "phases named by the program" in text and "step é" in text


def test_without_the_recorder_nothing_happens(build, module_path, root):
    code = "import fragscope; fragscope.mark('a'); print(fragscope.active())\nwith fragscope.range('b'): pass"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=module_path, check=True)
    assert (done.stdout, done.stderr) == (b"False\n", b"")
