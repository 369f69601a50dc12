"""What a run holds, however its processes and its recorder end."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import pytest

from conftest import Run, one_line


def kinds(events):
    return [event["kind"] for event in events if event["kind"] not in ("current_device",)]


def test_events_follow_the_contract(fragscope):
    run = fragscope.record(*fragscope.steps("alloc", 1000, "alloc", 1 << 40, "pinned", 512, "free"))
    events = run.events()
    assert kinds(events) == ["device_alloc", "device_alloc", "pinned_alloc", "device_free"]
    first, failed, pinned, freed = [e for e in events if e["kind"] != "current_device"]
    for event in events:
        assert {"seq", "t_ns", "pid", "tid", "plane", "kind", "api", "device", "stream", "address",
                "size", "requested", "result", "stack"} <= set(event)
    assert (first["api"], first["plane"], first["device"]) == ("cudaMalloc", "driver", 0)
    assert (first["size"], first["requested"], first["result"]) == (1000, 1000, 0)
    assert isinstance(first["address"], int) and isinstance(first["stack"], int)
    assert (failed["size"], failed["result"], failed["address"]) == (1 << 40, 2, None)
    assert pinned["size"] == 512
    assert (freed["address"], freed["result"]) == (first["address"], 0)
    keys = [(event["t_ns"], event["pid"], event["seq"]) for event in events]
    assert keys == sorted(keys)
    stacks = [e["stack"] for e in run.events("--stacks") if e["kind"] == "device_alloc"]
    ours = [frame for frame in stacks[0] if (frame["module"] or "").endswith("cuda_steps")]
    assert "main" in [frame["function"] for frame in ours]
    for frame in stacks[0]:
        assert set(frame) == {"address", "module", "offset", "function", "file", "line"}
    text = fragscope("events", "--stacks", run.directory, check=True).stdout.decode()
    assert re.search(r"^    main[ (\[]", text, re.MULTILINE)


def test_killed_program_loses_nothing(fragscope):
    run = fragscope.record(*fragscope.steps("pairs", 20000, "alloc", 4096, "kill", 9))
    assert run.finished.returncode == 128 + 9
    events = run.events()
    assert kinds(events).count("device_alloc") == 20001
    assert kinds(events).count("device_free") == 20000
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    info = run.info()
    process = info["processes"][0]
    assert process["exit"] == info["run"]["exit"] == {"kind": "signaled", "code": 9}
    assert (process["dropped_events"], process["torn_records"]) == (0, 0)
    text = fragscope("info", run.directory, check=True).stdout.decode()
    assert "signaled 9 (SIGKILL)" in text and "0 dropped" in text


def test_killed_recorder_loses_nothing(fragscope):
    directory = fragscope.new_directory()
    process = fragscope.start("run", "--gpu", "1GiB", "-o", directory, "--", *fragscope.steps(
        "pairs", 500, "wait", "pairs", 500, "say", "done", "wait"))
    assert process.stdout.readline() == b"waiting\n"
    process.kill()
    process.wait(timeout=60)
    process.stdin.write(b"\n")
    process.stdin.flush()
    assert process.stdout.readline() == b"done\n"  # the program never noticed
    run = Run(fragscope, directory, None)
    assert kinds(run.events()).count("device_free") == 1000  # read while it lives
    info = run.info()
    assert (info["run"]["sealed"], info["run"]["live"]) == (False, True)
    assert info["processes"][0]["exit"]["kind"] == "running"
    process.stdin.close()
    process.stdout.read()  # to its end: the program is gone
    assert kinds(run.events()).count("device_free") == 1000
    gone = run.info()
    assert gone["run"]["exit"] == gone["processes"][0]["exit"] == {"kind": "vanished", "code": None}
    report = json.loads(fragscope("report", "--json", directory, check=True).stdout)
    assert report["processes"][0]["exit"] == {"kind": "vanished", "code": None}
    log_directory = json.loads((directory / "run.json").read_text())["log_directory"]
    for path in pathlib.Path(log_directory).iterdir():
        path.unlink()
    os.rmdir(log_directory)


def test_two_processes_by_fork(fragscope):
    run = fragscope.record(*fragscope.steps("say", "parent", "fork", "alloc", 4096, "exit", 5))
    assert run.finished.returncode == 5
    assert len(run.traces()) == 1  # the parent never touched CUDA
    both = fragscope.record("sh", "-c", '"$0" alloc 4096 exit 3; "$0" alloc 8192; true',
                            *fragscope.steps())
    unseen = {"kind": "vanished", "code": None}  # the shell waited for them
    for process, code in zip(both.info()["processes"], (3, 0), strict=True):
        assert process["exit"] in ({"kind": "exited", "code": code}, unseen)
    sizes = [e["size"] for e in both.events() if e["kind"] == "device_alloc"]
    assert sizes == [4096, 8192]


def kernel_remembers_exits():
    """Linux 6.15 and later tell the holder of a pidfd how a process ended."""
    major, minor = re.match(r"(\d+)\.(\d+)", os.uname().release).groups()
    return (int(major), int(minor)) >= (6, 15)


@pytest.mark.skipif(not kernel_remembers_exits(), reason="needs Linux 6.15")
def test_exit_of_a_process_that_a_shell_waits_for(fragscope):
    directory = fragscope.new_directory()
    process = fragscope.start("run", "--gpu", "1GiB", "-q", "-o", directory, "--", "sh", "-c",
                              '"$0" "$@"; exit 0', *fragscope.steps("alloc", 4096, "wait", "kill", 6))
    while not list(directory.glob("*.fst")):
        os.sched_yield()  # until the recorder has taken up the process
    process.communicate(b"\n", timeout=60)
    assert process.returncode == 0
    info = Run(fragscope, directory, None).info()
    assert info["processes"][0]["exit"] == {"kind": "signaled", "code": 6}
    assert info["run"]["exit"] == {"kind": "exited", "code": 0}


def test_one_process_by_exec_is_two_programs(fragscope):
    run = fragscope.record(*fragscope.steps("alloc", 4096, "exec", "alloc", 8192, "exit", 6))
    assert run.finished.returncode == 6
    events = [e for e in run.events() if e["kind"] == "device_alloc"]
    assert [e["size"] for e in events] == [4096, 8192]
    assert len({e["pid"] for e in events}) == 1
    processes = run.info()["processes"]
    assert len(processes) == 2
    assert processes[1]["exit"] == {"kind": "exited", "code": 6}


def test_orphans_are_waited_for(fragscope):
    run = fragscope.record(*fragscope.steps("orphan", "alloc", 4096, "pairs", 2000, "exit", 4))
    assert run.finished.returncode == 0
    process = run.info()["processes"][0]
    assert process["exit"] == {"kind": "exited", "code": 4}
    assert kinds(run.events()).count("device_alloc") == 2001


@pytest.mark.parametrize("place", ["/dev/null/x.fsr", "/proc/x.fsr"])
def test_output_that_cannot_be_made(fragscope, place, tmp_path):
    marker = tmp_path / "ran"
    done = fragscope("run", "--gpu", "1GiB", "-o", place, "--", "touch", marker)
    assert done.returncode == 4
    assert place in one_line(done.stderr)
    assert not marker.exists()


def test_output_directory_in_use(fragscope):
    run = fragscope.record(*fragscope.steps("alloc", 4096))
    before = {path.name: path.read_bytes() for path in run.directory.iterdir()}
    again = fragscope("run", "--gpu", "1GiB", "-o", run.directory, "--", "true")
    assert again.returncode == 4
    one_line(again.stderr)
    assert {path.name: path.read_bytes() for path in run.directory.iterdir()} == before


@pytest.fixture
def tiny_disk(tmp_path):
    """A file system of a few pages; skips where it cannot be mounted."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs root and the right to mount")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_full_disk_before_the_run(fragscope, tiny_disk, tmp_path):
    with open(tiny_disk / "filler", "wb", buffering=0) as filler:
        with pytest.raises(OSError):
            while True:
                filler.write(b"x" * 4096)
    marker = tmp_path / "ran"
    done = fragscope("run", "--gpu", "1GiB", "-o", tiny_disk / "r.fsr", "--", "touch", marker)
    assert done.returncode == 4
    one_line(done.stderr)
    assert not marker.exists()


