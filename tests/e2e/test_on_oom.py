"""--on-oom and --warn-at: the record of a failure is in the trace file before the program knows."""

import json
import signal
import subprocess
import sys

import pytest

from conftest import Run


def failing(fragscope, *options, gpu="1GiB"):
    """A run whose program has been refused memory, has said so and waits; its pid."""
    directory = fragscope.new_directory()
    runner = fragscope.start("run", "--gpu", gpu, "-o", directory, *options, "--",
                             fragscope.programs / "cuda_caps", "fail")
    return runner, directory


def children(pid):
    done = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, check=True)
    return [int(line) for line in done.stdout.split()]


def events_of_copy(fragscope, directory, scratch):
    """What the trace file held at this moment, whatever comes later."""
    (trace,) = directory.glob("*.fst")
    copy = scratch / "copy.fst"
    copy.write_bytes(trace.read_bytes())
    return Run(fragscope, copy, None).events()


@pytest.mark.parametrize("action", ["dump", "report", "signal:CONT"])
def test_the_failure_is_on_disk_when_the_call_returns(fragscope, tmp_path, action):
    runner, directory = failing(fragscope, "--on-oom", action)
    assert runner.stdout.readline() == b"2\n"  # the program has its answer
    (event,) = events_of_copy(fragscope, directory, tmp_path)
    assert (event["kind"], event["result"]) == ("device_alloc", 2)
    # Whatever becomes of all of them right afterwards.
    (pid,) = [p for p in children(runner.pid)][:1]
    subprocess.run(["kill", "-9", str(runner.pid), str(pid)], check=True)
    runner.wait()
    assert [e["kind"] for e in Run(fragscope, directory, None).events()] == ["device_alloc"]


def test_without_it_nothing_waits_or_speaks(fragscope):
    runner, directory = failing(fragscope)
    assert runner.stdout.readline() == b"2\n"
    (pid,) = children(runner.pid)
    subprocess.run(["kill", "-9", str(pid)], check=True)
    _, err = runner.communicate()
    assert b"ran out of memory" not in err


def test_a_signal_reaches_the_process(fragscope):
    runner, directory = failing(fragscope, "--on-oom", "signal:TERM")
    out, err = runner.communicate()
    assert runner.returncode == 128 + signal.SIGTERM
    assert out == b"" and b"ran out of memory" in err
    assert len(Run(fragscope, directory, None).events()) == 1


def test_the_default_signal_is_usr1(fragscope):
    runner, directory = failing(fragscope, "--on-oom", "signal")
    runner.communicate()
    assert runner.returncode == 128 + signal.SIGUSR1


def test_a_paused_process_can_be_looked_at_and_goes_on(fragscope):
    runner, directory = failing(fragscope, "--on-oom", "pause")
    line = runner.stderr.readline().decode()
    assert "it is stopped" in line and f"fragscope explain {directory}" in line
    pid = int(line.split("kill -CONT ")[1].split("`")[0])
    assert children(runner.pid) == [pid]
    explained = fragscope("explain", directory, check=True).stdout.decode()
    assert "refused device memory at event 1" in explained
    # It stops a moment after it has told; a signal that comes before the stop would be lost.
    while open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0] != "T":
        pass
    subprocess.run(["kill", "-CONT", str(pid)], check=True)
    assert runner.stdout.readline() == b"2\n"
    subprocess.run(["kill", "-9", str(pid)], check=True)
    runner.communicate()


def test_report_explains_at_once_on_stderr(fragscope):
    runner, directory = failing(fragscope, "--on-oom", "report")
    assert runner.stdout.readline() == b"2\n"
    for line in runner.stderr:  # while the program lives
        if line.startswith(b"verdict:"):
            break
    else:
        pytest.fail("no explanation came")
    for pid in children(runner.pid):
        subprocess.run(["kill", "-9", str(pid)], check=False)
    out, _ = runner.communicate()
    assert out == b""


