"""What a recording may cost: a ring of the newest events, no stacks of small memory, bounds of traces."""

import json
import os
import re
import signal

import pytest

SMALLEST_LOG = 2 * 16384 * 96  # two chunks: with a ring one for blobs, one for events
RING_EVENTS = 16384


def count(events, kind):
    return len([event for event in events if event["kind"] == kind])


def overwritten(info):
    return int(info["processes"][0]["properties"].get("log.overwritten_events", 0))


def preloaded(fragscope, directory, *steps, **variables):
    """Recorded by a plain preload: nobody reads the log while the program runs."""
    library = fragscope.path.parents[1] / "lib/libfragscope.so"
    env = {"LD_PRELOAD": str(library), "FRAGSCOPE_OUT": str(directory)} | variables
    inner = ["env", *(f"{key}={value}" for key, value in env.items()), *fragscope.steps(*steps)]
    return fragscope("run", "--no-record", "--gpu", "1GiB", "--", *inner)


def test_a_ring_keeps_the_newest_events_through_sigkill(fragscope):
    directory = fragscope.new_directory()
    done = preloaded(fragscope, directory, "alloc", 7777, "pairs", 30000, "alloc", 8888, "kill", 9,
                     FRAGSCOPE_RING="1", FRAGSCOPE_LOG_BYTES=str(SMALLEST_LOG))
    assert done.returncode == 128 + 9
    info = json.loads(fragscope("info", "--json", directory, check=True).stdout)
    [process] = info["processes"]
    assert process["properties"]["log.when_full"] == "ring"
    assert process["events"] == RING_EVENTS
    assert process["dropped_events"] == 0
    assert process["events"] + overwritten(info) == 2 * 30000 + 2
    events = [json.loads(line) for line in
              fragscope("events", "--jsonl", "--stacks", directory, check=True).stdout.splitlines()]
    assert events[-1]["size"] == 8888 and not any(event["size"] == 7777 for event in events)
    assert all(event["stack"] for event in events)  # stacks are not in the ring: none is lost
    text = fragscope("info", directory, check=True).stdout.decode()
    assert f"{overwritten(info)} events overwritten by newer ones" in text
    report = fragscope("report", directory, check=True).stdout.decode()
    assert "the recording begins in the middle of the run" in report and "peaks are lower bounds" in report
    assert f"{overwritten(info)} missing before the first event" in text


def test_without_a_ring_the_oldest_events_stay_and_the_rest_is_counted(fragscope):
    directory = fragscope.new_directory()
    preloaded(fragscope, directory, "alloc", 7777, "pairs", 30000, "alloc", 8888,
              FRAGSCOPE_LOG_BYTES=str(SMALLEST_LOG))
    info = json.loads(fragscope("info", "--json", directory, check=True).stdout)
    [process] = info["processes"]
    assert process["properties"]["log.when_full"] == "stop"
    assert process["events"] + process["dropped_events"] == 2 * 30000 + 2 and process["dropped_events"] > 0
    assert overwritten(info) == 0


@pytest.mark.parametrize("options", [(), ("--durable",)])
def test_a_ring_under_a_collector_counts_what_it_lost(fragscope, options):
    run = fragscope.record(*fragscope.steps("pairs", 30000, "alloc", 8888),
                           options=["--ring", "--log-bytes", str(SMALLEST_LOG), *options])
    assert run.finished.returncode == 0, run.finished.stderr.decode()
    info = run.info()
    [process] = info["processes"]
    assert process["events"] >= RING_EVENTS
    assert process["events"] + overwritten(info) + process["dropped_events"] == 2 * 30000 + 1
    assert run.events()[-1]["size"] == 8888
    told = "overwritten by newer ones" in run.finished.stderr.decode()
    assert told == (overwritten(info) > 0)


def test_a_recorder_that_lags_leaves_gaps_and_no_figure_is_called_a_bound(fragscope):
    """It stands still while the ring comes round: frees are lost between recorded events."""
    directory = fragscope.new_directory()
    process = fragscope.start("run", "--ring", "--log-bytes", str(SMALLEST_LOG), "--gpu", "1GiB", "-o", directory,
                              "--", *fragscope.steps("alloc", 7777, "pairs", 100, "wait", "free", "pairs", 30000,
                                                     "say", "done", "wait"))
    while process.stdout.readline() != b"waiting\n":
        pass
    while not (traces := list(directory.glob("*.fst"))):
        os.sched_yield()  # until the recorder has taken up the process
    fragscope("ctl", "flush", traces[0].name.split("-")[0], check=True)
    process.send_signal(signal.SIGSTOP)
    process.stdin.write(b"go\n")
    process.stdin.flush()
    assert [process.stdout.readline() for _ in range(2)] == [b"free -> error 0\n", b"done\n"]
    process.send_signal(signal.SIGCONT)
    _, said = process.communicate(b"go\n", timeout=60)
    info = json.loads(fragscope("info", "--json", directory, check=True).stdout)
    lost = overwritten(info)
    assert info["processes"][0]["properties"]["log.gaps"] == f"201:{lost}" and lost > 30000
    assert f"{lost} of them between recorded ones".encode() in said
    report = json.loads(fragscope("report", "--json", directory, check=True).stdout)["processes"][0]
    for words in (" ".join(report["notes"]), fragscope("replay", directory).stdout.decode(),
                  fragscope("report", directory, check=True).stderr.decode()):
        assert "may be too low or too high" in words and "lower bound" not in words
    text = fragscope("info", directory, check=True).stdout.decode()
    assert f"{lost} missing after event 201" in text


