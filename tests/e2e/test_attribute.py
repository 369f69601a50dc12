"""fragscope attribute: the hand-checkable trace, sums, usage. Real loops: tests/torch."""

import json
import pathlib

import pytest

from conftest import one_line

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden"
TRACE = GOLDEN / "diagnose/attribution.trace"
MIB = 1 << 20


def attributed(fragscope, path):
    answer = json.loads(fragscope("attribute", "--json", path, check=True).stdout)
    (device,) = answer["processes"][0]["devices"]
    return device


def test_the_text_of_the_hand_checked_trace(fragscope):
    text = fragscope("attribute", TRACE, check=True).stdout.decode()
    assert text == (GOLDEN / "diagnose/attribution.out").read_text()


def test_its_figures_and_their_sums(fragscope):
    device = attributed(fragscope, TRACE)
    assert {name: share["bytes"] // MIB for name, share in device["roles"].items()} == {
        "parameters": 8, "gradients": 8, "optimizer_state": 16, "activations": 26, "inputs": 1, "workspace": 0,
        "temporary": 4, "unknown": 0}
    assert device["live_bytes"] == 63 * MIB
    for table in ("roles", "phases", "lifetimes"):
        assert sum(share["bytes"] for share in device[table].values()) == device["live_bytes"]
    for table in ("modules", "ranges", "outer_ranges", "stacks"):
        assert sum(share["bytes"] for share in device[table]) == device["live_bytes"]
    assert device["outside"] == [{"library": "the program", "bytes": 6 * MIB, "blocks": 1}]
    assert device["modules"][1]["name"] == "Net/Linear" and device["modules"][1]["line"] == 125
    assert device["steps"] == 2 and device["requested_bytes"] == device["live_bytes"] - 8 * MIB + 8388000


def test_a_program_with_its_own_allocator(fragscope):
    run = fragscope.record(fragscope.programs / "cuda_scenario", "",
                           "outside 40; keep weights 30; repeat 6; alloc a 10; free a; keep losses 3; end")
    device = attributed(fragscope, run.directory)
    # 30, five times 3 and 10 MiB; rests up to 1 MiB are not split off.
    assert 55 * MIB <= device["live_bytes"] == device["roles"]["unknown"]["bytes"] <= 57 * MIB
    assert [(o["library"], o["bytes"]) for o in device["outside"]] == [("the program", 40 * MIB)]
    assert device["churn"]["allocations"] == 13 and device["steps"] == 0


def test_runs_without_blocks_have_no_attribution(fragscope):
    run = fragscope.record(*fragscope.steps("alloc", 4096))
    done = fragscope("attribute", run.directory)
    assert done.returncode == 5
    one_line(done.stderr)


@pytest.mark.parametrize("words, code", [
    (["--pid", "1", TRACE], 2),
    (["--rows", "many", TRACE], 2),
    (["--rows", "0", TRACE], 2),
    (["--rows", "-3", TRACE], 2),
    (["no-such-run"], 3),
])
def test_usage(fragscope, words, code):
    done = fragscope("attribute", *words)
    assert done.returncode == code
    one_line(done.stderr)


def test_another_moment_than_the_peak(fragscope):
    """At the number of an event, at the end and at a refusal the tables tell that state."""
    peak = attributed(fragscope, TRACE)
    events = []
    for line in fragscope("events", TRACE, check=True).stdout.decode().splitlines():
        words = line.split()
        if len(words) > 4 and words[1].isdigit():
            fields = dict(word.split("=", 1) for word in words if "=" in word)
            kind = next(word for word in words[2:] if "=" not in word)
            events.append({"seq": int(words[1]), "kind": kind, "address": fields.get("address"),
                           "size": int(fields.get("size", 0))})
    live, levels = {}, {}
    for event in events:
        if event["kind"] == "alloc":
            live[event["address"]] = event["size"]
        if event["kind"] == "free_requested":
            live.pop(event["address"], None)
        levels[event["seq"]] = sum(live.values())
    assert levels[peak["seq"]] == peak["live_bytes"] == max(levels.values())
    for at in (str(peak["seq"] - 3), str(peak["seq"]), "end"):
        answer = json.loads(fragscope("attribute", "--json", "--at", at, TRACE, check=True).stdout)
        (device,) = answer["processes"][0]["devices"]
        assert answer["at"] == at and device["seq"] <= (events[-1]["seq"] if at == "end" else int(at))
        assert device["live_bytes"] == levels[device["seq"]]
        assert sum(share["bytes"] for share in device["roles"].values()) == device["live_bytes"]
    refused = json.loads(fragscope("attribute", "--json", "--at", "oom", GOLDEN / "replay/false_oom.trace",
                                   check=True).stdout)
    (device,) = refused["processes"][0]["devices"]
    assert device["live_bytes"] == 2 * MIB and device["reserved_bytes"] == 530 * MIB
    assert b"live at the last refusal" in fragscope("attribute", "--at", "oom", GOLDEN / "replay/false_oom.trace").stdout


@pytest.mark.parametrize("at, code", [("never", 2), ("-1", 2), ("oom", 5)])
def test_moments_that_are_none(fragscope, at, code):
    done = fragscope("attribute", "--at", at, TRACE)
    assert done.returncode == code, done.stderr
    one_line(done.stderr)


def test_an_event_that_is_not_recorded(fragscope):
    done = fragscope("attribute", "--at", "99999", TRACE)
    assert done.returncode == 1 and not done.stdout
    assert "event 99999 is not recorded: the last one is" in one_line(done.stderr)
