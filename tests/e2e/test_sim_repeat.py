"""What the simulated device answered is the same in every run of the same program: addresses of
pinned and managed memory and handles too, whatever the system's address randomisation does."""

import os
import subprocess

import pytest

GIB = 2**30


@pytest.fixture(params=[12, 13])
def run(request, build, tmp_path):
    """run(program, words…) -> the lines of the log without the number of the process."""
    numbers = iter(range(100))

    def call(program, *words):
        path = build / f"tests/sim/sim_{program}_{request.param}"
        if not path.exists():
            pytest.skip(f"built without CUDA {request.param} headers")
        number = next(numbers)
        log = tmp_path / f"log{number}"
        # The size of the environment moves the stack.
        environment = dict(os.environ, FRAGSCOPE_SIM=f"total_bytes={GIB};books={log}", PADDING="x" * 1000 * number)
        environment.pop("FRAGSCOPE_SIM_LEDGER", None)
        done = subprocess.run([path, *words], env=environment, text=True, capture_output=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        return [line.partition(" ")[2] for line in log.read_text(encoding="ascii").splitlines()]

    return call


@pytest.mark.parametrize("program, words", [("repeat", ("calls", "1")), ("repeat", ("calls", "2")), ("every_call", ()),
                                            ("pools", ()), ("memory", ())])
def test_the_log_repeats(run, program, words):
    first = run(program, *words)
    assert len(first) > 30
    assert first == run(program, *words)


def test_the_programs_own_memory_is_named(run):
    lines = [line.split() for line in run("repeat", "calls", "1")]
    made = [line[2] for line in lines if line[1] == "cuMemHostRegister_v2"]
    assert made == [f"host{n}" for n in range(1, len(made) + 1)] and len(made) > 20
    ended = [line[2] for line in lines if line[1] == "cuMemHostUnregister"]
    assert sorted(ended) == sorted([*made, "host"])
    [refused] = [line for line in lines if line[1] == "cuMemFreeHost" and line[4] != "0"]
    assert refused[2] == "host"
    assert not any(line[2].startswith(("0x55", "0x7")) for line in lines)


def test_a_taken_place_is_passed_over(run):
    assert run("repeat", "taken") == run("repeat", "taken")


def test_the_calls_of_each_thread_repeat(run):
    def by_thread():
        lines = [line.split() for line in run("repeat", "threads")]
        return [[line[1:] for line in lines if ("Host" in line[1]) == host] for host in (False, True)]

    first = by_thread()
    assert all(len(calls) > 200 for calls in first)
    assert first == by_thread()