def test_full_disk_in_mid_run_leaves_the_program_alone(fragscope, tiny_disk):
    directory = tiny_disk / "r.fsr"
    done = fragscope("run", "--gpu", "1GiB", "-o", directory, "--",
                     *fragscope.steps("pairs", 300000, "say", "through", "exit", 3))
    assert (done.stdout, done.returncode) == (b"through\n", 3)
    words = done.stderr.decode()
    assert "No space left" in words and ".fslog" in words, words
    log = pathlib.Path(re.search(r"(/\S+?\.fslog)", words).group(1))
    assert log.exists()  # nothing is lost: the rest is where the message says
    run = Run(fragscope, directory, None)
    (process,) = run.info()["processes"]
    dropped = re.search(r"(\d+) events? found no room in the log", words)
    assert process["dropped_events"] == (int(dropped.group(1)) if dropped else 0)
    assert process["events"] + process["dropped_events"] == 600000
    text = fragscope("info", directory, check=True).stdout.decode()
    assert "the recorder could not write all of it" in text and "killed" not in text
    shutil.rmtree(log.parent)


def test_a_disk_that_fills_up_leaves_a_log_that_drops_and_says_so(fragscope, tiny_disk):
    directory = tiny_disk / "r.fsr"
    done = fragscope("run", "--gpu", "1GiB", "--log-bytes", "3MiB", "-o", directory, "--",
                     *fragscope.steps("pairs", 300000, "exit", 3))
    assert done.returncode == 3
    words = done.stderr.decode()
    assert re.search(r"\d+ events found no room in the log", words), words
    log = pathlib.Path(re.search(r"(/\S+?\.fslog)", words).group(1))
    shutil.rmtree(log.parent)


