"""fragscope fit: the largest value that fits each card, run and replayed."""

import json

import pytest

from conftest import one_line


def fit(fragscope, *words, code=0):
    done = fragscope("fit", "-q", "--json", "-o", fragscope.new_directory(), *words)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def hundreds_of_megabytes(fragscope):
    return ["sh", "-c", 'exec "$0" alloc {N}00000000', *fragscope.steps()]


def test_the_largest_value_by_bisection(fragscope):
    answer = fit(fragscope, "--vary", "N=1..64", "--gpus", "1GiB,2GiB", "--",
                 *hundreds_of_megabytes(fragscope))
    small, large = answer["rows"]
    assert (small["gpu"], small["largest"]["value"], small["largest"]["by"]) == ("1GiB", "10", "replay")
    assert (large["gpu"], large["largest"]["value"], large["largest"]["by"]) == ("2GiB", "21", "run")
    assert answer["runs"] < 25 and answer["replays"] > 0
    for row in answer["rows"]:
        assert {c["value"]: c["fits"] for c in row["cells"]}[str(int(row["largest"]["value"]) + 1)] is False
    # A replayed cell says what a run on that card says.
    run = fragscope.record(*fragscope.steps("alloc", 1000000000), gpu="1GiB")
    assert run.events()[0]["result"] == 0
    run = fragscope.record(*fragscope.steps("alloc", 1100000000), gpu="1GiB")
    assert run.events()[0]["result"] == 2


def test_settings_are_columns_and_what_was_refused_is_run_again(fragscope, build):
    train = build / "bin/fragscope-demo-train"
    answer = fit(fragscope, "--gpus", "8GiB,12GiB", "--alloc-conf", "max_split_size_mb:32", "--", train)
    rows = {(row["gpu"], row["alloc_conf"]): row["largest"] for row in answer["rows"]}
    assert rows["12GiB", ""] is None
    assert rows["12GiB", "max_split_size_mb:32"]["fits"]
    assert len(rows) == 4


def test_a_value_whose_first_request_is_refused_does_not_fit(fragscope, build):
    train = build / "bin/fragscope-demo-train"  # its allocator tells of the refusal itself
    answer = fit(fragscope, "--vary", "CARD=x", "--gpus", "2MiB", "--", "sh", "-c", "exec $0 # {CARD}",
                 train, code=1)
    assert answer["rows"][0]["cells"][0]["ooms"] >= 1


def test_a_card_s_context_is_taken_from_what_can_be_had(fragscope):
    answer = fit(fragscope, "--gpus", "a10g-24gb,rtx3060-12gb", "--", *fragscope.steps("alloc", 1 << 30))
    cards = {gpu["id"]: gpu for gpu in json.loads(fragscope("gpus", "--json", check=True).stdout)["gpus"]}
    for row in answer["rows"]:
        card = cards[row["gpu"]]
        assert row["largest"]["capacity_bytes"] == card["total_bytes"] - card["context_bytes"]
    assert [row["largest"]["by"] for row in answer["rows"]] == ["replay", "run"]


def test_nothing_fits_is_the_answer_no(fragscope):
    answer = fit(fragscope, "--vary", "N=20,30", "--gpus", "1GiB", "--",
                 *hundreds_of_megabytes(fragscope), code=1)
    (row,) = answer["rows"]
    assert row["largest"] is None and row["cells"][0]["ooms"] == 1


@pytest.mark.parametrize("words", [
    ["--gpus", "1GiB"], ["--vary", "N=1..2", "--", "true"], ["--vary", "1..2", "--", "true"],
    ["--vary", "N=2..1", "--", "echo", "{N}"], ["--vary", "N=1,,2", "--", "echo", "{N}"],
    ["--vary", "N=1..999999", "--", "echo", "{N}"], ["--gpus", "no-such-card", "--", "true"],
    ["--gpus", "1GiB", "--", "true"],
])
def test_usage(fragscope, words):
    done = fragscope("fit", "-q", *words, cwd=fragscope.scratch)
    assert done.returncode == 2 and done.stdout == b""
    one_line(done.stderr)