PYTHON_FAILURE = """
import ctypes
cudart = ctypes.CDLL("libcudart.so.13")
def grow_too_far():
    return cudart.cudaMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(2 << 30))
print(grow_too_far(), flush=True)
input()
"""


def test_the_report_names_python_frames_and_is_no_process_of_the_command(fragscope):
    """The explainer reads a trace and its log together while both are written."""
    directory = fragscope.new_directory()
    runner = fragscope.start("run", "--gpu", "1GiB", "--sample-ms", "1", "-o", directory, "--on-oom", "report",
                             "--", sys.executable, "-c", PYTHON_FAILURE)
    assert runner.stdout.readline() == b"2\n"
    told = ""
    while not told.endswith("where the device's memory was\n"):  # behind the stack
        line = runner.stderr.readline().decode()
        assert line, told
        told += line
    runner.communicate(b"go on\n")
    assert "grow_too_far" in told and "<unknown" not in told
    seen = [json.loads(line) for line in (directory / "host.jsonl").read_text().splitlines()]
    names = {line["name"] for line in seen if "pid" in line}
    assert names and "fragscope" not in names


def test_many_failures_are_recorded_and_not_told_one_by_one(fragscope):
    run = fragscope.record(str(fragscope.programs / "cuda_caps"), "calls", "200",
                           options=("--oom-at", "11+", "--on-oom", "report"))
    assert run.finished.stdout.decode().strip() == "." * 10 + "x" * 190
    told = [line for line in run.finished.stderr.decode().splitlines() if "ran out of" in line]
    assert 1 <= len(told) <= 3
    assert sum(e["result"] == 2 for e in run.events()) == 190
    text = fragscope("explain", run.directory, check=True).stdout.decode()
    assert "cause: on_purpose" in text and "Nothing is wrong with the memory" in text
    assert run.finished.stderr.count(b"note: device allocation calls 11+ fail on purpose") == 1


def test_a_warning_comes_once_from_the_supervisor_and_stands_in_the_trace(fragscope):
    run = fragscope.record(str(fragscope.programs / "cuda_caps"), "calls", "1000", gpu="24GiB",
                           options=("--memory-limit", "1GiB", "--warn-at", "90%"))
    lines = [line for line in run.finished.stderr.decode().splitlines() if "--warn-at" in line]
    assert len(lines) == 1 and "of 1024.00 MiB on device 0" in lines[0]
    assert run.finished.stdout.decode().strip() == "." * 1000  # the program's streams are its own
    events = run.events()
    at = [e["kind"] for e in events].index("mark")
    assert sum(e["kind"] == "device_alloc" for e in events[:at]) == 921  # the next one is above 921.6 MiB, 90 %


def test_a_size_to_warn_at(fragscope):
    run = fragscope.record(str(fragscope.programs / "cuda_caps"), "calls", "20",
                           options=("--warn-at", "10MiB"))
    assert "holds 10.00 MiB of 1024.00 MiB" in run.finished.stderr.decode()
    run = fragscope.record(str(fragscope.programs / "cuda_caps"), "calls", "20",
                           options=("--warn-at", "10MiB", "--memory-limit", "512MiB",
                                    "--memory-limit-scope", "run"))
    assert "all processes of the run together hold 10.00 MiB" in run.finished.stderr.decode()


def test_failures_that_the_program_does_not_reach_are_not_told_as_done(fragscope):
    run = fragscope.record(str(fragscope.programs / "cuda_caps"), "calls", "3", options=("--oom-at", "20+"))
    assert run.finished.stdout.decode().strip() == "..."
    text = fragscope("info", run.directory, check=True).stdout.decode()
    assert "fail on purpose, where the program gets that far (--oom-at)" in text and "failed on" not in text
    assert "0 calls were refused" in text
    hit = fragscope.record(str(fragscope.programs / "cuda_caps"), "calls", "3", options=("--oom-at", "2+"))
    assert "2 calls were refused" in fragscope("info", hit.directory, check=True).stdout.decode()
