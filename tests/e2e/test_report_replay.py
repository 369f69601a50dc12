"""fragscope report and fragscope replay as a user calls them: figures, schema, exit codes."""

import json
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("FRAGSCOPE_BUILD", ROOT / "build/release"))
GOLDEN = ROOT / "tests/golden"
MIB = 1 << 20
LEVELS = ("driver_bytes", "reserved_bytes", "allocated_bytes", "requested_bytes", "active_bytes",
          "inactive_split_bytes", "segments")


def fragscope(*arguments, code=0):
    done = subprocess.run([BUILD / "bin/fragscope", *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return done


def document(*arguments, code=0):
    return json.loads(fragscope(*arguments, "--json", code=code).stdout)


def no_fractions(value):
    if isinstance(value, dict):
        return all(no_fractions(item) for item in value.values())
    if isinstance(value, list):
        return all(no_fractions(item) for item in value)
    return not isinstance(value, float)


def test_report_json_has_the_schema_and_the_figures():
    report = document("report", GOLDEN / "report/ten_lines.trace")
    assert report["schema"] == 1
    assert no_fractions(report)
    assert report["run"]["path"].endswith("ten_lines.trace")
    (process,) = report["processes"]
    assert process["pid"] == 100
    assert process["exit"] == {"kind": "exited", "code": 3}
    assert process["dropped_events"] == 0
    assert process["block_source"] == "adaptor"
    assert process["coverage"]["unhooked"] == {"cuFoo": 2}
    unknown = {"peak": None, "final": None}
    assert process["pinned_bytes"] == {
        "driver": {"peak": 4096, "final": 4096}, "torch_host": unknown, "torch_host_most_padding": unknown,
        "holders": [{"peak_bytes": 4096, "peak_count": 1, "final_bytes": 4096, "torch_host": False,
                     "stack": []}]}
    assert report["run"]["host_memory"] is None
    (device,) = process["devices"]
    assert (device["index"], device["name"], device["simulated"]) == (0, "Test card", True)
    assert device["total_bytes"] == 1 << 30
    for level in LEVELS:
        assert set(device[level]) == {"peak", "final"}
    assert device["driver_bytes"] == {"peak": 22 * MIB, "final": 22 * MIB}
    assert device["allocated_bytes"] == {"peak": 9437696, "final": 9437184}
    assert device["requested_bytes"] == {"peak": 9437100, "final": 9437000}
    assert device["ooms"] == []


def test_report_text_names_every_figure():
    text = fragscope("report", GOLDEN / "report/ten_lines.trace").stdout
    for word in ("driver bytes", "reserved", "allocated", "fragmentation", "Largest gaps",
                 "Top stacks", "pins the emptiest segments", "SIMULATED", "source: adaptor", "dropped"):
        assert word in text
    assert "\x1b" not in text


def test_replay_verifies_and_answers_a_what_if():
    trace = GOLDEN / "replay/false_oom.trace"
    replay = document("replay", trace, "--strict")
    (process,) = replay["processes"]
    assert process["replay"]["mode"] == "verified"
    (device,) = process["devices"]
    assert device["verify"] == {"block_events": 5, "address_matches": 5, "segment_calls": 5,
                                "segment_matches": 5, "first_divergence": None}
    assert device["reserved_bytes"] == {"peak": 1060 * MIB, "final": 530 * MIB}
    assert [oom["requested_bytes"] for oom in device["ooms"]] == [800 * MIB]

    (process,) = document("replay", trace, "--max-split-size-mb", 21)["processes"]
    assert process["replay"]["mode"] == "what_if"
    assert process["replay"]["alloc_conf"] == "max_split_size_mb:21"
    (device,) = process["devices"]
    assert device["ooms"] == []
    assert device["ooms_avoided"] == 1
    assert device["reserved_bytes"] == {"peak": 820 * MIB, "final": 820 * MIB}
    assert device["driver_bytes"] == {"peak": None, "final": None}
    assert device["capacity_bytes"] == 1300 * MIB

    (process,) = document("replay", trace, "--alloc-conf", "expandable_segments:True")["processes"]
    assert process["devices"][0]["ooms"] == []
    (process,) = document("replay", trace, "--device-memory", "1332MiB")["processes"]
    assert process["devices"][0]["ooms"] == []


def test_strict_fails_where_a_prediction_is_wrong(tmp_path):
    text = (GOLDEN / "replay/false_oom.trace").read_text()
    wrong = tmp_path / "wrong.trace"
    moved = text.replace("12 t=111 alloc device=0 stream=0 address=0x200000000000",
                         "12 t=111 alloc device=0 stream=0 address=0x200010e00000")
    assert moved != text
    wrong.write_text(moved)
    fragscope("replay", wrong)
    (process,) = document("replay", wrong, "--strict", code=1)["processes"]
    verify = process["devices"][0]["verify"]
    assert verify["address_matches"] == verify["block_events"] - 1
    assert verify["first_divergence"]["seq"] == 12
    assert "0x200000000000" in verify["first_divergence"]["predicted"]
    assert verify["first_divergence"]["rule"].startswith("best fit: the smallest free block of the large pool")
    assert "first difference at event 12" in fragscope("replay", wrong).stdout


def test_reports_alone_leave_a_what_if_with_streams_undecidable(tmp_path):
    trace = tmp_path / "reports.trace"
    trace.write_text("process pid=1 sealed=1 exit=exited:0\n"
                     "property block_source=report\n"
                     "1 t=1 stream_create device=0 stream=5\n"
                     "2 t=2 device_alloc device=0 address=0x200000000000 size=20MiB\n"
                     "3 t=3 alloc device=0 address=0x200000000000 size=2MiB aux=2MiB aux2=20MiB flags=4\n")
    (process,) = document("replay", trace, "--max-split-size-mb", 64)["processes"]
    assert process["replay"]["mode"] == "undecidable"
    assert "streams" in process["replay"]["reason"]
    assert process["devices"][0]["reserved_bytes"] == {"peak": None, "final": None}
    assert "undecidable" in fragscope("replay", trace, "--max-split-size-mb", 64).stdout


def test_programs_without_blocks_get_modelled_figures(tmp_path):
    trace = tmp_path / "plain.trace"
    trace.write_text("process pid=1 sealed=1 exit=exited:0\n"
                     "1 t=1 device_alloc device=0 address=0x200000000000 size=3MiB\n"
                     "2 t=2 device_free device=0 address=0x200000000000\n")
    (process,) = document("replay", trace)["processes"]
    (device,) = process["devices"]
    assert process["replay"]["mode"] == "modelled"
    assert device["verify"] is None
    assert device["reserved_bytes"] == {"peak": None, "final": None}
    assert device["modelled_reserved_bytes"] == {"peak": 20 * MIB, "final": 20 * MIB}
    assert device["modelled_allocated_bytes"] == {"peak": 3 * MIB, "final": 0}
    assert "modelled reserved" in fragscope("replay", trace).stdout


@pytest.mark.parametrize("command", ["report", "replay"])
def test_what_cannot_be_read_is_one_line_and_a_code(command, tmp_path):
    foreign = tmp_path / "foreign.fst"
    foreign.write_bytes(b"\x00\x01\x02 something else")
    empty = tmp_path / "empty.trace"
    empty.write_text("process pid=1 sealed=1 exit=exited:0\n")
    for path, code in ((tmp_path / "nowhere", 3), (foreign, 3)):
        done = fragscope(command, path, code=code)
        assert done.stdout == ""
        assert len(done.stderr.strip().splitlines()) == 1
    fragscope(command, empty, code=5)
    fragscope(command, GOLDEN / "report/ten_lines.trace", "--no-such-option", code=2)


def test_bad_questions_are_usage_errors():
    trace = GOLDEN / "replay/false_oom.trace"
    for arguments in (("--alloc-conf", "no_such_option:1"), ("--device-memory", "much"), ("--device-memory", "0"),
                      ("--max-split-size-mb", "5")):
        done = fragscope("replay", trace, *arguments, code=2)
        assert len(done.stderr.strip().splitlines()) == 1


def configurations(*arguments):
    (process,) = document("replay", GOLDEN / "replay/false_oom.trace", *arguments)["processes"]
    (device,) = process["devices"]
    assert process["mode"] == "what_if"
    assert device["recorded"]["ooms"] == 1
    return device["configurations"]


def test_allocators_side_by_side():
    torch, old, cuda, plan = configurations("--as", "torch,torch-2.4", "--as", "cuda,plan")
    assert [row["as"] for row in (torch, old, cuda, plan)] == ["torch-2.6", "torch-2.4", "cuda", "plan"]
    assert torch["ooms"] == 1 and torch["ooms_avoided"] == 0
    assert cuda["ooms"] == 0 and cuda["ooms_avoided"] == 1
    assert cuda["reserved_bytes"]["peak"] == 802 * MIB
    assert plan["live_peak_bytes"] == 802 * MIB
    assert plan["reserved_bytes"]["peak"] >= plan["live_peak_bytes"]
    assert plan["fits"] is (plan["reserved_bytes"]["peak"] <= 1300 * MIB)
    text = fragscope("replay", GOLDEN / "replay/false_oom.trace", "--as", "torch-2.4,plan").stdout
    assert "recorded" in text and "torch-2.4" in text and "above the live peak" in text


def test_a_sweep_file_gives_a_row_a_line(tmp_path):
    sweep = tmp_path / "sweep.txt"
    sweep.write_text("# settings to try\ntorch\nmax_split_size_mb:21\ntorch-2.4 max_split_size_mb:21\nplan\n")
    rows = configurations("--sweep", sweep)
    assert [(row["as"], row["alloc_conf"]) for row in rows] == [
        ("torch-2.6", ""), ("torch-2.6", "max_split_size_mb:21"), ("torch-2.4", "max_split_size_mb:21"), ("plan", "")]
    assert [row["ooms"] for row in rows[:3]] == [1, 0, 0]
    assert all(key in rows[0] for key in ("device_mallocs", "device_frees", "alloc_retries", "fragmentation"))


@pytest.mark.parametrize("text, said", [("torch\nnumpy\n", "sweep.txt:2: no allocator is called 'numpy'"),
                                        ("torch-1.0 a:1\n", "sweep.txt:1: no rules for torch '1.0'"),
                                        ("max_split_size_mb:x\n", "max_split_size_mb"),
                                        ("", "no configuration")])
def test_a_wrong_sweep_file_is_a_line_and_exit_2(tmp_path, text, said):
    sweep = tmp_path / "sweep.txt"
    sweep.write_text(text)
    done = fragscope("replay", GOLDEN / "replay/false_oom.trace", "--sweep", sweep, code=2)
    assert said in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize("arguments", [("--torch", "1.0"), ("--as", "torch-1.0"), ("--as", "numpy"),
                                       ("--torch", "abc"), ("--as", "cuda", "--strict")])
def test_wrong_allocators_are_exit_2(arguments):
    done = fragscope("replay", GOLDEN / "replay/false_oom.trace", *arguments, code=2)
    assert done.stderr.count("\n") == 1
    if "1.0" in arguments[1]:
        assert "known: 2.0 … 2.15" in done.stderr


def test_a_newer_release_warns_once_and_uses_the_newest():
    done = fragscope("replay", GOLDEN / "replay/false_oom.trace", "--as", "torch-2.99,torch-2.99")
    assert done.stderr.count("no rules for torch-2.99 yet, using those of torch 2.15") == 1
    done = fragscope("replay", GOLDEN / "replay/false_oom.trace", "--torch", "3.1")
    assert done.stderr.count("no rules for torch 3.1 yet, using those of 2.15") == 1


def test_a_missing_sweep_file_is_exit_3(tmp_path):
    fragscope("replay", GOLDEN / "replay/false_oom.trace", "--sweep", tmp_path / "none.txt", code=3)


def test_expandable_segments_are_pages_and_not_calls_of_cudaMalloc(fragscope):
    trace = pathlib.Path(__file__).resolve().parents[1] / "golden/replay/false_oom.trace"
    plain = fragscope("replay", trace, "--alloc-conf", "max_split_size_mb:21", check=True).stdout.decode()
    assert "cudaMalloc" in plain and "pages mapped" not in plain
    mapped = fragscope("replay", trace, "--alloc-conf", "expandable_segments:True", check=True).stdout.decode()
    assert "pages mapped" in mapped and "not counted" in mapped
