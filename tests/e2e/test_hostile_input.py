"""Every reading command on files that are damaged, cut, foreign, newer, or not files at all."""

import json
import os
import pathlib
import shutil
import struct
import subprocess

import pytest

from conftest import one_line

READERS = [["info"], ["info", "--json"], ["events"], ["events", "--jsonl"],
           ["events", "--jsonl", "--stacks"]]


@pytest.fixture
def recorded(fragscope):
    run = fragscope.record(*fragscope.steps("pairs", 5000))
    return run.directory, run.traces()[0]


def read_all(fragscope, path, code):
    for reader in READERS:
        done = fragscope(*reader, path)
        assert done.returncode == code, (reader, done.stderr)
        yield done


@pytest.mark.parametrize("content", [
    b"", b"\0" * 5000, b"\x7fELF" + bytes(range(256)) * 40, b"PK\x03\x04" + os.urandom(3000),
    b"just some words\n", b"FSTRC\r\n\0", b"FSLOG\r\n\0" + b"\xff" * 20000,
    b"FSTRC\r\n\0" + b"\xff" * 200,
])
def test_foreign_files(fragscope, tmp_path, content):
    path = tmp_path / "input.fst"
    path.write_bytes(content)
    for done in read_all(fragscope, path, 3):
        assert done.stdout == b""
        assert "input.fst" in one_line(done.stderr)


def test_newer_version_says_so(fragscope, recorded, tmp_path):
    data = bytearray(recorded[1].read_bytes())
    data[8:12] = struct.pack("<I", 77)
    path = tmp_path / "newer.fst"
    path.write_bytes(data)
    for done in read_all(fragscope, path, 3):
        assert "77" in one_line(done.stderr)


@pytest.mark.parametrize("name", ["missing", "fifo", "device", "empty directory"])
def test_what_is_no_trace(fragscope, tmp_path, name):
    path = tmp_path / "input"
    if name == "fifo":
        os.mkfifo(path)
    elif name == "empty directory":
        path.mkdir()
    elif name == "device":
        path = "/dev/zero"
    for done in read_all(fragscope, path, 3):
        one_line(done.stderr)


def test_cut_at_any_place_gives_what_is_whole(fragscope, recorded, tmp_path):
    data = recorded[1].read_bytes()
    whole = len(fragscope("events", "--jsonl", recorded[1], check=True).stdout.splitlines())
    path = tmp_path / "cut.fst"
    for length in sorted({12, 40, 200, len(data) // 3, len(data) // 2, len(data) - 17,
                          len(data) - 1}):
        path.write_bytes(data[:length])
        done = fragscope("events", "--jsonl", path)
        lines = done.stdout.splitlines()
        assert len(lines) <= whole
        for line in lines:
            json.loads(line)
        assert done.returncode in ((0,) if lines else (3, 5))
        assert b"cut.fst" in done.stderr


