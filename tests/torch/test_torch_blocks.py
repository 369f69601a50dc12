"""The recorder under a real PyTorch on the simulated GPU: what the trace adds up to equals what torch
itself says, and torch prints the same without the recorder."""

import json
import subprocess
import sys

import pytest

SCRIPT = """
import os, random, sys, torch
random.seed(7)
side, live = torch.cuda.Stream(), []
for i in range(3000):
    if live and random.random() < 0.48:
        live.pop(random.randrange(len(live)))
    else:
        with torch.cuda.stream(side if random.random() < 0.2 else torch.cuda.current_stream()):
            size = int(2 ** random.uniform(3, 25))
            live.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
    if i % 100 == 0 and live:
        random.choice(live).record_stream(side)
    if i == 2000:
        torch.cuda.empty_cache()
pinned = torch.empty(100000, pin_memory=True)
stats = torch.cuda.memory_stats()
print(*(stats[f"{key}_bytes.all.{what}"]
        for key in ("allocated", "reserved", "requested") for what in ("peak", "current")))
sys.stdout.flush()
os._exit(0)
"""


class Level:
    """Running sum and its peak."""

    def __init__(self):
        self.current = self.peak = 0

    def add(self, amount):
        self.current += amount
        self.peak = max(self.peak, self.current)


def add_up(events):
    """[allocated peak, current, reserved peak, current, requested peak, current] of the blocks."""
    allocated, reserved, requested, live = Level(), Level(), Level(), {}
    for event in events:
        kind, address = event["kind"], event["address"]
        if kind == "alloc":
            live[address] = event
            allocated.add(event["size"])
            requested.add(event["requested"])
        elif kind == "free_requested":
            block = live.pop(address)
            allocated.add(-block["size"])
            requested.add(-block["requested"])
        elif kind in ("segment_alloc", "segment_map"):
            reserved.add(event["size"])
        elif kind in ("segment_free", "segment_unmap"):
            reserved.add(-event["size"])
    return [n for level in (allocated, reserved, requested) for n in (level.peak, level.current)]


def run(build, *arguments, script):
    command = [build / "bin/fragscope", "run", "-q", "--gpu", "24GiB", *arguments]
    done = subprocess.run(
        [*command, "--", sys.executable, "-W", "ignore", str(script)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "blocks.py"
    path.write_text(SCRIPT)
    return path


@pytest.mark.parametrize("settings", ["", "expandable_segments:True"])
def test_trace_adds_up_to_torchs_own_figures(build, tmp_path, monkeypatch, script, settings):
    for variable in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        monkeypatch.setenv(variable, settings)
    out = tmp_path / "run.fsr"
    printed = run(build, "-o", out, script=script)
    assert printed == run(build, "--no-record", script=script)

    listing = subprocess.run(
        [build / "bin/fragscope", "events", "--jsonl", out], capture_output=True, text=True, check=True
    )
    events = [json.loads(line) for line in listing.stdout.splitlines()]
    blocks = [e for e in events if e["plane"] == "block"]
    assert add_up(blocks) == [int(word) for word in printed.split()]
    # The adaptor knows every block's stream and request, from the first on.
    assert all(e["stream"] is not None and e["requested"] is not None for e in blocks)
    assert len({e["stream"] for e in blocks if e["kind"] == "alloc"}) == 2
    assert any(e["kind"] == "pinned_alloc" for e in events)
    if not settings:
        driver = [(e["address"], e["size"]) for e in events if e["kind"] == "device_alloc"]
        assert driver == [(e["address"], e["size"]) for e in blocks if e["kind"] == "segment_alloc"]


CHANGES = """
import random, sys, torch
random.seed(3)
live = []
for settings in sys.argv[1:]:
    if settings:
        torch.cuda.memory._set_allocator_settings(settings)
    for _ in range(150):
        if live and random.random() < 0.5:
            live.pop(random.randrange(len(live)))
        else:
            live.append(torch.empty(int(2 ** random.uniform(10, 27)), dtype=torch.uint8, device="cuda"))
"""
THEN = ["max_split_size_mb:64", "roundup_power2_divisions:4,garbage_collection_threshold:0.5",
        "expandable_segments:True", "max_split_size_mb:40", "expandable_segments:False"]


@pytest.mark.parametrize("environment, steps, told", [
    ("", ["", *THEN], THEN),
    ("", ["expandable_segments:True"], ["expandable_segments:True"]),  # before the first tensor
    ("max_split_size_mb:64", ["", "roundup_power2_divisions:2"], ["roundup_power2_divisions:2"]),
    ("max_split_size_mb:64", [""], []),
    ("", ["", ""], []),
])
def test_settings_that_the_program_changes_are_told_and_verified(
        build, tmp_path, monkeypatch, environment, steps, told):
    for variable in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        monkeypatch.delenv(variable, raising=False)
    if environment:
        monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", environment)
    script, out = tmp_path / "changes.py", tmp_path / "run.fsr"
    script.write_text(CHANGES)
    subprocess.run([build / "bin/fragscope", "run", "-q", "--gpu", "24GiB", "-o", out, "--", sys.executable,
                    "-W", "ignore", script, *steps], check=True, timeout=300)

    def read(*command):
        done = subprocess.run([build / "bin/fragscope", *command, "--json", out], capture_output=True,
                              text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)["processes"][0]

    changes = read("info")["settings_changes"]
    assert [change["settings"] for change in changes] == told
    assert all(change["seq"] is not None for change in changes)
    verified = read("replay", "--strict")["devices"][0]["verify"]
    assert verified["address_matches"] == verified["block_events"] > 50
    assert verified["segment_matches"] == verified["segment_calls"] > 0


POOLS = """
import random, torch
random.seed(5)

def churn(live, steps):
    for _ in range(steps):
        if live and random.random() < 0.5:
            live.pop(random.randrange(len(live)))
        else:
            live.append(torch.empty(int(2 ** random.uniform(3, 25)), dtype=torch.uint8, device="cuda"))

live, held, pool = [], [], torch.cuda.MemPool()
churn(live, 300)
for _ in range(3):
    with torch.cuda.use_mem_pool(pool):
        churn(held, 100)
    churn(live, 100)
del held
churn(live, 100)
del pool
torch.cuda.empty_cache()
churn(live, 100)
"""


def test_private_pools_are_told_and_verified(build, tmp_path):
    script = tmp_path / "pools.py"
    script.write_text(POOLS)
    out = tmp_path / "run.fsr"
    run(build, "-o", out, script=script)
    tool = build / "bin/fragscope"
    listing = subprocess.run([tool, "events", "--jsonl", out], capture_output=True, text=True, check=True)
    events = [json.loads(line) for line in listing.stdout.splitlines()]
    pools = {tuple(e["pool"]) for e in events if e["kind"] in ("alloc", "segment_alloc")}
    assert len(pools) == 2 and (0, 0) in pools
    replayed = subprocess.run([tool, "replay", "--json", out], capture_output=True, text=True, check=True)
    verify = json.loads(replayed.stdout)["processes"][0]["devices"][0]["verify"]
    assert verify["first_divergence"] is None
    assert verify["address_matches"] == verify["block_events"] > 300
    assert verify["segment_matches"] == verify["segment_calls"]
