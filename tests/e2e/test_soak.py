"""programs/cuda_soak.cpp, briefly; `make soak` runs it with 10^8 pairs."""

import subprocess

import pytest


def soak(fragscope, build, *arguments):
    return subprocess.run(
        [build / "tests/cuda/cuda_soak", *arguments], capture_output=True, text=True, timeout=240,
        env=fragscope.environment | {
            "LD_LIBRARY_PATH": str(build / "lib/fragscope/sim"),
            "FRAGSCOPE_SIM": f"total_bytes={2**33};event_latency_queries=5"})


@pytest.mark.parametrize("how", [["16", "4"], ["1", "2"], ["16", "4", "cuda-free"]])
def test_no_overlap_no_early_reuse_no_leak(fragscope, build, how):
    done = soak(fragscope, build, "200000", *how)
    assert done.returncode == 0, done.stdout
    assert "overlaps 0 lost 0 early 0 wrong frees 0 refused 0" in done.stdout
    assert "shared 0" not in done.stdout
    assert "0 allocated, 0 reserved, 0 bytes of the device" in done.stdout


@pytest.mark.parametrize("how", [[], ["cuda-free"]])
def test_a_broken_rule_is_caught(fragscope, build, how):
    """The same with an allocator that takes every event for done and never waits."""
    done = soak(fragscope, build, "200000", "16", "4", *how, "hasty")
    assert done.returncode == 1
    assert "early 0" not in done.stdout and "overlaps 0 lost 0" in done.stdout
