"""fragscope sweep: every combination once, the best one, and taking up where it stopped."""

import json

import pytest

from conftest import one_line

MIB = 1 << 20


def sweep(fragscope, directory, *words, code=0):
    done = fragscope("sweep", "--json", "--gpu", "1GiB", "-o", directory, *words)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout), done.stderr.decode()


def steps(fragscope):
    return ["--", "sh", "-c", 'echo "speed {A}{B} steps/s"; exec "$0" alloc {A}000000 pinned {B}',
            *fragscope.steps()]


def test_every_combination_is_run_and_the_best_is_named(fragscope, tmp_path):
    answer, told = sweep(fragscope, tmp_path / "s", "--vary", "A=1,3", "--vary", "B=4096,8192",
                         "--metric", r"speed (\d+) steps", *steps(fragscope))
    rows = [(c["values"]["A"], c["values"]["B"]) for c in answer["combinations"]]
    assert rows == [("1", "4096"), ("1", "8192"), ("3", "4096"), ("3", "8192")]
    assert answer["best"] == 3 and told.count("running:") == 4
    last = answer["combinations"][3]["runs"][0]
    assert (last["metric"], last["exit_code"], last["pinned_peak_bytes"]) == (38192, 0, 8192)
    assert 3000000 <= last["driver_peak_bytes"] < 8 * MIB


def test_an_interrupted_sweep_is_taken_up(fragscope, tmp_path):
    words = ["--vary", "A=1,2", "--vary", "B=1", "--repeats", "2", *steps(fragscope)]
    first, _ = sweep(fragscope, tmp_path / "s", *words)
    (kept, *lost) = sorted((tmp_path / "s").glob("*.json"))
    for path in lost:
        path.write_text("{")  # cut
    again, told = sweep(fragscope, tmp_path / "s", *words)
    assert told.count("taken from an earlier sweep") == 1 and told.count("running:") == 3
    assert len(again["combinations"][0]["runs"]) == 2
    _, other = sweep(fragscope, tmp_path / "s", "--vary", "A=1,2", "--vary", "B=1", "--metric",
                     r"speed (\d+)", *steps(fragscope))
    assert "taken" not in other  # figures of another question
    assert kept.exists() and first["best"] is not None


def test_failed_runs_do_not_win(fragscope, tmp_path):
    answer, _ = sweep(fragscope, tmp_path / "s", "--vary", "CODE=3,0", "--", "sh", "-c",
                      '"$0" alloc 4096; exit {CODE}', *fragscope.steps())
    assert answer["best"] == 1
    answer, _ = sweep(fragscope, tmp_path / "t", "--vary", "CODE=3,4", "--", "sh", "-c",
                      '"$0" alloc 4096; exit {CODE}', *fragscope.steps(), code=1)
    assert answer["best"] is None


def test_steps_a_second_are_told_from_marks(fragscope, tmp_path):
    program = [fragscope.programs / "cuda_scenario", "", "alloc a 1; repeat {N}; mark step; free a; alloc a 1; end"]
    answer, _ = sweep(fragscope, tmp_path / "s", "--vary", "N=1,20", "--step-mark", "step", "--", *program)
    one, many = (c["runs"][0] for c in answer["combinations"])
    assert one["metric"] is None and many["metric"] > 0  # a single mark has no rate
    assert {"rss_peak_bytes", "shm_peak_bytes"} <= many.keys()  # null: over before the first look
    other, _ = sweep(fragscope, tmp_path / "t", "--vary", "N=20", "--step-mark", "epoch", "--", *program)
    assert other["combinations"][0]["runs"][0]["metric"] is None


def test_where_the_recordings_are_is_said_when_nobody_chose(fragscope):
    done = fragscope("sweep", "--gpu", "1GiB", "--vary", "A=4096", "--", *fragscope.steps("alloc", "{A}"),
                     cwd=fragscope.scratch, check=True)
    (directory,) = fragscope.scratch.iterdir()
    assert f"the recordings are in {directory.name}" in done.stderr.decode()


def test_a_command_that_does_not_run_is_one_clean_line(fragscope):
    done = fragscope("sweep", "-q", "--vary", "A=1", "--", "/no/such/program", "{A}", cwd=fragscope.scratch)
    assert "\\x0a" not in one_line(done.stderr) and "did not run" in one_line(done.stderr)


@pytest.mark.parametrize("words", [
    ["--", "true"], ["--vary", "A=1"], ["--vary", "A=1", "--", "true"],
    ["--vary", "A=1", "--metric", "(", "--", "echo", "{A}"],
    ["--vary", "A=1", "--metric", "none", "--", "echo", "{A}"],
    ["--vary", "A=1", "--metric", "(.)", "--step-mark", "x", "--", "echo", "{A}"],
    ["--vary", "A=1", "--repeats", "0", "--", "echo", "{A}"],
])
def test_usage(fragscope, words):
    done = fragscope("sweep", *words, cwd=fragscope.scratch)
    assert done.returncode == 2
    one_line(done.stderr)
    assert not list(fragscope.scratch.iterdir())
