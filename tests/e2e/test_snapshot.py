"""PyTorch's snapshot pickles read like recordings: info, events, report, replay; hostile ones end in
one line."""

import json
import os
import pickle

import pytest

MIB = 1 << 20
BASE = 0x7f0000000000


class Recorder:
    """A snapshot as torch.cuda.memory._snapshot() gives it, one device, default settings."""

    def __init__(self):
        self.segments, self.trace, self.time_us = {}, [], 1_700_000_000_000_000

    def entry(self, action, addr, size, **more):
        self.time_us += 7
        key = "device_free" if action == "oom" else "addr"
        self.trace.append({"action": action, key: addr, "size": size, "stream": 0, "time_us": self.time_us,
                           "frames": [{"name": "forward", "filename": "project/model.py", "line": 54}], **more})

    def segment(self, address, kind, blocks):
        total = sum(size for size, _, _ in blocks)
        shown, at = [], address
        for size, requested, state in blocks:
            shown.append({"address": at, "size": size, "requested_size": requested, "state": state, "frames": []})
            at += size
        self.segments[address] = {
            "device": 0, "address": address, "total_size": total, "stream": 0, "segment_type": kind,
            "segment_pool_id": (0, 0), "is_expandable": False, "frames": [], "blocks": shown}

    def data(self):
        return {"segments": [self.segments[key] for key in sorted(self.segments)],
                "device_traces": [self.trace, []],
                "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1,
                                       "garbage_collection_threshold": 0.0, "expandable_segments": False},
                "external_annotations": [{"name": "step", "stage": "START", "device": 0,
                                          "time_us": 1_700_000_000_000_001}]}


def whole_run():
    """From the first segment on: three blocks, the second freed, an out-of-memory error."""
    recorder = Recorder()
    recorder.entry("segment_alloc", BASE, 20 * MIB)
    recorder.entry("alloc", BASE, 3 * MIB)
    recorder.entry("alloc", BASE + 3 * MIB, 4 * MIB + 1)
    recorder.entry("alloc", BASE + 7 * MIB + 512, 5 * MIB)
    recorder.entry("free_requested", BASE + 3 * MIB, 4 * MIB + 1)
    recorder.entry("free_completed", BASE + 3 * MIB, 4 * MIB + 1)
    recorder.entry("oom", 1 * MIB, 900 * MIB)
    recorder.segment(BASE, "large", [(3 * MIB, 3 * MIB, "active_allocated"), (4 * MIB + 512, 4 * MIB + 1, "inactive"),
                                     (5 * MIB, 5 * MIB, "active_allocated"), (8 * MIB - 512, 0, "inactive")])
    return recorder.data()


@pytest.fixture
def dump(tmp_path):
    def write(data, protocol=4, name="x.pickle"):
        path = tmp_path / name
        path.write_bytes(pickle.dumps(data, protocol=protocol))
        return path
    return write


def replayed(fragscope, path, *options):
    return json.loads(fragscope("replay", "--json", *options, path, check=True).stdout)["processes"][0]


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_whole_run_is_reproduced(fragscope, dump, protocol):
    process = replayed(fragscope, dump(whole_run(), protocol))
    assert process["pid"] is None
    assert process["block_source"] == "snapshot"
    assert process["replay"]["mode"] == "verified"
    device = process["devices"][0]
    assert device["verify"]["block_events"] == device["verify"]["address_matches"] == 4
    assert device["verify"]["segment_calls"] == device["verify"]["segment_matches"] == 1
    assert device["verify"]["first_divergence"] is None
    assert device["allocated_bytes"]["peak"] == 12 * MIB + 512
    assert device["reserved_bytes"]["final"] == 20 * MIB
    assert device["ooms"][0]["device_free_bytes"] == MIB


