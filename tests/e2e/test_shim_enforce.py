"""`fragscope run --enforce=shim` on the simulated GPU against `fragscope model`: a program with direct
cudaMalloc calls gets the model's segments and addresses, one by one."""

import json
import subprocess

import pytest

MIB = 2**20


def run_enforced(build, out, settings, seed, count=1500):
    command = [build / "bin/fragscope", "run", "-q", "--gpu", "4GiB", "--enforce=shim"]
    command += ["--alloc-conf", settings, "-o", out, "--", build / "tests/shim/shim_direct"]
    done = subprocess.run([*command, str(seed), str(count)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return [line.split() for line in done.stdout.splitlines()]


def run_model(build, path, settings, calls):
    path.write_text("".join(" ".join(call[:3]) + "\n" for call in calls))
    command = [build / "bin/fragscope", "model", path, "--device-memory", "4GiB", "--json"]
    if settings:
        command += ["--alloc-conf", settings]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("settings", ["max_split_size_mb:128", "garbage_collection_threshold:0.6"])
@pytest.mark.parametrize("seed", [1, 2])
def test_addresses_and_segments_equal_the_models(build, tmp_path, settings, seed):
    calls = run_enforced(build, tmp_path / "run.fsr", settings, seed)
    answer = run_model(build, tmp_path / "list.txt", settings, calls)
    got = [int(call[3]) for call in calls if call[0] == "alloc"]
    expected = [r["address"] or 0 for r in answer["results"] if r["op"] == "alloc"]
    assert got == expected
    assert 0 in got  # the card is small enough to run out

    events = subprocess.run(
        [build / "bin/fragscope", "events", "--jsonl", tmp_path / "run.fsr"],
        capture_output=True, text=True, check=True,
    )
    events = [json.loads(line) for line in events.stdout.splitlines()]
    real = [
        (e["kind"], e["address"])
        for e in events
        if e["kind"] in ("device_alloc", "device_free") and e["result"] == 0
    ]
    kinds = {"segment_alloc": "device_alloc", "segment_free": "device_free"}
    model = [
        (kinds[c["action"]], c["address"]) for r in answer["results"] for c in r["segment_calls"]
    ]
    assert real == model


def run_misuse(build, out, *options):
    command = [build / "bin/fragscope", "run", "-q", "--gpu", "4GiB", "-o", out, *options]
    done = subprocess.run(
        [*command, "--", build / "tests/cuda/cuda_misuse"], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_wrong_frees_and_failures_get_cudas_own_answers(build, tmp_path):
    plain = run_misuse(build, tmp_path / "plain.fsr")
    enforced = run_misuse(
        build, tmp_path / "enforced.fsr", "--enforce=shim", "--max-split-size-mb", "64"
    )
    assert "free again 1 last 1" in plain
    assert "apart 0" not in plain
    assert enforced == plain


def test_an_exec_gives_the_memory_back(build, tmp_path):
    command = [build / "bin/fragscope", "run", "-q", "--no-record", "--gpu", "4GiB", "--"]
    done = subprocess.run(
        [*command, build / "tests/cuda/cuda_misuse", "exec"], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "0\n")


@pytest.mark.parametrize("size", ["1", "64KiB", "99TiB"])
def test_any_log_size_records(build, tmp_path, size):
    run = tmp_path / "run.fsr"
    run_misuse(build, run, "--log-bytes", size)
    done = subprocess.run(
        [build / "bin/fragscope", "events", "--jsonl", run], capture_output=True, text=True
    )
    kinds = [json.loads(line)["kind"] for line in done.stdout.splitlines()]
    assert kinds.count("device_alloc") == 5
