"""Asking something of a recorded process from outside; collecting one that runs already."""

import json
import os
import pathlib
import subprocess

import pytest

from conftest import Run, one_line


@pytest.fixture
def started(fragscope):
    """A recorded process that waits twice: before and after it allocates 2000 bytes."""
    directory = fragscope.new_directory()
    runner = fragscope.start("run", "--gpu", "1GiB", "-q", "-o", directory, "--", *fragscope.steps(
        "alloc", 1000, "wait", "alloc", 2000, "wait", "alloc", 3000))
    lines = [runner.stdout.readline(), runner.stdout.readline()]
    assert lines[1] == b"waiting\n"
    pid = int(subprocess.run(["pgrep", "-P", str(runner.pid)], capture_output=True, check=True).stdout)
    yield runner, pid, directory
    runner.kill()
    runner.wait()


def go_on(runner):
    runner.stdin.write(b"\n")
    runner.stdin.flush()
    return [runner.stdout.readline(), runner.stdout.readline()]


def sizes(run):
    return [e["size"] for e in run.events() if e["kind"] == "device_alloc"]


def test_stop_and_start(fragscope, started):
    runner, pid, directory = started
    fragscope("ctl", "stop", pid, check=True)
    go_on(runner)
    answer = fragscope("ctl", "start", pid, check=True).stdout.decode()
    assert "1 events were not recorded" in answer
    runner.communicate(b"\n", timeout=60)
    run = Run(fragscope, directory, None)
    assert sizes(run) == [1000, 3000]
    assert run.info()["processes"][0]["properties"]["log.skipped_events"] == "1"
    texts = [e["text"] for e in run.events() if e["kind"] == "mark"]
    assert texts == ["fragscope: recording goes on; 1 events in all were not recorded"]


def test_mark_comes_before_the_next_event(fragscope, started):
    runner, pid, directory = started
    fragscope("ctl", "mark", pid, "hello é", check=True)
    again = fragscope("ctl", "mark", pid, "too soon")
    assert again.returncode == 1 and "has not been taken" in one_line(again.stderr)
    go_on(runner)
    fragscope("ctl", "mark", pid, "x" * 5000, check=True)
    runner.communicate(b"\n", timeout=60)
    seen = [(e["kind"], e.get("text", e["size"])) for e in Run(fragscope, directory, None).events()]
    assert seen == [("device_alloc", 1000), ("mark", "hello é"), ("device_alloc", 2000),
                    ("mark", "x" * 1000), ("device_alloc", 3000)]


def test_flush_puts_all_into_the_trace(fragscope, started):
    runner, pid, directory = started
    go_on(runner)
    fragscope("ctl", "flush", pid, check=True)
    (trace,) = directory.glob("*.fst")
    copy = directory.parent / "copy.fst"
    copy.write_bytes(trace.read_bytes())
    events = fragscope("events", "--jsonl", copy).stdout.splitlines()
    assert [json.loads(e)["size"] for e in events] == [1000, 2000]


def test_who_is_not_recorded(fragscope):
    for pid, words in ((os.getpid(), "is not recorded"), (2**22 - 1, "no process")):
        done = fragscope("ctl", "stop", pid)
        assert done.returncode == 3 and words in one_line(done.stderr)


def preloaded(fragscope, build, directory, *steps):
    sim = build / "lib/fragscope/sim"
    environment = fragscope.environment | {
        "LD_PRELOAD": str(build / "lib/libfragscope.so"), "LD_LIBRARY_PATH": str(sim),
        "FRAGSCOPE_SIM": "devices=1;total_bytes=1073741824", "FRAGSCOPE_OUT": str(directory)}
    process = subprocess.Popen(fragscope.steps(*steps), env=environment, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE)
    while process.stdout.readline() != b"waiting\n":
        assert process.poll() is None
    return process


def test_collect_a_running_process(fragscope, build):
    directory = fragscope.new_directory()
    process = preloaded(fragscope, build, directory, "alloc", 1000, "wait", "alloc", 2000, "kill", 9)
    collector = fragscope.start("collect", process.pid)
    assert b"collecting process" in collector.stderr.readline()
    while not list(directory.glob("*.fst")):
        os.sched_yield()
    second = fragscope("collect", process.pid)
    assert second.returncode == 1 and "has a collector already" in one_line(second.stderr)
    process.communicate(b"\n", timeout=60)
    assert collector.wait(timeout=60) == 0
    run = Run(fragscope, directory, None)
    assert sizes(run) == [1000, 2000]
    assert run.info()["run"]["sealed"] and not list(directory.glob("*.fslog"))


def test_collecting_can_be_stopped_and_taken_up_again(fragscope, build):
    directory = fragscope.new_directory()
    process = preloaded(fragscope, build, directory, "alloc", 1000, "wait", "alloc", 2000)
    collector = fragscope.start("collect", process.pid)
    while not list(directory.glob("*.fst")):
        os.sched_yield()
    collector.terminate()
    assert collector.wait(timeout=60) == 0
    assert sizes(Run(fragscope, directory, None)) == [1000]  # while it lives, without a collector
    process.communicate(b"\n", timeout=60)
    assert sizes(Run(fragscope, directory, None)) == [1000, 2000]


