"""fragscope advise on recorded runs."""

import json
import pathlib

import pytest

from conftest import one_line

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden"
FALSE_OOM = GOLDEN / "replay/false_oom.trace"


def test_the_false_oom_is_cured_by_replay(fragscope):
    done = fragscope("advise", "--json", FALSE_OOM, check=True)
    (device,) = json.loads(done.stdout)["devices"]
    assert device["default"]["ooms"] == 1 and device["best"]["ooms"] == 0
    assert device["best"]["reserved_peak_bytes"] >= device["plan_peak_bytes"] >= device["live_peak_bytes"]
    text = fragscope("advise", FALSE_OOM, check=True).stdout.decode()
    line = f"export {device['variable']}={device['best']['alloc_conf']}"
    assert line in text
    replayed = fragscope("replay", "--json", "--alloc-conf", device["best"]["alloc_conf"], FALSE_OOM)
    (again,) = json.loads(replayed.stdout)["processes"][0]["devices"]
    assert again["ooms"] == []
    assert again["reserved_bytes"]["peak"] == device["best"]["reserved_peak_bytes"]


def test_a_program_without_an_allocator_is_modelled(fragscope):
    run = fragscope.record(*fragscope.steps("pairs", 200))
    (device,) = json.loads(fragscope("advise", "--json", run.directory, check=True).stdout)["devices"]
    assert device["undecidable"] is None and device["default"]["segment_calls"] > 0


@pytest.mark.parametrize("words, code", [
    (["--objective", "speed", FALSE_OOM], 2),
    (["--objective", "fits=much", FALSE_OOM], 2),
    (["--pid", "1", FALSE_OOM], 2),
    (["no-such-run"], 3),
])
def test_usage(fragscope, words, code):
    done = fragscope("advise", *words)
    assert done.returncode == code
    one_line(done.stderr)