def test_replay_says_that_history_begins_in_the_middle(fragscope):
    directory = fragscope.new_directory()
    preloaded(fragscope, directory, "pairs", 30000, FRAGSCOPE_RING="1",
              FRAGSCOPE_LOG_BYTES=str(SMALLEST_LOG))
    words = fragscope("replay", directory).stdout.decode()
    assert re.search(r"\d+ events were overwritten by newer ones \(--ring\)", words)


def test_small_memory_has_events_and_no_stacks(fragscope):
    steps = fragscope.steps("alloc", 4096, "alloc", 1 << 20, "alloc", 2 << 20, "alloc", 1 << 40, "free")
    plain, run = fragscope.record(*steps), fragscope.record(*steps, options=["--min-size", "2MiB"])
    assert run.finished.stdout == plain.finished.stdout
    events, all_events = run.events("--stacks"), plain.events("--stacks")
    assert [(e["kind"], e["size"], e["result"]) for e in events] == [
        (e["kind"], e["size"], e["result"]) for e in all_events]
    allocs = {event["size"]: event["stack"] for event in events if event["kind"] == "device_alloc"}
    assert not allocs[4096] and not allocs[1 << 20]
    assert allocs[2 << 20] and allocs[1 << 40]
    assert all(event["stack"] for event in all_events)
    reports = [json.loads(fragscope("report", "--json", r.directory, check=True).stdout)["processes"][0]
               for r in (plain, run)]
    assert reports[0]["devices"][0]["driver_bytes"] == reports[1]["devices"][0]["driver_bytes"]
    assert any("2097152 bytes was recorded without call stacks" in note for note in reports[1]["notes"])
    text = fragscope("info", run.directory, check=True).stdout.decode()
    assert "of memory from 2097152 bytes on" in text


def test_min_size_of_a_plain_preload_takes_sizes_as_people_write_them(fragscope):
    directory = fragscope.new_directory()
    preloaded(fragscope, directory, "alloc", 4096, "alloc", 1 << 20, FRAGSCOPE_MIN_SIZE="1MiB")
    events = [json.loads(line) for line in
              fragscope("events", "--jsonl", "--stacks", directory, check=True).stdout.splitlines()]
    assert [bool(event["stack"]) for event in events] == [False, True]


def test_a_trace_has_a_bound_and_what_is_beyond_is_counted(fragscope):
    run = fragscope.record(*fragscope.steps("pairs", 400000), options=["--max-trace", "64KiB"])
    assert run.finished.returncode == 0, run.finished.stderr.decode()
    info = run.info()
    [process] = info["processes"]
    unwritten = int(process["properties"]["trace.unwritten_events"])
    assert unwritten > 0
    assert process["events"] + unwritten + process["dropped_events"] == 2 * 400000
    [trace] = run.traces()
    assert trace.stat().st_size < 2 << 20  # the bound, and a chunk
    assert f"{unwritten} events not written: the traces reached --max-trace" in run.finished.stderr.decode()
    assert f"{unwritten} events not written" in fragscope("info", run.directory, check=True).stdout.decode()
    [told] = json.loads(fragscope("report", "--json", run.directory, check=True).stdout)["processes"]
    assert any("--max-trace" in note for note in told["notes"])


@pytest.mark.parametrize("option", ["--min-size", "--max-trace"])
@pytest.mark.parametrize("value", ["", "0", "many", "-1"])
def test_bad_sizes_are_named(fragscope, option, value):
    done = fragscope("run", "--gpu", "1GiB", option, value, "--", "true")
    assert done.returncode == 2
    assert option.encode() in done.stderr and done.stderr.count(b"\n") == 1


def test_a_ring_survives_its_collector(fragscope):
    """The collector is killed in mid-run: trace and log together hold the newest events."""
    directory = fragscope.new_directory()
    process = fragscope.start("run", "--ring", "--log-bytes", str(SMALLEST_LOG), "--durable", "--gpu", "1GiB",
                              "-o", directory, "--", *fragscope.steps(
                                  "pairs", 100, "wait", "pairs", 30000, "alloc", 8888, "kill", 9))
    assert process.stdout.readline() == b"waiting\n"
    process.kill()
    process.wait()
    process.stdin.write(b"go\n")
    process.stdin.close()
    assert process.stdout.read() == b"alloc 8888 -> error 0\n"
    events = [json.loads(line) for line in
              fragscope("events", "--jsonl", directory, check=True).stdout.splitlines()]
    assert events[-1]["size"] == 8888
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    info = json.loads(fragscope("info", "--json", directory, check=True).stdout)
    assert info["processes"][0]["events"] + overwritten(info) == 200 + 60000 + 1
