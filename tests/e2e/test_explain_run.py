"""fragscope explain on recorded runs."""

import json
import pathlib

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
    text = fragscope("explain", GOLDEN / "replay/false_oom.trace", check=True).stdout.decode()
    assert "cause: stranded" in text and "528.00 MiB" in text


def test_a_program_that_needs_more_than_the_card(fragscope):
    run = fragscope.record(*fragscope.steps("alloc", 700 * MIB, "alloc", 700 * MIB))
    answer = explained(fragscope, run.directory)
    assert (answer["verdict"], answer["cause"]) == ("true_exhaustion", "capacity")
    assert answer["processes"][0]["moments"][0]["stack"]
    assert not answer["processes"][0]["trials"]


def test_nothing_refused_is_no_verdict(fragscope):
    run = fragscope.record(*fragscope.steps("alloc", 4096))
    answer = explained(fragscope, run.directory)
    assert answer["verdict"] is None and answer["actions"] == []
    assert b"no request was refused" in fragscope("explain", run.directory, check=True).stdout


def test_a_directory_that_is_no_run(fragscope, tmp_path):
    done = fragscope("explain", tmp_path)
    assert done.returncode == 3 and b"not a run directory" in done.stderr
