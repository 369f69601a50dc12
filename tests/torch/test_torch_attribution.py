"""fragscope attribute against a training loop that knows its own bytes."""

import json
import pathlib
import subprocess
import sys

import pytest

LOOP = pathlib.Path(__file__).with_name("gpt_loop.py")


def attributed(build, tmp_path, mode):
    out = tmp_path / "run.fsr"
    done = subprocess.run([build / "bin/fragscope", "run", "-q", "--gpu", "24GiB", "-o", out, "--",
                           sys.executable, "-W", "ignore", LOOP, mode], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    answer = subprocess.run([build / "bin/fragscope", "attribute", "--json", out], check=True,
                            capture_output=True).stdout
    (device,) = json.loads(answer)["processes"][0]["devices"]
    for table in ("roles", "phases", "lifetimes"):
        assert sum(share["bytes"] for share in device[table].values()) == device["live_bytes"], table
    for table in ("modules", "ranges", "stacks"):
        assert sum(share["bytes"] for share in device[table]) == device["live_bytes"], table
    outside = sum(share["bytes"] for share in device["outside"])
    assert device["reserved_bytes"] + outside == device["driver_bytes"]
    return json.loads(done.stdout), device


def near(left, right):
    """Within 1 % or 64 KiB."""
    return abs(left - right) <= max(right / 100, 1 << 16)


@pytest.mark.parametrize("mode", ["keep", "drop"])
def test_roles_are_what_the_script_knows(build, tmp_path, mode):
    truth, device = attributed(build, tmp_path, mode)
    assert device["live_bytes"] == truth["peak"]
    roles = {name: share["bytes"] for name, share in device["roles"].items()}
    known = ["parameters", "optimizer_state", "activations", "inputs"] + ["gradients"] * (mode == "keep")
    assert {name: roles[name] for name in known if not near(roles[name], truth[name])} == {}
    assert roles["gradients"] <= truth["gradients"]
    assert roles["unknown"] <= device["live_bytes"] / 50
    assert device["steps"] == 3
    # The forward range and the module's classes hold what the forward pass made.
    ranges = {share["name"]: share["bytes"] for share in device["ranges"]}
    assert near(ranges["forward"], truth["activations"])
    modules = {share["name"]: share for share in device["modules"]}
    assert modules["GPT/Block/Sequential/GELU"]["file"].endswith("activation.py")
    assert modules["GPT/Block/Attention"]["line"] > 0
    assert device["growth"]["suspects"] == []


def test_a_tensor_kept_every_step_is_the_suspect(build, tmp_path):
    truth, device = attributed(build, tmp_path, "leak")
    growth = device["growth"]
    assert growth["median_change_bytes"] == 1 << 20
    (suspect,) = growth["suspects"]
    assert suspect["bytes"] == suspect["blocks"] << 20 and suspect["steps"] >= 3
    assert any("gpt_loop.py" in line for line in suspect["stack"])
    assert device["lifetimes"]["run"]["bytes"] >= truth["parameters"] + truth["optimizer_state"]
