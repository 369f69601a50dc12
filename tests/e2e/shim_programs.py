"""The programs of the shim's tests (programs/shim_*.cpp), run with and without libfragscope.so."""

import os
import subprocess

import pytest

import fslog


class Programs:
    def __init__(self, build, out):
        self.directory = build / "tests/shim"
        self.shim = build / "lib/libfragscope.so"
        self.out = out

    def environment(self, preload=(), **extra):
        env = {k: v for k, v in os.environ.items() if not k.startswith("FRAGSCOPE_")}
        env.update({"FRAGSCOPE_OUT": str(self.out), **extra})
        if preload:
            env["LD_PRELOAD"] = ":".join(str(p) for p in preload)
        return env

    def run(self, name, *arguments, preload=None, **extra):
        preload = [self.shim] if preload is None else preload
        command = [str(self.directory / name), *map(str, arguments)]
        return subprocess.run(
            command, env=self.environment(preload, **extra), capture_output=True, timeout=120
        )

    def run_both(self, name, *arguments, **extra):
        """Runs it without and with the shim, checks that nothing differs; the logs."""
        plain = self.run(name, *arguments, preload=())
        assert not list(self.out.rglob("*"))
        shimmed = self.run(name, *arguments, **extra)
        assert shimmed.stdout == plain.stdout
        assert shimmed.stderr == plain.stderr
        assert shimmed.returncode == plain.returncode
        return self.logs()

    def logs(self):
        assert not list(self.out.rglob("*.new"))
        return fslog.logs_in(self.out)


@pytest.fixture
def programs(build, tmp_path):
    if not (build / "tests/shim/shim_basic").exists():
        pytest.fail("the programs of the shim's tests are not built")
    return Programs(build, tmp_path / "run.fsr")


def summary(log):
    return [(e["kind"], e["size"] if e["size"] != fslog.UNKNOWN else None) for e in log.events]


def allocs(log):
    return [e["size"] for e in log.of("device_alloc")]
