"""Where libfragscope.so keeps its log, what limits do to it, and the call stacks in it."""

import errno
import os
import pathlib
import shutil
import subprocess

import fslog
import pytest
from shim_programs import programs  # noqa: F401  (fixture)


# --- storage


def test_disabled_records_nothing(programs):
    assert programs.run_both("shim_basic", FRAGSCOPE_DISABLE="1") == []
    assert not programs.out.exists()


def test_unwritable_directory_is_silent(programs, tmp_path):
    blocker = tmp_path / "file"
    blocker.write_text("")
    plain = programs.run("shim_basic", preload=())
    shimmed = programs.run("shim_basic", FRAGSCOPE_OUT=str(blocker / "run.fsr"))
    assert (shimmed.stdout, shimmed.stderr, shimmed.returncode) == (plain.stdout, b"", 3)


def test_log_directory_wins_and_fallback_is_used(programs, tmp_path):
    logs, fallback = tmp_path / "logs", tmp_path / "fallback"
    fallback.mkdir()
    environment = dict(FRAGSCOPE_LOG_DIR=str(logs), FRAGSCOPE_LOG_FALLBACK_DIR=str(fallback))
    programs.run("shim_basic", **environment)
    assert len(fslog.logs_in(fallback)) == 1
    logs.mkdir()
    programs.run("shim_basic", **environment)
    assert len(fslog.logs_in(logs)) == 1 and len(fslog.logs_in(fallback)) == 1
    assert not programs.out.exists()


def test_default_directory_is_private(programs, tmp_path):
    env = programs.environment([programs.shim])
    del env["FRAGSCOPE_OUT"]
    os.umask(0)
    try:
        subprocess.run([str(programs.directory / "shim_basic")], cwd=tmp_path, env=env)
    finally:
        os.umask(0o022)
    (directory,) = tmp_path.glob("fragscope-shim_basic-*.fsr")
    (log,) = directory.iterdir()
    assert directory.stat().st_mode & 0o777 == 0o700 and log.stat().st_mode & 0o777 == 0o600


def limited(kind, amount, program, *arguments):
    return ["bash", "-c", f'ulimit -{kind} {amount}; exec "$@"', "-", str(program), *arguments]


def test_small_address_space_gets_a_smaller_log(programs):
    command = limited("v", 300000, programs.directory / "shim_basic")
    env = programs.environment([programs.shim])
    result = subprocess.run(command, env=env, capture_output=True)
    assert result.returncode == 3 and result.stderr == b""
    (log,) = programs.logs()
    assert len(log.events) == 16 and int(log.properties["log.capacity_bytes"]) < 2**28


def test_file_size_limit_stops_the_log_but_not_the_program(programs):
    command = limited("f", 4096, programs.directory / "shim_threads", "4", "20000")
    env = programs.environment([programs.shim])
    result = subprocess.run(command, env=env, capture_output=True)
    assert (result.returncode, result.stdout) == (0, b"done\n")
    (log,) = programs.logs()
    assert log.dropped > 0 and len(log.events) + log.dropped == 160000


@pytest.mark.parametrize("blocks", [0, 1024])
def test_a_limit_that_leaves_no_room_for_a_log_is_told(programs, build, tmp_path, blocks):
    out = tmp_path / "narrow.fsr"
    command = limited("f", blocks, programs.directory / "shim_basic")
    env = programs.environment([programs.shim], FRAGSCOPE_OUT=str(out))
    env.pop("FRAGSCOPE_LOG_DIR", None)
    result = subprocess.run(command, env=env, capture_output=True)
    assert (result.returncode, result.stderr) == (3, b"")
    told = subprocess.run([build / "bin/fragscope", "info", out], capture_output=True, text=True)
    assert told.returncode != 0 and told.stderr.count("\n") == 1
    assert str(out) in told.stderr and "ulimit -f" in told.stderr


def test_full_log_drops_and_counts(programs):
    (log,) = programs.run_both("shim_threads", 4, 20000, FRAGSCOPE_LOG_BYTES=str(4 * 2**20))
    assert log.dropped > 0 and len(log.events) + log.dropped == 160000
    assert log.torn == 0


def test_growth_never_touches_files_of_the_host(programs, tmp_path):
    mine = tmp_path / "mine"
    (log,) = programs.run_both("shim_descriptors", mine)
    assert mine.stat().st_size == 0
    assert log.grow_errno == errno.EBADF and log.dropped > 0


# --- stacks


def test_stacks_name_the_program(programs):
    (log,) = programs.run_both("shim_basic")
    first = log.events[1]
    frames = log.stacks[first["stack"]]
    modules = [(m.split(" ", 2)[0].split("-"), m.split(" ", 2)[2]) for m in log.modules]

    def module_of(address):
        for (start, end), path in modules:
            if int(start, 16) <= address < int(end, 16):
                return pathlib.Path(path).name
        return None

    assert module_of(frames[0] - 1) == "shim_basic"
    assert "libfragscope.so" not in [module_of(f - 1) for f in frames]
    assert len({e["stack"] for e in log.events}) == len(log.events)


def test_stacks_can_be_switched_off_and_cut(programs):
    (log,) = programs.run_both("shim_basic", FRAGSCOPE_STACKS="none")
    assert not log.stacks and log.properties["stacks"] == "none"
    assert all(e["stack"] == 0 for e in log.events)
    shutil.rmtree(programs.out)
    (log,) = programs.run_both("shim_basic", FRAGSCOPE_STACK_DEPTH="1")
    assert all(len(s) == 1 for s in log.stacks.values())
    assert all(e["flags"] & 1 for e in log.events)  # truncated
