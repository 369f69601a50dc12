"""Memory of the host during a run: workers that load data and never touch CUDA, /dev/shm, pinned blocks."""

import json
import sys

import pytest

pytestmark = pytest.mark.torch

BATCH = 8 * 3 * 128 * 128 * 4

# Goes on with epochs until the collector has seen both workers with a whole batch in /dev/shm: a look may
# fall between a file's creation and its last page, and then sees a part of it.
LOADER = """
import glob, json, os, sys
import torch
from torch.utils.data import DataLoader, Dataset

class Images(Dataset):
    def __len__(self):
        return 32
    def __getitem__(self, index):
        return torch.full((3, 128, 128), float(index))

def was_seen(path):
    batch = 8 * 3 * 128 * 128 * 4
    processes, seen, whole = {}, set(), False
    if not os.path.exists(path):  # not before the first look
        return False
    for line in open(path).read().splitlines(keepends=True):
        if not line.endswith("\\n"):
            break
        entry = json.loads(line)
        if "pid" in entry:
            processes[entry["process"]] = entry["parent"]
        for process, rss, pss, shm in entry.get("by_process", ()):
            if processes[process] == os.getpid() and (shm or 0) >= batch:
                seen.add(process)
        if "tree" in entry:
            whole |= min(entry["tree"][2] or 0, entry["shm_used"] or 0) >= batch
    return whole and len(seen) >= 2

def main(run):
    device = torch.device("cuda")
    model = torch.nn.Conv2d(3, 8, 3).to(device)
    loader = DataLoader(Images(), batch_size=8, num_workers=2, pin_memory=True, persistent_workers=True)
    for epoch in range(10000):
        for batch in loader:
            model(batch.to(device, non_blocking=True)).sum().backward()
        if was_seen(run + "/host.jsonl"):
            break
    stats = torch.cuda.host_memory_stats()
    print(json.dumps({"held": stats["allocated_bytes.current"], "epochs": epoch + 1}))

if __name__ == "__main__":
    main(sys.argv[1])
"""


def test_workers_shared_memory_and_pinned_blocks(fragscope, tmp_path):
    script = tmp_path / "loader.py"
    script.write_text(LOADER)
    directory = fragscope.new_directory()
    done = fragscope("run", "--gpu", "4GiB", "--sample-ms", "50", "-o", directory, "--", sys.executable, script,
                     directory, check=True)
    said = json.loads(done.stdout)
    report = json.loads(fragscope("report", "--json", directory, check=True).stdout)

    host = report["run"]["host_memory"]
    [trainer] = [p for p in host["processes"] if p["recorded"]]
    workers = [p for p in host["processes"] if p["parent_pid"] == trainer["pid"]]
    assert len([w for w in workers if (w["peak_shm_bytes"] or 0) >= BATCH]) >= 2
    assert not any(w["recorded"] for w in workers)
    assert host["peak"]["shm_bytes"] >= BATCH
    assert host["peak"]["shm_used_bytes"] >= BATCH
    assert host["peak"]["processes"] >= 3
    assert host["peak"]["rss_bytes"] >= max(p["peak_rss_bytes"] for p in host["processes"])
    assert host["peak"]["pss_bytes"] <= host["peak"]["rss_bytes"]
    times = [moment["t_ns"] for moment in host["series"]]
    assert times == sorted(times) and len(times) >= 2

    [process] = report["processes"]
    pinned = process["pinned_bytes"]
    assert pinned["torch_host"] == pinned["driver"]
    assert pinned["torch_host"]["final"] == said["held"]
    # Batches of 1.5 MiB in blocks of 2 MiB: PyTorch rounds up to a power of two.
    assert pinned["torch_host"]["final"] % (2 << 20) == 0
    assert pinned["torch_host_most_padding"]["final"] == pinned["torch_host"]["final"] // 2 - \
        pinned["torch_host"]["final"] // (2 << 20)
    [holder] = [h for h in pinned["holders"] if h["peak_bytes"] == pinned["driver"]["peak"]]
    assert holder["torch_host"]
    assert any("pin_memory" in line for line in holder["stack"])

    text = fragscope("report", directory, check=True).stdout.decode()
    assert "PyTorch's host allocator: peak" in text
    assert "no CUDA memory calls" in text
    info = fragscope("info", directory, check=True).stdout.decode()
    assert "/dev/shm: at most" in info


def test_without_native_stacks_pinned_memory_is_nobodys(fragscope):
    run = fragscope.record(sys.executable, "-c", "import torch; x = torch.empty(5000).pin_memory()", gpu="1GiB",
                           options=["--stacks", "python"])
    assert run.finished.returncode == 0, run.finished.stderr.decode()
    [process] = json.loads(fragscope("report", "--json", run.directory, check=True).stdout)["processes"]
    assert process["pinned_bytes"]["torch_host"] == {"peak": None, "final": None}
    assert process["pinned_bytes"]["driver"]["peak"] > 0


def test_popular_rules_are_held_against_the_run(fragscope, tmp_path):
    script = tmp_path / "loader.py"
    script.write_text(LOADER)
    directory = fragscope.new_directory()
    fragscope("run", "--gpu", "4GiB", "--sample-ms", "50", "-o", directory, "--", sys.executable, script, directory,
              check=True)
    answer = fragscope("advise", "--data-loading", "--json", "--cores", "12", directory, check=True).stdout
    loading = json.loads(answer)["data_loading"]
    measured = loading["measured"]
    assert measured["workers"] == 2 and measured["workers_with_device"] == 0
    assert measured["batch_bytes"] == BATCH
    assert measured["pinned_torch_bytes"] % (2 << 20) == 0
    rules = {rule["name"]: rule for rule in loading["rules"]}
    assert rules["256_mb_per_worker"]["verdict"] == "false"
    assert rules["256_mb_per_worker"]["bytes"] == measured["pinned_torch_bytes"]
    assert rules["no_pinning_up_to_8gb"]["verdict"] == "false"
    assert rules["halve_workers"]["verdict"] == "undecidable"
    counts = {count["name"]: count for count in loading["counts"]}
    assert counts["get_optimal_workers"]["most"] == 6
    assert (counts["table by card"]["least"], counts["table by card"]["pinning"]) == (2, False)
    assert loading["recommended"] == 6
    text = fragscope("advise", "--data-loading", directory, check=True).stdout.decode()
    assert "2 workers at one time" in text