def test_events_and_info_tell_what_the_file_has(fragscope, dump):
    path = dump(whole_run())
    lines = fragscope("events", "--jsonl", "--stacks", path, check=True).stdout.splitlines()
    events = [json.loads(line) for line in lines]
    assert [e["kind"] for e in events] == ["range_push", "segment_alloc", "alloc", "alloc", "alloc", "free_requested",
                                           "free_completed", "oom"]
    assert events[0]["text"] == "step"
    assert events[2]["pid"] is None and events[2]["tid"] is None
    assert events[2]["requested"] == 3 * MIB and events[2]["size"] is None
    assert events[2]["pool"] == [0, 0] and events[2]["source"] == "snapshot"
    assert events[2]["stack"] == [{"address": None, "module": None, "offset": None, "function": "forward",
                                   "file": "project/model.py", "line": 54, "python": True}]
    info = json.loads(fragscope("info", "--json", path, check=True).stdout)["processes"][0]
    assert info["properties"]["snapshot.entries"] == "7"
    assert info["properties"]["snapshot.torch_oldest"] == "2.5"
    assert info["pid"] is None


def test_report_names_sizes_stacks_and_gaps(fragscope, dump):
    report = json.loads(fragscope("report", "--json", dump(whole_run()), check=True).stdout)
    process = report["processes"][0]
    device = process["devices"][0]
    assert device["allocated_bytes"] == {"peak": 12 * MIB + 512, "final": 8 * MIB}
    assert device["driver_bytes"] == {"peak": None, "final": None}
    moments = {moment["name"]: moment for moment in device["moments"]}
    assert moments["end"]["top_stacks"][0]["stack"] == ["forward (model.py:54)"]
    assert any("snapshot that PyTorch wrote" in note for note in process["notes"])


@pytest.mark.parametrize("native_file", ["??", ""])
def test_stacks_of_python_and_native_frames_read_as_those_of_recordings(fragscope, dump, native_file):
    """PyTorch writes the native frames first; people look for their own lines."""
    def native(*names):
        return [{"name": name, "filename": native_file, "line": 0} for name in names]
    data = whole_run()
    for entry in data["device_traces"][0]:
        entry["frames"] = (
            native("torch::unwind::unwind()", "c10::cuda::CUDACachingAllocator::Native::malloc(void**)",
                   "at::detail::empty_cuda(c10::ArrayRef<long>)", "at::native::empty_cuda(long)", "mine::kernel(int)")
            + [{"name": "forward", "filename": "project/model.py", "line": 54}]
            + native("_PyEval_EvalFrameDefault", "Py_BytesMain", "__libc_start_main"))
    path = dump(data)
    report = json.loads(fragscope("report", "--json", path, check=True).stdout)
    moments = {moment["name"]: moment for moment in report["processes"][0]["devices"][0]["moments"]}
    expected = ["forward (model.py:54)", "… 2 frames of PyTorch", "mine::kernel"]
    assert moments["end"]["top_stacks"][0]["stack"] == expected
    for command in ("explain", "attribute", "report"):
        text = fragscope(command, path, check=True).stdout.decode()
        lines = [line.strip() for line in text.splitlines()]
        at = lines.index("forward (model.py:54)")
        assert lines[at + 1:at + 3] == ["… 2 frames of PyTorch", "mine::kernel"], command
        assert "_PyEval" not in text and "CUDACachingAllocator" not in text


def mid_run():
    """The same, but recording began when the first two blocks were there."""
    data = whole_run()
    data["device_traces"][0] = data["device_traces"][0][3:]
    return data


def test_a_run_recorded_from_the_middle_starts_with_what_was_there(fragscope, dump):
    process = replayed(fragscope, dump(mid_run()))
    device = process["devices"][0]
    assert device["verify"]["block_events"] == device["verify"]["address_matches"] == 2
    assert device["allocated_bytes"]["peak"] == 12 * MIB + 512
    assert any("1 segment(s) and 2 block(s) were there before the trace begins" in n for n in process["notes"])
    assert any("the size of 1 block(s)" in note for note in process["notes"])


