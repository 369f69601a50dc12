"""tools/gpu_check on the simulated GPU: its own logic, everything but the card."""

import json
import os
import subprocess
import sys

import pytest


@pytest.fixture
def gpu_check(root, build, tmp_path):
    def run(*arguments, **variables):
        table = tmp_path / "table.json"
        command = [root / "tools/gpu_check", "--build", build, "--python", sys.executable, "--json", table]
        done = subprocess.run([*command, *arguments], env=os.environ | variables, capture_output=True, text=True,
                              timeout=230, check=False)
        return done, json.loads(table.read_text()) if table.exists() else None
    return run


def test_all_checks_pass_on_the_simulated_gpu(gpu_check):
    done, table = gpu_check("--gpu", "4GiB", "--seconds", "200", "--only",
                            "static_runtime,pointers,torch_blocks,graph")
    assert done.returncode == table["exit_code"] == 0, done.stdout
    states = {row["check"]: row["state"] for row in table["checks"]}
    assert states == {"static_runtime": "skipped", "pointers": "passed", "torch_blocks": "passed",
                      "graph": "passed"}
    assert all(row["check"] in done.stdout for row in table["checks"])
    assert table["checks"][2]["figures"]["source"] == "adaptor"


def test_overhead_is_a_figure(gpu_check):
    done, table = gpu_check("--gpu", "4GiB", "--seconds", "200", "--only", "overhead")
    [row] = table["checks"]
    assert done.returncode == 0 and row["state"] == "passed", done.stdout
    assert row["figures"]["median_percent"] in row["figures"]["percent"] or len(row["figures"]["percent"]) % 2 == 0


@pytest.mark.parametrize("check", ["pointers", "torch_blocks"])
def test_a_recorder_that_records_nothing_fails(gpu_check, check):
    done, table = gpu_check("--gpu", "4GiB", "--only", check, FRAGSCOPE_DISABLE="1")
    assert done.returncode == table["exit_code"] == 1
    assert table["checks"][0]["state"] == "failed" and "failed" in done.stdout


def test_without_a_gpu_it_skips_with_a_reason(gpu_check):
    done, table = gpu_check(CUDA_VISIBLE_DEVICES="", LD_LIBRARY_PATH="")
    assert done.returncode == table["exit_code"] == 77
    assert done.stdout.startswith("gpu_check: skipped: ") and table["skipped"] and table["checks"] == []


def test_wrong_arguments(gpu_check, tmp_path):
    assert gpu_check("--only", "nothing")[0].returncode == 2
    assert gpu_check("--build", tmp_path)[0].returncode == 2
