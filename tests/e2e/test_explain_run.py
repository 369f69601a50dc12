"""fragscope explain on recorded runs."""

import json
import pathlib

import pytest

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden"
MIB = 1 << 20


def explained(fragscope, path, code=0):
    done = fragscope("explain", "--json", path)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def adds_up(bytes_):
    parts = {k: v for k, v in bytes_.items() if k != "total_bytes"}
    return sum(v or 0 for v in parts.values()) == bytes_["total_bytes"]


def test_the_false_oom_of_a_text_trace(fragscope):
    answer = explained(fragscope, GOLDEN / "replay/false_oom.trace")
    assert (answer["verdict"], answer["cause"]) == ("fragmentation", "stranded")
    assert answer["fields"]["tried_bytes"] == 800 * MIB
    assert answer["bytes"]["split_rest_bytes"] == 528 * MIB and adds_up(answer["bytes"])
    (process,) = answer["processes"]
    passing = [t for t in process["trials"] if t["ooms"] == 0]
    assert any(t["alloc_conf"].endswith("expandable_segments:True") for t in passing)
    assert "expandable_segments:True" in answer["actions"][0]
    (oom,) = [m for m in process["moments"] if m["moment"] == "oom"]
    assert oom["pins"][0]["releasable_bytes"] == 530 * MIB
    # Without the block of 2 MiB the whole segment goes back, and the request fits.
    assert oom["pins"][0]["without"]["ooms"] == 0
    # Nor does it stand in the way elsewhere, in a segment of 20 MiB.
    for moved in ("moved_first", "moved_apart"):
        assert oom["pins"][0][moved] == {"ooms": 0, "reserved_peak_bytes": 1080 * MIB}
    assert "Move the block of 2.00 MiB" in answer["actions"][1]
    text = fragscope("explain", GOLDEN / "replay/false_oom.trace", check=True).stdout.decode()
    assert "cause: stranded" in text and "528.00 MiB" in text


def test_a_program_that_needs_more_than_the_card(fragscope):
    run = fragscope.record(*fragscope.steps("alloc", 700 * MIB, "alloc", 700 * MIB))
    answer = explained(fragscope, run.directory)
    assert (answer["verdict"], answer["cause"]) == ("true_exhaustion", "capacity")
    assert answer["processes"][0]["moments"][0]["stack"]
    # No setting is worth a replay, and it is said why; advise agrees.
    assert not answer["processes"][0]["trials"]
    assert "do not fit" in answer["processes"][0]["no_trials"]
    assert b"no other setting was replayed" in fragscope("explain", run.directory).stdout


def test_nothing_refused_is_no_verdict(fragscope):
    run = fragscope.record(*fragscope.steps("alloc", 4096))
    answer = explained(fragscope, run.directory)
    assert answer["verdict"] is None and answer["actions"] == []
    assert b"no request was refused" in fragscope("explain", run.directory, check=True).stdout


def test_a_directory_that_is_no_run(fragscope, tmp_path):
    done = fragscope("explain", tmp_path)
    assert done.returncode == 3 and b"not a run directory" in done.stderr


@pytest.mark.parametrize("trace, passes", [("false_oom.trace", True), ("capacity.trace", False)])
def test_explain_and_advise_agree_on_settings(fragscope, tmp_path, trace, passes):
    """A setting that lets the refused request pass is found by both or by neither; both say that the
    recording ends there."""
    capacity = tmp_path / "capacity.trace"
    capacity.write_text((GOLDEN / "replay/false_oom.trace").read_text().replace("800MiB", "1299MiB"))
    path = GOLDEN / "replay" / trace if passes else capacity
    process = explained(fragscope, path)["processes"][0]
    done = fragscope("advise", "--json", path, check=True)
    (device,) = json.loads(done.stdout)["devices"]
    assert device["ends_at_refusal"]
    best = device["best"] or device["default"]
    assert (best["ooms"] == 0) == passes == any(t["ooms"] == 0 for t in process["trials"])
    text = fragscope("advise", path, check=True).stdout.decode()
    assert "the recording ends at a refused request" in text
    assert ("no setting lets pass" in text) != passes


def test_what_is_not_known_is_said(fragscope):
    """Nothing was refused and nobody asked CUDA: the device's free bytes are unknown, not left out."""
    text = fragscope("explain", GOLDEN / "report/ten_lines.trace", check=True).stdout.decode()
    assert "left on the device" in text