def test_a_wrong_address_is_the_first_divergence(fragscope, dump):
    data = whole_run()
    for entry in data["device_traces"][0]:
        if entry.get("addr") == BASE + 7 * MIB + 512:
            entry["addr"] += MIB
    data["segments"][0]["blocks"][1]["size"] += MIB
    data["segments"][0]["blocks"][2]["address"] += MIB
    data["segments"][0]["blocks"][3]["address"] += MIB
    data["segments"][0]["blocks"][3]["size"] -= MIB
    path = dump(data)
    device = replayed(fragscope, path)["devices"][0]
    assert device["verify"]["address_matches"] == 3
    assert device["verify"]["first_divergence"]["seq"] == 5
    assert fragscope("replay", "--strict", path).returncode == 1


def test_what_if_on_a_snapshot(fragscope, dump):
    process = replayed(fragscope, dump(mid_run()), "--device-memory", "18MiB")
    assert process["replay"]["mode"] == "what_if"
    assert process["devices"][0]["ooms"][0]["requested_bytes"] == 3 * MIB
    process = replayed(fragscope, dump(mid_run()), "--alloc-conf", "expandable_segments:True")
    assert process["replay"]["alloc_conf"] == "expandable_segments:True"
    assert any("requested first, in the order of its addresses" in note for note in process["notes"])


def test_what_if_without_a_known_device_size(fragscope, dump):
    data = mid_run()
    data["device_traces"][0] = [entry for entry in data["device_traces"][0] if entry["action"] != "oom"]
    device = replayed(fragscope, dump(data), "--alloc-conf", "expandable_segments:True")["devices"][0]
    assert device["capacity_bytes"] is None
    assert device["ooms"] == []
    assert device["reserved_bytes"]["peak"] == 20 * MIB
    assert device["allocated_bytes"]["peak"] == 12 * MIB + 512


def test_segments_alone_give_a_report_and_no_replay(fragscope, dump):
    data = whole_run()
    data["device_traces"] = [[], []]
    path = dump(data)
    report = json.loads(fragscope("report", "--json", path, check=True).stdout)["processes"][0]
    assert report["devices"][0]["allocated_bytes"]["final"] == 8 * MIB
    process = replayed(fragscope, path)
    assert process["replay"]["mode"] == "undecidable"
    assert "holds segments but no trace" in process["replay"]["reason"]


def test_segment_events_that_were_filtered_out_are_said(fragscope, dump):
    data = whole_run()
    data["segments"] = []
    data["device_traces"][0] = [e for e in data["device_traces"][0] if not e["action"].startswith("segment")]
    report = json.loads(fragscope("report", "--json", dump(data), check=True).stdout)["processes"][0]
    assert any("3 allocation(s) lie in no segment" in note for note in report["notes"])


class Evil:
    def __reduce__(self):
        return os.system, ("echo evil > evil.txt",)


@pytest.mark.parametrize("protocol", [2, 4])
def test_nothing_is_executed(fragscope, dump, tmp_path, protocol):
    path = dump({"segments": [], "device_traces": [[Evil()]]}, protocol)
    done = fragscope("report", path, cwd=tmp_path)
    assert done.returncode == 3
    line = done.stderr.decode()
    assert line.count("\n") == 1 and "system" in line and "at byte" in line and str(path) in line
    assert not (tmp_path / "evil.txt").exists()


def test_a_cut_file_says_where(fragscope, dump):
    path = dump(whole_run())
    path.write_bytes(path.read_bytes()[:700])
    done = fragscope("replay", path)
    assert done.returncode == 3
    assert done.stderr.decode().count("\n") == 1
    assert "the pickle is cut at byte" in done.stderr.decode()


def test_other_data_is_no_snapshot(fragscope, dump):
    done = fragscope("info", dump({"weights": [1, 2, 3]}))
    assert done.returncode == 3
    assert "no snapshot of PyTorch" in done.stderr.decode()
