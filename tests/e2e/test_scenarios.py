"""fragscope explain RUN names the planted cause of every scenario of tests/scenarios."""

import json

import pytest

from scenarios import expected, scenarios, told


@pytest.mark.parametrize("scenario", scenarios("program"), ids=lambda s: s.name)
def test_the_planted_cause_is_named(fragscope, tmp_path, scenario):
    options = []
    if scenario.script:
        options = ["--sim-script", tmp_path / "script.txt"]
        options[1].write_text(scenario.script + "\n")
    program = fragscope.programs / "cuda_scenario"
    run = fragscope.record(program, scenario.settings, scenario.steps, gpu=scenario.gpu, options=options)
    assert run.finished.returncode == 0, run.finished.stderr
    assert b"refused" in run.finished.stdout
    answer = json.loads(fragscope("explain", "--json", run.directory, check=True).stdout)
    assert told(answer) == expected(scenario), answer["why"]
    parts = {key: value for key, value in answer["bytes"].items() if key != "total_bytes"}
    if answer["bytes"]["elsewhere_bytes"] is not None and scenario.cause != "pinned":
        assert sum(value or 0 for value in parts.values()) == answer["bytes"]["total_bytes"]
