"""Snapshots that a real PyTorch wrote on the simulated GPU: every address is predicted, wherever the
recording began."""

import json
import os
import subprocess
import sys

import pytest

SCRIPT = """
import random, sys, torch
mode, out = sys.argv[1], sys.argv[2]
random.seed(11)
record = torch.cuda.memory._record_memory_history

def churn(steps, live, side):
    for i in range(steps):
        if live and random.random() < 0.49:
            live.pop(random.randrange(len(live)))
        else:
            with torch.cuda.stream(side if random.random() < 0.2 else torch.cuda.current_stream()):
                size = int(2 ** random.uniform(3, 25))
                live.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        if i % 50 == 0 and live:
            random.choice(live).record_stream(side)
        if i % 333 == 0:
            torch.cuda.synchronize()
        if i % 700 == 699:
            torch.cuda.empty_cache()

live = []
if mode == "late":
    churn(3000, live, torch.cuda.Stream())
record(max_entries=1500 if mode == "ring" else 1_000_000, stacks="python")
side = torch.cuda.Stream()
churn(3000, live, side)
if mode == "pool":
    pool, held = torch.cuda.MemPool(), []
    with torch.cuda.use_mem_pool(pool):
        churn(400, held, side)
    churn(300, live, side)
    del held
    churn(300, live, side)
    del pool
    churn(300, live, side)
if mode == "oom":
    try:
        torch.empty(40 << 30, dtype=torch.uint8, device="cuda")
    except torch.cuda.OutOfMemoryError:
        pass
    churn(500, live, side)
torch.cuda.memory._dump_snapshot(out)
"""

SETTINGS = ["", "expandable_segments:True", "roundup_power2_divisions:4,max_split_size_mb:40"]


@pytest.fixture
def snapshot(build, tmp_path):
    script = tmp_path / "snapshot.py"
    script.write_text(SCRIPT)

    def make(mode, settings):
        path = tmp_path / "x.pickle"
        command = [build / "bin/fragscope", "run", "-q", "--no-record", "--gpu", "24GiB", "--", sys.executable,
                   "-W", "ignore", script, mode, path]
        subprocess.run(command, env=dict(os.environ, PYTORCH_CUDA_ALLOC_CONF=settings), check=True)
        return path
    return make


def replay(build, path):
    command = [build / "bin/fragscope", "replay", "--json", path]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["processes"][0]


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("mode", ["start", "pool", "oom"])
def test_recordings_from_the_start_are_exact(build, snapshot, mode, settings):
    process = replay(build, snapshot(mode, settings))
    verify = process["devices"][0]["verify"]
    assert verify["block_events"] > 1000
    assert verify["first_divergence"] is None
    assert verify["address_matches"] == verify["block_events"]
    assert verify["segment_matches"] == verify["segment_calls"]
    assert process["replay"]["alloc_conf"] == settings


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("mode", ["late", "ring"])
def test_recordings_from_the_middle_are_nearly_exact(build, snapshot, mode, settings):
    process = replay(build, snapshot(mode, settings))
    verify = process["devices"][0]["verify"]
    assert verify["block_events"] > 400
    assert verify["address_matches"] >= 0.995 * verify["block_events"], verify["first_divergence"]
    assert any("were there before the trace begins" in note for note in process["notes"])
