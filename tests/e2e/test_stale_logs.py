"""Logs in memory whose recorder was killed: named at the next start, collected, removed."""

import json
import os
import pathlib
import shutil

import pytest


@pytest.fixture
def memory(tmp_path, monkeypatch):
    """A place in memory of this test's own: no other run's logs are in it."""
    place = pathlib.Path("/dev/shm") / f"fragscope-test-{os.getpid()}"
    place.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(place))
    yield place
    shutil.rmtree(place)


def killed_recorder(fragscope, memory, *steps):
    """A run whose recorder is killed in the middle; its program goes on, makes an allocation and ends."""
    directory = fragscope.new_directory()
    process = fragscope.start("run", "--gpu", "1GiB", "-o", directory, "--", *fragscope.steps(
        "alloc", 1000, "wait", *steps, "alloc", 2000), env={"XDG_RUNTIME_DIR": str(memory)})
    assert process.stdout.readline() == b"alloc 1000 -> error 0\n"
    assert process.stdout.readline() == b"waiting\n"
    process.kill()
    process.wait()
    return directory, process


def end_program(process):
    process.stdin.write(b"go\n")
    process.stdin.close()
    assert process.stdout.read() == b"alloc 2000 -> error 0\n"


def sizes(fragscope, directory):
    out = fragscope("events", "--jsonl", directory, check=True).stdout
    return [json.loads(line)["size"] for line in out.splitlines()]


def places(memory):
    return [path for path in memory.iterdir() if path.name.startswith("fragscope-")]


def test_stale_logs_are_named_collected_and_removed(fragscope, memory):
    env = {"XDG_RUNTIME_DIR": str(memory)}
    directory, process = killed_recorder(fragscope, memory, "pairs", 400000)
    fragscope("collect", "--stale", env=env)
    assert len(list(places(memory)[0].glob("*.fslog"))) == 1  # its program lives
    end_program(process)
    assert len(places(memory)) == 1
    before = sizes(fragscope, directory)
    assert before[0] == 1000 and before[-1] == 2000 and len(before) == 800002

    other = fragscope("run", "--gpu", "1GiB", "-o", fragscope.new_directory(), "--",
                      *fragscope.steps("alloc", 5), env=env, check=True)
    assert b"of memory hold logs of recorders that were killed; `fragscope collect --stale`" in other.stderr
    assert len(places(memory)) == 1

    done = fragscope("collect", "--stale", env=env)
    assert b"collected the logs of 1 process into" in done.stderr
    assert places(memory) == []
    assert sizes(fragscope, directory) == before
    info = json.loads(fragscope("info", "--json", directory, check=True).stdout)
    assert info["run"]["sealed"] and info["processes"][0]["sealed"]
    assert info["processes"][0]["exit"]["kind"] == "vanished"
    assert not list(directory.glob("*.new")) and len(list(directory.glob("*.fst"))) == 1
    again = fragscope("run", "--gpu", "1GiB", "-o", fragscope.new_directory(), "--",
                      *fragscope.steps("alloc", 5), env=env, check=True)
    assert b"were killed" not in again.stderr


def test_logs_of_a_run_that_was_removed_go_without_it(fragscope, memory):
    env = {"XDG_RUNTIME_DIR": str(memory)}
    directory, process = killed_recorder(fragscope, memory)
    end_program(process)
    shutil.rmtree(directory)
    done = fragscope("collect", "--stale", env=env)
    assert b"its run directory" in done.stderr and b"is gone" in done.stderr
    assert places(memory) == []


def test_a_named_run_is_finished(fragscope, memory):
    directory, process = killed_recorder(fragscope, memory)
    living = fragscope("collect", directory)
    assert b"0 processes" in living.stderr and b"1 still run" in living.stderr
    end_program(process)
    assert b"of 1 process into" in fragscope("collect", directory, check=True).stderr
    assert sizes(fragscope, directory) == [1000, 2000]
    assert b"of 0 processes into" in fragscope("collect", directory, check=True).stderr


@pytest.mark.parametrize("spelling", ["absolute", "relative", "slash", "link"])
def test_a_run_with_its_logs_on_disk_is_finished_however_it_is_named(fragscope, tmp_path, spelling):
    directory = fragscope.new_directory()
    process = fragscope.start("run", "--durable", "--gpu", "1GiB", "-o", directory, "--", *fragscope.steps(
        "alloc", 1000, "wait", "alloc", 2000))
    assert process.stdout.readline() == b"alloc 1000 -> error 0\n"
    assert process.stdout.readline() == b"waiting\n"
    process.kill()
    process.wait()
    end_program(process)
    (tmp_path / "link.fsr").symlink_to(directory)
    name = {"absolute": directory, "relative": directory.name, "slash": f"{directory}/",
            "link": tmp_path / "link.fsr"}[spelling]
    done = fragscope("collect", name, cwd=directory.parent)
    assert (done.returncode, done.stderr.count(b"\n")) == (0, 1), done.stderr.decode()
    assert b"of 1 process into" in done.stderr
    assert sizes(fragscope, directory) == [1000, 2000]
    assert not list(directory.glob("*.fslog"))


def test_a_run_at_work_is_left_alone(fragscope, memory):
    env = {"XDG_RUNTIME_DIR": str(memory)}
    directory = fragscope.new_directory()
    process = fragscope.start("run", "--gpu", "1GiB", "-o", directory, "--",
                              *fragscope.steps("alloc", 1000, "wait", "alloc", 2000), env=env)
    assert process.stdout.readline() == b"alloc 1000 -> error 0\n"
    assert process.stdout.readline() == b"waiting\n"
    fragscope("collect", "--stale", env=env)
    assert len(list(places(memory)[0].glob("*.fslog"))) == 1
    end_program(process)
    assert process.wait() == 0
    assert places(memory) == []
    assert sizes(fragscope, directory) == [1000, 2000]


@pytest.mark.parametrize("arguments", [[], ["--stale", "1"], ["no-such-thing"]])
def test_what_to_collect_has_to_be_said(fragscope, arguments):
    done = fragscope("collect", *arguments)
    assert done.returncode == 2 and done.stderr.count(b"\n") == 1
