"""What enforcement is for: the demo's false out-of-memory goes away with one more flag, on a small
card and on a large one that is capped; what needs more than the card still fails cleanly."""

import json

import pytest

CARDS = [("12GiB", ()), ("24GiB", ("--memory-limit", "12GiB"))]


def demo(build):
    return build / "bin/fragscope-demo-train"


@pytest.mark.parametrize("gpu, cap", CARDS)
def test_one_flag_makes_the_demos_false_oom_go_away(build, fragscope, gpu, cap):
    refused = fragscope.record(demo(build), gpu=gpu, options=("-q", *cap))
    assert refused.finished.returncode == 1
    assert b"OutOfMemoryError: CUDA out of memory. Tried to allocate 98.00 MiB" in \
        refused.finished.stderr
    verdict = json.loads(fragscope("explain", "--json", refused.directory, check=True).stdout)
    assert verdict["verdict"] == "fragmentation"
    fixed = fragscope.record(demo(build), gpu=gpu, options=("-q", *cap, "--max-split-size-mb", "32"))
    assert fixed.finished.returncode == 0, fixed.finished.stderr.decode()
    assert b"step 15" in fixed.finished.stdout


def test_the_advised_expandable_segments_make_it_go_away_too(build, fragscope):
    """The setting that `fragscope advise` prints first for the demo's recording."""
    run = fragscope.record(demo(build), gpu="12GiB",
                           options=("-q", "--alloc-conf", "expandable_segments:True"))
    assert run.finished.returncode == 0, run.finished.stderr.decode()
    assert b"step 15" in run.finished.stdout
    kinds = {e["kind"] for e in run.events()}
    assert {"va_reserve", "phys_create", "va_map", "segment_map"} <= kinds
    fragscope("replay", "--strict", run.directory, check=True)


def test_expandable_segments_on_too_small_a_card_fail_with_pytorchs_message(build, fragscope):
    run = fragscope.record(demo(build), gpu="4GiB",
                           options=("-q", "--alloc-conf", "expandable_segments:True"))
    assert run.finished.returncode == 1
    assert b"GPU 0 has a total capacity of 4.00 GiB" in run.finished.stderr
    fragscope("replay", "--strict", run.directory, check=True)


@pytest.mark.parametrize("options", [(), ("--max-split-size-mb", "32"), ("--enforce", "shim",
                                                                     "--max-split-size-mb", "32"),
                                     ("--memory-limit", "512MiB")])
def test_what_needs_more_than_the_card_fails_with_cudas_own_error(fragscope, options):
    run = fragscope.record(*[str(fragscope.programs / "cuda_caps"), "hold", "2000"], gpu="1GiB",
                           options=("-q", *options))
    limit = 512 if "--memory-limit" in options else 1024
    assert (run.finished.returncode, run.finished.stdout) == (0, f"2 {limit}\n".encode())


def test_a_served_program_under_a_cap_stays_below_it_and_is_verified(fragscope):
    program = str(fragscope.programs / "cuda_train")
    run = fragscope.record(program, "6", gpu="24GiB",
                           options=("-q", "--enforce", "shim", "--max-split-size-mb", "64",
                                    "--memory-limit", "400MiB"))
    assert run.finished.returncode == 0
    failed = int(run.finished.stdout.split()[1])
    assert failed > 0
    report = json.loads(fragscope("report", "--json", run.directory, check=True).stdout)
    (device,) = report["processes"][0]["devices"]
    assert 300 << 20 < device["driver_bytes"]["peak"] <= 400 << 20
    assert device["total_bytes"] == 400 << 20
    fragscope("replay", "--strict", run.directory, check=True)
    refused = [e for e in run.events() if e.get("refused")]
    assert refused and all(e["result"] == 2 for e in refused)