def test_flipped_bytes_never_crash(fragscope, recorded, tmp_path):
    data = recorded[1].read_bytes()
    right = fragscope("events", "--jsonl", recorded[1], check=True).stdout.splitlines()
    path = tmp_path / "flipped.fst"
    for position in range(0, len(data), max(1, len(data) // 25)):
        damaged = bytearray(data)
        damaged[position] ^= 0xFF
        path.write_bytes(damaged)
        done = fragscope("events", "--jsonl", path)
        assert done.returncode in (0, 3, 5), done.stderr
        lines = done.stdout.splitlines()
        assert lines == right[:len(lines)]  # never a wrong event
        assert done.stderr.startswith(b"fragscope: ")


def test_damage_is_told_where_the_figures_are(fragscope):
    run = fragscope.record(*fragscope.steps("pairs", 200000))
    (trace,) = run.traces()
    (whole,) = run.info()["processes"]
    assert whole["damage"] is None and run.info()["warnings"] == []
    data = bytearray(trace.read_bytes())
    last = data.rindex(b"EVNT")
    data[last + 32] ^= 0xFF
    trace.write_bytes(data)
    for command in ("info", "report", "replay"):
        document = json.loads(fragscope(command, "--json", run.directory, check=True).stdout)
        (process,) = document["processes"]
        damage = process["damage"]
        assert 0 < damage["events_read"] == process["events"] < whole["events"]
        assert damage["events_recorded"] == whole["events"]
        assert damage["offset"] == last and trace.name in damage["text"]
        assert damage["text"] in document["warnings"]
        text = fragscope(command, run.directory, check=True).stdout.decode()
        assert (f"damaged at byte {damage['offset']}, only {damage['events_read']} of "
                f"{whole['events']} events") in text
        assert f"{whole['events']} recorded" not in text
        if command != "info":
            assert process["pinned_bytes"]["driver"]["final"] is None
            (device,) = process["devices"]
            assert device["driver_bytes"]["final"] is None
            assert device["driver_bytes"]["peak"] == 4096


@pytest.mark.parametrize("command", ["info", "events", "report", "replay"])
def test_a_trace_whose_only_chunk_is_damaged_is_beyond_use(fragscope, recorded, command):
    directory, trace = recorded
    data = bytearray(trace.read_bytes())
    chunk = data.index(b"EVNT")
    data[chunk + 32] ^= 0xFF  # the first byte behind the chunk's header
    trace.write_bytes(data)
    done = fragscope(command, directory)
    assert done.returncode == 3
    assert f"damaged chunk at byte {chunk}" in one_line(done.stderr)


def test_a_trace_without_header_beside_its_log(fragscope):
    """The log has what the trace has not; a trace that is empty was not begun, without a warning."""
    directory = fragscope.new_directory()
    process = fragscope.start("run", "--gpu", "1GiB", "-o", directory, "--", *fragscope.steps(
        "wait", "pairs", 500, "say", "done", "wait"))
    assert process.stdout.readline() == b"waiting\n"
    process.kill()
    process.wait(timeout=60)
    process.stdin.write(b"\n")
    process.stdin.flush()
    assert process.stdout.readline() == b"done\n"
    process.stdin.close()
    process.stdout.read()  # to its end: the program is gone
    logs = pathlib.Path(json.loads((directory / "run.json").read_text())["log_directory"])
    (log,) = logs.glob("*.fslog")
    trace = directory / log.with_suffix(".fst").name
    for content, warnings in ((b"", 0), (b"FSTRC", 1), (b"nothing of ours" * 9, 1)):
        trace.write_bytes(content)
        for command in ("info", "report"):
            document = json.loads(fragscope(command, "--json", directory, check=True).stdout)
            (recovered,) = document["processes"]
            assert recovered["events"] >= 1000
            assert (recovered["dropped_events"], recovered["torn_records"]) == (0, 0)
            assert len(document["warnings"]) == warnings
            assert all(trace.name in warning for warning in document["warnings"])
    shutil.rmtree(logs)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"schema": 99}', b"\xff\xfe", b"null"])
def test_unusable_run_json_is_a_warning(fragscope, recorded, content):
    directory, _ = recorded
    (directory / "run.json").write_bytes(content)
    for done in read_all(fragscope, directory, 0):
        assert done.stdout
        assert "run.json" in one_line(done.stderr)


def test_one_bad_trace_among_good_ones(fragscope, recorded):
    directory, _ = recorded
    (directory / "7-7-00000000000000aa.fst").write_bytes(b"nothing of ours")
    for done in read_all(fragscope, directory, 0):
        assert done.stdout
        assert "7-7-00000000000000aa.fst" in one_line(done.stderr)


def test_output_that_cannot_be_written(fragscope, recorded):
    for reader in READERS:
        with open("/dev/full", "wb") as full:
            process = fragscope.start(*reader, recorded[0], stdout=full)
            error = process.communicate(timeout=60)[1]
        assert process.returncode == 4
        one_line(error)


@pytest.mark.parametrize("damage", [
    {"processes": 5}, {"processes": [7]}, {"command": "text"}, {"exit": {"kind": 3}}, {"notes": []},
    {"host": None}, {"processes": [{"pid": 1, "start_ticks": 1, "trace_file": "../x", "exit": {}}]},
])
def test_run_json_names_what_is_wrong_with_it(fragscope, recorded, damage):
    path = recorded[0] / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | damage))
    done = fragscope("info", recorded[0])
    line = one_line(done.stderr)
    assert done.returncode == 0 and "run.json" in line and "json.exception" not in line
    assert any(f'"{key}"' in line or key == "processes" for key in damage)


def test_foreign_text_reaches_no_terminal(fragscope, tmp_path):
    run = fragscope.record("sh", "-c", "exit 0", b"\xff\x1b[2J\xc2\x9b".decode(errors="surrogateescape"))
    for reader in (["info"], ["report"]):
        done = fragscope(*reader, run.directory)
        text = (done.stdout + done.stderr).decode()  # UTF-8 throughout
        assert not any(c < " " and c != "\n" or "\x7f" <= c < "\xa0" for c in text), text


@pytest.mark.parametrize("reader", [["info"], ["events"], ["report"], ["replay"], ["report", "--json"]])
def test_closed_output_is_an_error(fragscope, recorded, reader):
    words = " ".join(["\"$0\"", *reader, "\"$1\" >&-"])
    done = subprocess.run(["sh", "-c", words, fragscope.path, recorded[0]],
                          stderr=subprocess.PIPE, check=False)
    assert done.returncode == 4 and b"cannot write" in done.stderr


def test_strict_replay_of_a_damaged_trace_says_no(fragscope, recorded, tmp_path):
    data = recorded[1].read_bytes()
    path = tmp_path / "cut.fst"
    path.write_bytes(data[:-1])
    assert fragscope("replay", path).returncode == 0
    assert fragscope("replay", "--strict", path).returncode == 1


def test_what_one_damaged_bit_takes_is_said(fragscope):
    """What comes before its chunk is whole and is read; how much that is, and of how much, is told."""
    run = fragscope.record(*fragscope.steps("pairs", 60000))
    [trace] = run.traces()
    data = bytearray(trace.read_bytes())
    data[len(data) * 2 // 3] ^= 4
    trace.write_bytes(data)
    whole = 2 * 60000
    events = run.events()
    assert 0 < len(events) < whole
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    [process] = run.info()["processes"]
    assert (process["damage"]["events_read"], process["damage"]["events_recorded"]) == (len(events), whole)
    text = fragscope("info", run.directory, check=True).stdout.decode()
    assert f"only {len(events)} of {whole} events could be read; these are whole" in text
