"""programs/cuda_served.cpp with and without FRAGSCOPE_ENFORCE=shim, on two simulated devices of 1 GiB
whose events are late: five queries after its record an event is not done, unless the device was
waited for."""

import subprocess

import pytest

import fslog


class Served:
    def __init__(self, fragscope, build, tmp_path):
        self.build, self.out = build, tmp_path / "run.fsr"
        sim = build / "lib/fragscope/sim"
        self.plain = fragscope.environment | {
            "LD_LIBRARY_PATH": str(sim),
            "FRAGSCOPE_SIM": f"devices=2;total_bytes={2**30};event_latency_queries=5"}
        self.served = self.plain | {
            "LD_PRELOAD": str(build / "lib/libfragscope.so"), "FRAGSCOPE_OUT": str(self.out),
            "FRAGSCOPE_ENFORCE": "shim", "FRAGSCOPE_ALLOC_CONF": ""}

    def run(self, mode, environment=None):
        done = subprocess.run([self.build / "tests/cuda/cuda_served", mode], capture_output=True,
                              text=True, env=environment or self.served, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout, done.stderr

    def both(self, mode):
        return self.run(mode, self.plain)[0], self.run(mode)[0]

    def logs(self):
        return fslog.logs_in(self.out)


@pytest.fixture
def served(fragscope, build, tmp_path):
    return Served(fragscope, build, tmp_path)


@pytest.mark.parametrize("mode", ["threads", "fork", "devices", "capture", "contexts",
                                  "destroyed-stream"])
def test_the_program_sees_what_cuda_does(served, mode):
    plain, got = served.both(mode)
    assert got == plain and "malloc" not in got
    assert any(log.properties["enforce"] == "shim" and log.of("alloc") for log in served.logs())


@pytest.mark.parametrize("more", [{}, {"FRAGSCOPE_ALLOC_CONF": "roundup_power2_divisions:4"},
                                  {"FRAGSCOPE_MEMORY_LIMIT": "512MiB"}])
def test_impossible_sizes_are_cudas(served, more):
    plain = served.run("impossible", served.plain)[0]
    got = served.run("impossible", served.served | more)[0]
    assert got == plain == "2 1 last 2 0\ndriver 2 1\n" * 10


@pytest.mark.parametrize("limit", [{}, {"FRAGSCOPE_MEMORY_LIMIT": "900MiB"}])
def test_idle_memory_is_there_for_calls_that_are_not_served(served, limit):
    got = served.run("room", served.served | limit)[0]
    good = "".join(f"{name} 0 last 0\n" for name in ("async", "pitch", "managed", "array", "physical"))
    assert got == good + "malloc 2\nasync 2 last 2\n"
    assert limit or served.run("room", served.plain)[0] == got


def test_room_is_made_without_harm_to_a_capture(served):
    plain, got = served.both("room-under-capture")
    assert got == plain == "async 0 last 0\nend 0\n"


def test_memory_is_reused_only_when_the_work_on_it_is_done(served):
    assert served.run("streams")[0] == "reused 1 early 0\n"
    # Four streams, five sizes: served from a few segments, not one call each.
    assert len(served.logs()[0].of("device_alloc")) < 10


def test_a_stream_ordered_free_waits_for_its_stream(served):
    assert served.run("async")[0] == "free async 0\nagain 1\nearly 0\n"


def test_a_refused_pitch_is_not_told(served):
    got = served.run("refused-pitch", served.served | {"FRAGSCOPE_MEMORY_LIMIT": "512MiB"})[0]
    assert got == "pitch 2 77\n3d 2 77 78 79\ndriver 2 77\nnone 1\n"


def test_an_exported_block_that_is_not_its_segment_is_refused(served):
    plain, got = served.both("sharing")
    assert plain == "first 0\nsecond 0 last 0\n"
    assert got == "first 0\nsecond 1 last 1\n"
    errors = served.run("sharing")[1]
    assert errors.count("\n") == 1 and "cudaIpcGetMemHandle of a served block is refused" in errors


def test_pointers_into_blocks(served):
    plain, got = served.both("pointers")
    assert "range 0 own 1 inside 1" in plain
    # CUDA knows the segment; the block lies in it.
    assert got == plain.replace("own 1", "own 0")


def test_what_is_cached_counts_as_used(served):
    plain, got = served.both("info")
    assert plain == "held 100 kept 0\nall 1\n"
    assert got == "held 100 kept 100\nall 1\n"


def test_pytorch_processes_are_left_to_pytorch(fragscope, build, tmp_path):
    """`auto`: with libc10_cuda in the process nothing is served."""
    shim, directory = build / "lib/libfragscope.so", build / "tests/shim"
    for name, preload in (("shim", [shim]), ("native", [shim, directory / "libc10_cuda.so"])):
        environment = fragscope.environment | {
            "FRAGSCOPE_ENFORCE": "auto", "FRAGSCOPE_ALLOC_CONF": "max_split_size_mb:128",
            "LD_PRELOAD": ":".join(map(str, preload)), "FRAGSCOPE_OUT": str(tmp_path / name),
            "LD_LIBRARY_PATH": str(directory)}
        subprocess.run([directory / "shim_policy"], env=environment, capture_output=True,
                       check=True, timeout=60)
        (log,) = fslog.logs_in(tmp_path / name)
        assert log.properties["enforce"] == name
        assert bool(log.of("segment_alloc")) == (name == "shim")
