"""`replay --export-snapshot`: the allocator at a moment as a file that PyTorch could have written."""

import os
import pathlib
import pickle
import subprocess

import pytest

from test_snapshot import MIB, dump, replayed, whole_run  # noqa: F401 (dump: a fixture)
from test_torch_run import torch_python  # noqa: F401 (a fixture)

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden"
SEGMENT = ("device", "address", "total_size", "allocated_size", "active_size", "requested_size", "stream", "segment_type",
           "segment_pool_id", "is_expandable")
BLOCK = ("address", "size", "requested_size", "state")


def exported(fragscope, run, tmp_path, *options):
    path = tmp_path / "exported.pickle"
    fragscope("replay", run, "--export-snapshot", path, *options, check=True)
    return pickle.loads(path.read_bytes())


def segments_of(snapshot):
    return [({key: segment[key] for key in SEGMENT}, [{key: block[key] for key in BLOCK} for block in segment["blocks"]])
            for segment in snapshot["segments"]]


def entries_of(snapshot):
    return [[(entry["action"], entry.get("addr", entry.get("device_free")), entry["size"], entry["stream"]) for entry in trace]
            for trace in snapshot["device_traces"]]


def test_what_was_read_is_written_again(fragscope, dump, tmp_path):
    data = whole_run()
    snapshot = exported(fragscope, dump(data), tmp_path)
    assert [[b["address"], b["size"], b["state"]] for b in snapshot["segments"][0]["blocks"]] == [
        [b["address"], b["size"], b["state"]] for b in data["segments"][0]["blocks"]]
    assert entries_of(snapshot)[0] == entries_of(data)[0]
    assert [e["time_us"] for e in snapshot["device_traces"][0]] == [e["time_us"] for e in data["device_traces"][0]]
    frame = {"name": "forward", "filename": "project/model.py", "line": 54}
    assert snapshot["device_traces"][0][0]["frames"] == [frame]
    assert snapshot["segments"][0]["frames"] == [frame]


def test_the_exported_file_replays_like_its_source(fragscope, dump, tmp_path):
    source = dump(whole_run())
    exported(fragscope, source, tmp_path)
    before, after = (replayed(fragscope, path)["devices"][0] for path in (source, tmp_path / "exported.pickle"))
    assert before["verify"]["address_matches"] == before["verify"]["block_events"] and after["verify"] == before["verify"]
    for level in ("reserved_bytes", "allocated_bytes", "segments"):
        assert after[level] == before[level]


@pytest.mark.parametrize("at, allocated, entries", [("3", 3 * MIB, 2), ("peak", 12 * MIB + 512, 4), ("oom", 8 * MIB, 7),
                                                    ("end", 8 * MIB, 7)])
def test_moments(fragscope, dump, tmp_path, at, allocated, entries):
    snapshot = exported(fragscope, dump(whole_run()), tmp_path, "--at", at)
    assert sum(segment["allocated_size"] for segment in snapshot["segments"]) == allocated
    assert len(snapshot["device_traces"][0]) == entries


def test_a_what_if_is_exported_too(fragscope, dump, tmp_path):
    snapshot = exported(fragscope, dump(whole_run()), tmp_path, "--at", "peak", "--torch", "2.7", "--alloc-conf",
                        "expandable_segments:True", "--trace-entries", "2")
    assert [segment["is_expandable"] for segment in snapshot["segments"]] == [True]
    assert snapshot["allocator_settings"]["PYTORCH_CUDA_ALLOC_CONF"] == "expandable_segments:True"
    assert [entry["action"] for entry in snapshot["device_traces"][0]] == ["alloc", "alloc"]
    assert "compile_context" not in snapshot["device_traces"][0][0], "not before 2.8"
    assert "host_segments" not in snapshot, "not before 2.14"


@pytest.mark.parametrize("options, code, words", [
    (["--at", "noon"], 2, "is no moment"),
    (["--at", "900"], 1, "the last one is"),
    (["--at", "oom"], 1, "no request failed"),
    (["--pid", "1"], 2, "no such process"),
    (["--strict"], 2, "--strict"),
    (["--as", "cuda"], 2, "--as"),
    (["--alloc-conf", "max_split_size_mb:1"], 2, "max_split_size_mb too small"),
])
def test_what_cannot_be_exported_is_said(fragscope, dump, tmp_path, options, code, words):
    data = whole_run()
    data["device_traces"][0].pop()  # the out-of-memory entry
    done = fragscope("replay", dump(data), "--export-snapshot", tmp_path / "out", *options)
    assert done.returncode == code
    assert done.stderr.decode().count("\n") == 1 and words in done.stderr.decode()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("device", [4096, 2**31 - 1])
