"""`fragscope plan` and `fragscope run --plan` on the simulated GPU: a plan needs less memory than the
cache, and no plan, however wrong, changes what a program gets."""

import json
import os

import pytest

from conftest import one_line


def train(fragscope, *words):
    return [str(fragscope.programs / "cuda_train"), *map(str, words)]


def peak(fragscope, run, figure="driver_bytes"):
    report = json.loads(fragscope("report", "--json", run.directory, check=True).stdout)
    return report["processes"][0]["devices"][0][figure]["peak"]


def ran(run, words=b"failed 0\n"):
    assert (run.finished.returncode, run.finished.stdout) == (0, words), run.finished.stderr


@pytest.fixture
def plan(fragscope, tmp_path):
    """A plan of cuda_train, and what `fragscope plan` says of it."""
    recorded = fragscope.record(*train(fragscope, 6), gpu="8GiB", options=("-q",))
    ran(recorded)
    path = tmp_path / "plan.json"
    answer = json.loads(fragscope("plan", "--json", "-o", path, recorded.directory,
                                  check=True).stdout)
    return path, answer


def test_a_plan_is_found_made_and_nearly_as_low_as_can_be(plan):
    path, answer = plan
    assert answer["made_from"]["found_by"] == "period"
    assert answer["made_from"]["step"]["requests"] == 24 * 4 + 48
    figures = answer["figures"]
    assert figures["placed_requests"] == figures["recorded_requests"] == 40 + 6 * 144
    assert figures["live_peak_bytes"] <= answer["arena_bytes"] <= 1.05 * figures["live_peak_bytes"]
    file = json.loads(path.read_text())
    assert file["fragscope_plan"] == 1 and len(file["requests"]) == answer["requests"]
    assert file["requests"][0] == {"size": 1024 * 1024 + 512, "offset": file["requests"][0]["offset"],
                                   "stream": 0, "lifetime": [0, None]} or \
        file["requests"][0]["lifetime"][0] == 0


def test_an_enforced_plan_takes_what_was_predicted_and_less_than_the_cache(fragscope, plan):
    path, answer = plan
    cached = fragscope.record(*train(fragscope, 6), gpu="8GiB",
                              options=("-q", "--enforce", "shim", "--max-split-size-mb", "20000"))
    planned = fragscope.record(*train(fragscope, 6), gpu="8GiB", options=("-q", "--plan", path))
    ran(cached)
    ran(planned)
    assert peak(fragscope, planned) == answer["arena_bytes"]
    assert peak(fragscope, planned) < 0.8 * peak(fragscope, cached)
    properties = planned.info()["processes"][0]["properties"]
    assert properties["enforce_plan"] == str(path)
    assert planned.info()["run"]["notes"]["enforce_plan"] == str(path)
    offered, placed = (int(properties["enforce_plan." + count]) for count in ("offered", "placed"))
    events = planned.events()
    assert offered == sum(e["kind"] == "alloc" for e in events)
    assert 0 < placed <= offered
    told = fragscope("info", planned.directory, check=True).stdout.decode()
    assert f"{path}: {placed} of {offered} requests got their place" in " ".join(told.split())
    kinds = [e["kind"] for e in events]
    assert kinds.count("device_alloc") == 1  # the arena


def test_requests_that_are_not_planned_are_served_all_the_same(fragscope, plan):
    path, answer = plan
    run = fragscope.record(*train(fragscope, 6, 3), gpu="8GiB", options=("-q", "--plan", path))
    ran(run)
    assert peak(fragscope, run) > answer["arena_bytes"]


def test_longer_and_foreign_programs_run_as_well(fragscope, plan):
    path, answer = plan
    longer = fragscope.record(*train(fragscope, 20), gpu="8GiB", options=("-q", "--plan", path))
    ran(longer)
    assert peak(fragscope, longer) == answer["arena_bytes"]
    foreign = fragscope.record(str(fragscope.programs / "cuda_caps"), "calls", "200",
                               options=("-q", "--plan", path))
    ran(foreign, b"." * 200 + b"\n")


def test_a_hostile_plan_makes_no_blocks_overlap(fragscope, plan, tmp_path):
    path, _ = plan
    file = json.loads(path.read_text())
    for request in file["requests"]:
        request["offset"] = 0  # all in one place
    hostile = tmp_path / "hostile.json"
    hostile.write_text(json.dumps(file))
    run = fragscope.record(*train(fragscope, 6), gpu="8GiB", options=("-q", "--plan", hostile))
    ran(run)
    live = {}
    for event in run.events():
        if event["kind"] == "alloc":
            begin, end = event["address"], event["address"] + event["size"]
            assert all(end <= b or e <= begin for b, e in live.values())
            live[begin] = (begin, end)
        if event["kind"] == "free_completed":
            live.pop(event["address"])


def test_an_arena_that_does_not_fit_is_given_up(fragscope, plan):
    path, answer = plan
    file = json.loads(path.read_text())
    file["arena_bytes"] = 64 * 2**30
    path.write_text(json.dumps(file))
    run = fragscope.record(*train(fragscope, 6), gpu="8GiB", options=("-q", "--plan", path))
    ran(run)


def test_the_whole_run_can_be_planned(fragscope, tmp_path):
    recorded = fragscope.record(*train(fragscope, 6, 2), gpu="8GiB", options=("-q",))
    path = tmp_path / "plan.json"
    none = fragscope("plan", "-o", path, recorded.directory)
    assert none.returncode == 1 and "--step whole" in one_line(none.stderr)
    assert not path.exists()
    fragscope("plan", "--step", "whole", "-o", path, recorded.directory, check=True)
    run = fragscope.record(*train(fragscope, 6, 2), gpu="8GiB", options=("-q", "--plan", path))
    ran(run)
    assert peak(fragscope, run) == json.loads(path.read_text())["arena_bytes"]


@pytest.mark.parametrize("content, code, words", [
    (None, 3, "No such file"),
    ("{}", 3, "not a plan"),
    ('{"fragscope_plan": 7}', 3, "version 7"),
    ('{"fragscope_plan": 1, "arena_bytes": 1, "requests": [{"size": 512, "offset": 0}]}', 3,
     "reaches out of the arena"),
])
def test_plans_that_cannot_be_followed_are_refused_before_the_command(fragscope, tmp_path, content,
                                                                      code, words):
    path = tmp_path / "plan.json"
    if content is not None:
        path.write_text(content)
    done = fragscope("run", "--gpu", "1GiB", "-o", fragscope.new_directory(), "--plan", path, "--",
                     "true")
    assert done.returncode == code and words in one_line(done.stderr)


def test_a_pipe_is_no_plan_and_nobody_waits_for_it(fragscope, tmp_path):
    os.mkfifo(tmp_path / "plan.json")
    done = fragscope("run", "--gpu", "1GiB", "-o", fragscope.new_directory(), "--plan",
                     tmp_path / "plan.json", "--", "true")
    assert done.returncode == 3 and "not a file" in one_line(done.stderr)


def test_options_that_contradict_a_plan(fragscope, plan):
    path, _ = plan
    for options in (("--enforce", "native"), ("--no-record",)):
        done = fragscope("run", "--gpu", "1GiB", "-o", fragscope.new_directory(), "--plan", path,
                         *options, "--", "true")
        assert done.returncode == 2 and "--plan" in one_line(done.stderr)
