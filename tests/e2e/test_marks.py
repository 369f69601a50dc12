"""Marks and ranges: the Python module, the C API, NVTX."""

import json
import os
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


def test_the_installed_module_is_found_where_it_is_documented(build, tmp_path):
    """`make install` puts it below lib/fragscope/python, on nobody's path by itself."""
    subprocess.run(["cmake", "--install", build, "--prefix", tmp_path], check=True, capture_output=True)
    say = "import fragscope; print(fragscope.__file__, fragscope.active())"
    place = tmp_path / "lib/fragscope/python"
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    found = subprocess.run([sys.executable, "-c", say], env=env | {"PYTHONPATH": str(place)}, cwd=tmp_path,
                           capture_output=True, check=True, text=True)
    assert found.stdout == f"{place}/fragscope/__init__.py False\n"
    assert not list(place.rglob("*.cpp")) and (tmp_path / "bin/fragscope").exists()
