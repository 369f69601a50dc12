"""The planted causes of tests/scenarios with the real PyTorch: explain names each."""

import collections
import json
import pathlib
import subprocess
import sys

import pytest

from scenarios import expected, scenarios, told

PLAYER = pathlib.Path(__file__).with_name("play_scenario.py")


def groups():
    """Scenarios that can share a recording: one process each, one set of settings."""
    by_settings = collections.defaultdict(list)
    for scenario in scenarios("torch"):
        by_settings[scenario.gpu, scenario.settings, scenario.script].append(scenario)
    return by_settings


@pytest.mark.parametrize("key", groups(), ids=lambda key: " ".join(key))
def test_the_planted_causes_are_named(build, tmp_path, monkeypatch, key):
    gpu, settings, script = key
    played = groups()[key]
    if settings:
        monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", settings)
    listing, out = tmp_path / "list.jsonl", tmp_path / "run.fsr"
    listing.write_text("".join(json.dumps([s.name, s.steps]) + "\n" for s in played))
    options = []
    if script:
        (tmp_path / "script.txt").write_text(script + "\n")
        options = ["--sim-script", tmp_path / "script.txt"]
    done = subprocess.run([build / "bin/fragscope", "run", "-q", "--gpu", gpu, "-o", out, *options, "--",
                           sys.executable, "-W", "ignore", PLAYER, listing], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pids = {name: int(pid) for pid, name in (line.split(" ", 1) for line in done.stdout.splitlines())}
    answer = json.loads(subprocess.run([build / "bin/fragscope", "explain", "--json", out], check=True,
                                       capture_output=True).stdout)
    processes = {process["pid"]: process for process in answer["processes"]}
    wrong = {}
    for scenario in played:
        refusals = [m for m in processes[pids[scenario.name]]["moments"] if m["verdict"]]
        assert refusals, f"{scenario.name}: nothing was refused\n{done.stderr}"
        if told(refusals[-1]) != expected(scenario):
            wrong[scenario.name] = told(refusals[-1]), refusals[-1]["why"], refusals[-1]["bytes"]
    assert not wrong