def test_full_disk_hides_no_process(fragscope, tiny_disk):
    """The disk fills before the first trace: that stays empty, and the log is read in its place."""
    directory = tiny_disk / "r.fsr"
    script = f'cat /dev/zero > {tiny_disk}/filler 2> /dev/null; exec "$@"'
    fragscope("run", "--gpu", "1GiB", "-o", directory, "--", "bash", "-c", script, "bash",
              *fragscope.steps("pairs", 2000, "say", "through"))
    (trace,) = directory.glob("*.fst")
    assert trace.stat().st_size == 0
    run = Run(fragscope, directory, None)
    (process,) = run.info()["processes"]
    assert process["torn_records"] == process["dropped_events"] == 0
    assert kinds(run.events()).count("device_free") == 2000
    logs = pathlib.Path(json.loads((directory / "run.json").read_text())["log_directory"])
    shutil.rmtree(logs)


def test_file_size_limit_in_mid_run_leaves_the_program_alone(fragscope):
    directory = fragscope.new_directory()
    limited = 'ulimit -f 64; exec "$@"'
    done = subprocess.run(
        ["bash", "-c", limited, "bash", str(fragscope.path), "run", "--gpu", "1GiB", "-o",
         str(directory), "--", *fragscope.steps("pairs", 300000, "say", "through", "exit", 3)],
        env=fragscope.environment, capture_output=True, check=False)
    assert (done.stdout, done.returncode) == (b"through\n", 3)


@pytest.mark.parametrize("blocks", [1, 64, 2048])
@pytest.mark.parametrize("options", [(), ("--durable",), ("--ring",)])
def test_a_narrow_limit_on_files_inside_the_command(fragscope, blocks, options):
    """ulimit -f below the smallest log: the process takes the one that the recorder keeps ready."""
    limited = f'ulimit -f {blocks}; "$@"; "$@"'  # two processes, one after the other
    run = fragscope.record("bash", "-c", limited, "bash", *fragscope.steps("alloc", 4096, "alloc", 8192),
                           options=options)
    assert run.finished.stdout == 2 * b"alloc 4096 -> error 0\nalloc 8192 -> error 0\n", run.finished.stderr
    assert [event["size"] for event in run.events()] == [4096, 8192, 4096, 8192]
    for process in run.info()["processes"]:
        assert process["dropped_events"] == process["torn_records"] == 0
    assert not list(run.directory.glob("spare*"))


def test_a_log_that_may_not_grow_is_used_again(fragscope):
    """More events than the limit has room for, drained while they come."""
    run = fragscope.record("bash", "-c", 'ulimit -f 2048; exec "$@"', "bash",
                           *fragscope.steps("pairs", 100, "wait", "pairs", 9000, "wait", "pairs", 9000, "wait",
                                            "pairs", 9000), input=b"\n\n\n")
    [process] = run.info()["processes"]
    assert process["events"] + process["dropped_events"] == 2 * 27100
    assert process["properties"]["log.capacity_bytes"] == str(2 * 16384 * 96)
    assert "log.grow_errno" not in process["properties"]


