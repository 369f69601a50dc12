"""Fixtures of the end-to-end tests: the program, and runs recorded with it."""

import json
import os
import pathlib
import signal
import subprocess

import pytest

TIMEOUT = 240


class Run:
    """A recorded run: its directory, what the command did, and what the reading commands say."""

    def __init__(self, fragscope, directory, finished):
        self.fragscope = fragscope
        self.directory = directory
        self.finished = finished

    def events(self, *options):
        """All events as dicts, in the order of `fragscope events --jsonl`."""
        out = self.fragscope("events", "--jsonl", *options, self.directory, check=True).stdout
        return [json.loads(line) for line in out.splitlines()]

    def info(self):
        return json.loads(self.fragscope("info", "--json", self.directory, check=True).stdout)

    def traces(self):
        return sorted(self.directory.glob("*.fst"))


class Fragscope:
    """Calls build/release/bin/fragscope with an environment free of settings of ours."""

    def __init__(self, build, scratch):
        self.path = build / "bin/fragscope"
        self.programs = build / "tests/cuda"
        self.scratch = scratch
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("FRAGSCOPE_")}
        self.runs = 0

    def __call__(self, *arguments, check=False, env=None, **options):
        command = [str(self.path), *map(str, arguments)]
        options.setdefault("stdin", subprocess.DEVNULL)
        if "input" in options:
            del options["stdin"]
        done = subprocess.run(command, env=self.environment | (env or {}), timeout=TIMEOUT,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, **options)
        assert not check or done.returncode == 0, done.stderr.decode()
        return done

    def start(self, *arguments, env=None, **options):
        """The same in the background, with pipes for all three streams unless said otherwise."""
        for stream in ("stdin", "stdout", "stderr"):
            options.setdefault(stream, subprocess.PIPE)
        return subprocess.Popen([str(self.path), *map(str, arguments)],
                                env=self.environment | (env or {}), **options)

    def new_directory(self):
        self.runs += 1
        return self.scratch / f"run{self.runs}.fsr"

    def record(self, *command, gpu="1GiB", options=(), **more):
        directory = self.new_directory()
        done = self("run", "--gpu", gpu, "-o", directory, *options, "--", *command, **more)
        return Run(self, directory, done)

    def steps(self, *words):
        """The command line of programs/cuda_steps.cpp."""
        return [str(self.programs / "cuda_steps"), *map(str, words)]


@pytest.fixture(autouse=True)
def no_test_hangs():
    """A test that waits for ever becomes a failure."""
    def give_up(number, frame):
        raise TimeoutError("the test hangs")
    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(TIMEOUT)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def fragscope(build, tmp_path):
    tool = Fragscope(build, tmp_path)
    if not tool.path.exists():
        pytest.fail(f"{tool.path} is not built")
    return tool


def one_line(text):
    """stderr as text; fails unless it is exactly one line that names the program."""
    text = text.decode() if isinstance(text, bytes) else text
    assert text.startswith("fragscope: ") and text.count("\n") == 1 and text.endswith("\n"), text
    return text