def test_a_device_that_no_snapshot_can_have(fragscope, tmp_path, device):
    trace = tmp_path / "damaged.trace"
    trace.write_text((GOLDEN / "replay/false_oom.trace").read_text().replace("device=0", f"device={device}"))
    done = fragscope("replay", trace, "--export-snapshot", tmp_path / "out")
    assert done.returncode == 3 and f"used device {device}," in done.stderr.decode()
    assert not (tmp_path / "out").exists()


def test_options_of_the_export_want_it(fragscope, dump):
    done = fragscope("replay", dump(whole_run()), "--at", "peak")
    assert done.returncode == 2 and b"--export-snapshot" in done.stderr


def test_an_output_that_cannot_be_written(fragscope, dump, tmp_path):
    done = fragscope("replay", dump(whole_run()), "--export-snapshot", tmp_path / "none" / "out")
    assert done.returncode == 4 and b"cannot be written" in done.stderr


PROGRAM = """
import pickle, sys, torch
torch.cuda.memory._record_memory_history(stacks="python")
taken = 0

def take():
    global taken
    with open(f"{sys.argv[1]}/{taken}.pickle", "wb") as file:
        pickle.dump(torch.cuda.memory._snapshot(), file)
    taken += 1

def tensor(size):
    return torch.empty(size, dtype=torch.uint8, device="cuda")

small = [tensor(size) for size in (1, 700, 5000, 900_000)]
large = [tensor(size << 20) for size in (3, 5, 30, 2)]
del small[1], large[1]
take()
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    other = tensor(7 << 20)
pool = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(pool):
    private = [tensor(9 << 20), tensor(1000)]
large[0].record_stream(side)
del large[0]
take()
small.append(tensor(123))
del private[0]
torch.cuda.empty_cache()
take()
"""

VIEWERS = """
import pickle, sys
from torch.cuda import _memory_viz as viz
with open(sys.argv[1], "rb") as file:
    data = pickle.load(file)
assert "GiB" in viz.segsum(data) or "MiB" in viz.segsum(data)
assert "cudaMalloc" in viz.trace(data) or "segment_map" in viz.trace(data)
for page in viz.trace_plot(data), viz.segment_plot(data), viz.trace_plot(data, plot_segments=True):
    assert "MemoryViz.js" in page
print("ok")
"""


@pytest.mark.torch
@pytest.mark.parametrize("conf", ["", "expandable_segments:True", "max_split_size_mb:21,garbage_collection_threshold:0.5"])
def test_the_same_as_torch_says_of_itself(fragscope, torch_python, tmp_path, conf):
    env = dict(os.environ, PYTORCH_CUDA_ALLOC_CONF=conf)
    run = fragscope.record(torch_python, "-c", PROGRAM, str(tmp_path), gpu="4GiB", env=env)
    moments = [event["seq"] for event in run.events() if event["kind"] == "snapshot"]
    assert len(moments) == 3
    for number, seq in enumerate(moments):
        theirs = pickle.loads((tmp_path / f"{number}.pickle").read_bytes())
        ours = exported(fragscope, run.directory, tmp_path, "--at", str(seq - 1))
        assert segments_of(ours) == segments_of(theirs)
        assert entries_of(ours) == entries_of(theirs)
        assert ours["allocator_settings"] == {**theirs["allocator_settings"], "PYTORCH_CUDA_ALLOC_CONF": conf}
        assert set(ours) == set(theirs)
        assert set(ours["segments"][0]) == set(theirs["segments"][0])
        assert set(ours["device_traces"][0][0]) == set(theirs["device_traces"][0][0])
    done = subprocess.run([torch_python, "-c", VIEWERS, str(tmp_path / "exported.pickle")], capture_output=True, text=True,
                          timeout=300, check=False)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr[-2000:]