DROPS_ITS_USER = """
import ctypes, os
driver, cudart = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libcudart.so.13")
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
print(cudart.cudaMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(4096)))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_command_that_gives_up_root_before_it_uses_cuda(fragscope):
    run = fragscope.record(sys.executable, "-c", DROPS_ITS_USER, options=["--log-group", "65534"])
    assert run.finished.stdout == b"0\n", run.finished.stderr.decode()
    [event] = run.events()
    assert event["size"] == 4096
    assert run.info()["run"]["sealed"]
    used = json.loads(fragscope("report", "--json", run.directory, check=True).stdout)["processes"][0]
    assert used["devices"][0]["driver_bytes"]["peak"] == 4096
    # Nobody else gets in: without the option the place is its owner's alone.
    closed = fragscope.record(sys.executable, "-c", DROPS_ITS_USER)
    assert closed.finished.stderr.count(b"recorded nothing") == 1
    assert b"--log-group" in closed.finished.stderr


@pytest.mark.parametrize("options", [("--log-group", "no-such-group-here"), ("--log-group", ""),
                                     ("--log-group", "0", "--durable")])
def test_a_group_that_cannot_be_let_in_is_named(fragscope, options):
    done = fragscope("run", "--gpu", "1GiB", "-o", fragscope.new_directory(), *options, "--", "true")
    assert done.returncode == 2 and "--log-group" in one_line(done.stderr)


def namespaces():
    done = subprocess.run(["unshare", "-Urpf", "--mount-proc", "true"], capture_output=True, check=False)
    return done.returncode == 0


@pytest.mark.skipif(not namespaces(), reason="needs the right to make pid namespaces")
@pytest.mark.parametrize("options", [(), ("--durable",)])
def test_a_process_that_calls_itself_by_another_number(fragscope, options):
    """A container: it is process 1 there. It is followed to its end, asked and waited for by its number here."""
    directory = fragscope.new_directory()
    runner = fragscope.start("run", "--gpu", "1GiB", "-o", directory, *options, "--", "unshare", "-Urpf",
                             "--mount-proc", *fragscope.steps("alloc", 1000, "wait", "alloc", 2000, "wait",
                                                              "pairs", 5000, "alloc", 3000, "kill", 9))
    def until_it_waits():
        while runner.stdout.readline() != b"waiting\n":
            pass
    def go_on():
        runner.stdin.write(b"\n")
        runner.stdin.flush()
    until_it_waits()
    while not list(directory.glob("*.fst")):
        os.sched_yield()
    go_on()
    until_it_waits()
    run = Run(fragscope, directory, None)
    [process] = run.info()["processes"]
    assert process["exit"]["kind"] == "running" and process["pid"] == 1
    here = process["properties"]["host_pid"]
    fragscope("ctl", "mark", here, "from outside", check=True)
    fragscope("ctl", "flush", here, check=True)
    go_on()
    runner.communicate(timeout=60)
    events = run.events()
    assert [e["size"] for e in events if e["kind"] == "device_alloc" and e["size"] % 1000 == 0] == [1000, 2000, 3000]
    assert kinds(events).count("device_free") == 5000
    assert [e["text"] for e in events if e["kind"] == "mark"] == ["from outside"]
    assert f"process 1 ({here} on the host)" in fragscope("info", directory, check=True).stdout.decode()
    host = run.info()["host_memory"]["processes"]
    assert [p["pid"] for p in host if p["recorded"]] == [int(here)]


CONTAINERS = """
import subprocess, sys
box = ["unshare", "-Urpf", "--mount-proc", sys.argv[1], "alloc", str(600 << 20)]
def result(line):
    return line.decode().split("error ")[1].strip()
first = subprocess.Popen([*box, "wait"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
print("first", result(first.stdout.readline()), flush=True)
print("second", result(subprocess.check_output(box)), flush=True)
first.communicate(b"\\n")
while sys.argv[2] == "card" and result(subprocess.check_output(box)) != "0":
    pass
"""


@pytest.mark.skipif(not namespaces(), reason="needs the right to make pid namespaces")
@pytest.mark.parametrize("what, gpu, options", [
    ("card", "1GiB", ()), ("limit", "4GiB", ("--memory-limit", "1GiB", "--memory-limit-scope", "run"))])
def test_containers_share_a_card_and_a_limit(fragscope, what, gpu, options):
    """All are process 1 to themselves and see nothing of each other: what one holds is not another's to free.
    What the first held of the card is free again when it has ended."""
    run = fragscope.record(sys.executable, "-c", CONTAINERS, *fragscope.steps(), what, gpu=gpu, options=options)
    assert run.finished.stdout == b"first 0\nsecond 2\n", run.finished.stderr.decode()
    assert run.finished.returncode == 0


def test_full_log_counts_what_it_drops(fragscope):
    directory = fragscope.new_directory()
    process = fragscope.start("run", "--gpu", "1GiB", "--log-bytes", "4MiB", "-o", directory, "--",
                              *fragscope.steps("wait", "pairs", 100000, "say", "done", "wait"))
    assert process.stdout.readline() == b"waiting\n"
    process.send_signal(signal.SIGSTOP)  # nobody drains
    process.stdin.write(b"\n")
    process.stdin.flush()
    assert process.stdout.readline() == b"done\n"
    process.send_signal(signal.SIGCONT)
    process.communicate(timeout=60)
    info = Run(fragscope, directory, None).info()["processes"][0]
    assert info["dropped_events"] > 0
    recorded = info["kinds"]["device_alloc"] + info["kinds"]["device_free"]
    assert recorded + info["dropped_events"] == 200000
