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


def test_what_cannot_fit_is_said(fragscope):
    done = fragscope("advise", "--objective", "fits=30MiB", FALSE_OOM)
    assert done.returncode == 1
    assert "nothing fits 30.00 MiB" in one_line(done.stderr) and "are live at once" in done.stderr.decode()


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


def test_remedies_by_bytes_and_cards(fragscope):
    done = fragscope("advise", "--json", GOLDEN / "diagnose/attribution.trace", check=True)
    (device,) = json.loads(done.stdout)["devices"]
    remedies = {remedy["name"]: remedy["bytes"] >> 20 for remedy in device["remedies"]}
    assert remedies == {"checkpoint": 24, "offload": 16, "batch": 15, "amp": 13, "optimizer_8bit": 12}
    assert [*remedies] == ["checkpoint", "offload", "batch", "amp", "optimizer_8bit"]
    assert len(device["cards"]) == 3 and device["unlimited_peak_bytes"] >= device["live_peak_bytes"]


def test_data_loading_of_a_run_without_loaders(fragscope):
    run = fragscope.record(*fragscope.steps("alloc", 4096, "pinned", 5000))
    answer = json.loads(fragscope("advise", "--data-loading", "--json", run.directory, check=True).stdout)
    loading = answer["data_loading"]
    assert loading["measured"]["pinned_peak_bytes"] == 5000
    assert {rule["name"]: rule["verdict"] for rule in loading["rules"]}["256_mb_per_worker"] == "undecidable"
    assert fragscope("advise", "--cores", "4", run.directory).returncode == 2  # belongs to --data-loading
