"""The demo tells its story, and every step of it ends as it should."""

import json
import os
import subprocess

import pytest


@pytest.fixture(scope="module")
def demo(root, build, tmp_path_factory):
    """(output of the demo, directory of its recordings)"""
    runs = tmp_path_factory.mktemp("demo") / "runs"
    environment = dict(os.environ, FRAGSCOPE_BUILD=str(build), FRAGSCOPE_DEMO_DIR=str(runs))
    environment["LC_ALL"] = "C.UTF-8"
    environment.pop("PYTORCH_CUDA_ALLOC_CONF", None)
    done = subprocess.run([str(root / "tools/demo/demo.sh"), "--no-torch"], env=environment, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == 0, done.stdout
    return done.stdout, runs


def figures(build, command, run, *options):
    done = subprocess.run([str(build / "bin/fragscope"), command, "--json", str(run), *options],
                          stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(done.stdout)["processes"][0]["devices"][0]


def test_the_message_is_pytorchs(demo):
    output, _ = demo
    assert "CUDA out of memory. Tried to allocate 98.00 MiB. GPU 0 has a total capacity of 12.00 GiB" in output


def test_gigabytes_were_unused_when_it_failed(demo, build):
    device = figures(build, "report", demo[1] / "default.fsr")
    assert device["reserved_bytes"]["final"] - device["allocated_bytes"]["final"] > 4 << 30
    assert len(device["ooms"]) == 1


def test_the_replay_predicts_every_call_and_place(demo, build):
    verify = figures(build, "replay", demo[1] / "default.fsr")["verify"]
    assert verify["block_events"] > 1000
    assert verify["first_divergence"] is None
    assert verify["address_matches"] > 1000
    assert verify["segment_matches"] == verify["segment_calls"] > 100


def test_the_what_if_foretells_the_limited_run(demo, build):
    foretold = figures(build, "replay", demo[1] / "default.fsr", "--max-split-size-mb", "32")
    assert foretold["ooms"] == []
    limited = figures(build, "report", demo[1] / "limited.fsr")
    assert limited["ooms"] == []


def test_the_served_program_needs_no_more_than_the_card(demo, build):
    device = figures(build, "report", demo[1] / "plain.fsr")
    assert device["ooms"] == []
    assert device["driver_bytes"]["peak"] <= 12 << 30


def test_the_readme_shows_what_the_demo_prints(demo, root):
    readme = (root / "README.md").read_text(encoding="utf-8")
    excerpt = readme.split("What `make demo` prints, in excerpts:")[1].split("```")[1]
    shown = [line.strip() for line in excerpt.splitlines() if line.strip() not in ("", "…")]
    assert len(shown) > 30
    printed = iter([line.strip() for line in demo[0].splitlines()])
    for line in shown:
        cut = line.removesuffix("…").rstrip()
        assert any(p.startswith(cut) if line.endswith("…") else p == line for p in printed), line