@pytest.fixture
def served(fragscope):
    """The same under --enforce=shim: 30 MiB twice."""
    directory = fragscope.new_directory()
    runner = fragscope.start(
        "run", "--gpu", "1GiB", "-q", "-o", directory, "--max-split-size-mb", "512", "--",
        *fragscope.steps("alloc", 30 << 20, "wait", "alloc", 30 << 20, "wait", "alloc", 1000))
    lines = [runner.stdout.readline(), runner.stdout.readline()]
    assert lines[1] == b"waiting\n"
    pid = int(subprocess.run(["pgrep", "-P", str(runner.pid)], capture_output=True, check=True).stdout)
    yield runner, pid, directory
    runner.kill()
    runner.wait()


def test_settings_change_with_the_next_allocation(fragscope, served):
    runner, pid, directory = served
    asking = fragscope.start("ctl", "set", "roundup_power2_divisions=2", pid)
    while b"roundup_power2_divisions" not in next_log(directory, pid):
        assert asking.poll() is None, asking.communicate()
    go_on(runner)
    out, err = asking.communicate(timeout=60)
    assert (asking.returncode, err) == (0, b"")
    assert out.decode() == f"process {pid} allocates with roundup_power2_divisions:2 from now on\n"
    refused = fragscope.start("ctl", "set", "max_split_size_mb=lots", pid)
    while b"max_split_size_mb:lots" not in next_log(directory, pid):
        assert refused.poll() is None
    runner.communicate(b"\n", timeout=60)
    _, err = refused.communicate(timeout=60)
    assert refused.returncode == 1
    assert "settings 'max_split_size_mb:lots' are not accepted" in one_line(err)
    run = Run(fragscope, directory, None)
    assert [e["size"] >> 20 for e in run.events() if e["kind"] == "alloc"][:2] == [30, 32]
    process = run.info()["processes"][0]
    assert process["properties"]["enforce"] == "shim"
    (change,) = process["settings_changes"]  # the refused one is none
    assert change["settings"] == "roundup_power2_divisions:2"
    (mark,) = [e for e in run.events() if e["kind"] == "mark"]
    assert (mark["text"], mark["seq"]) == (
        "fragscope: settings changed: roundup_power2_divisions:2", change["seq"])
    text = fragscope("info", directory, check=True).stdout.decode()
    assert f"changed while it ran to roundup_power2_divisions:2 from event {change['seq']} on" in text


def test_verify_follows_settings_that_changed(fragscope, served):
    runner, pid, directory = served
    asking = fragscope.start("ctl", "set", "roundup_power2_divisions=2", pid)
    while b"roundup_power2_divisions" not in next_log(directory, pid):
        assert asking.poll() is None, asking.communicate()
    runner.communicate(b"\n\n", timeout=60)
    assert asking.wait(timeout=60) == 0
    verified = fragscope("replay", "--strict", directory, check=True).stdout.decode()
    assert "3 of 3 block addresses (100.0 %)" in verified
    assert "settings were changed while the process ran: roundup_power2_divisions:2" in verified


def next_log(directory, pid):
    """The header of the process's log, where the request stands until it is taken."""
    path = subprocess.run(["find", "/dev/shm", "/tmp", str(directory), "-name", f"{pid}-*.fslog"],
                          capture_output=True, text=True, check=False).stdout.splitlines()
    return pathlib.Path(path[0]).open("rb").read(8192) if path else b""


def test_settings_of_a_process_that_enforces_none(fragscope, started):
    _, pid, _ = started
    done = fragscope("ctl", "set", "max_split_size_mb=128", pid)
    assert done.returncode == 1 and "does not enforce settings" in one_line(done.stderr)


def test_native_settings_without_pytorch_are_not_in_force(fragscope):
    run = fragscope.record(*fragscope.steps("alloc", 1000), gpu="1GiB",
                           options=("-q", "--enforce", "native", "--max-split-size-mb", "40"))
    text = fragscope("info", run.directory, check=True).stdout.decode()
    assert "no PyTorch in this process: max_split_size_mb:40 not in force" in text


def test_settings_are_taken_in_either_order(fragscope, started):
    runner, pid, _ = started
    for words in ((pid, "max_split_size_mb=64"), ("max_split_size_mb=64", pid)):
        done = fragscope("ctl", "set", *words)
        assert done.returncode == 1 and "does not enforce settings" in one_line(done.stderr)
    done = fragscope("ctl", "set", "max_split_size_mb=64", "garbage_collection_threshold=0.5")
    assert done.returncode == 2 and "PID" in one_line(done.stderr)


def test_what_collect_knows_of_a_process_that_was_started_without_it(fragscope, build):
    directory = fragscope.new_directory()
    runner = preloaded(fragscope, build, directory, "alloc", 1000, "wait", "alloc", 2000, "wait")
    collector = fragscope.start("collect", runner.pid)
    assert collector.stderr.readline().startswith(b"fragscope: collecting process")
    runner.communicate(b"\n\n", timeout=60)
    collector.communicate(timeout=60)
    assert collector.returncode == 0
    run = Run(fragscope, directory, None)
    assert sizes(run) == [1000, 2000]
    told = run.info()["run"]
    assert told["command"] == fragscope.steps("alloc", 1000, "wait", "alloc", 2000, "wait")
    assert told["host"] and told["start_time"].endswith("Z") and told["sealed"]
    assert list(told["notes"]) == ["collected"]
    before = (directory / "run.json").read_bytes()
    done = fragscope("collect", directory, check=True)  # there is nothing left to do, and nothing to note
    assert b"of 0 processes" in done.stderr
    assert (directory / "run.json").read_bytes() == before
