"""Caps, failures on purpose, --on-oom and plans under a stock PyTorch on the simulated GPU."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

GIB = 2**30

FILL = """
import sys, torch
print(torch.cuda.get_device_properties(0).total_memory, torch.cuda.mem_get_info()[1])
kept = []
try:
    while True:
        kept.append(torch.empty(300 * 2**20, dtype=torch.uint8, device="cuda"))
except torch.OutOfMemoryError as error:
    print(len(kept), str(error).split(" Process ")[0])
    if len(sys.argv) > 1:
        import pathlib, shutil
        (trace,) = pathlib.Path(sys.argv[1]).glob("*.fst")
        shutil.copy(trace, sys.argv[2])
        import os, signal
        os.kill(os.getpid(), signal.SIGKILL)
"""

ONE_MORE = """
import torch
small = [torch.empty(2**20, dtype=torch.uint8, device="cuda") for _ in range(10)]
del small
held = torch.empty(100 * 2**20, dtype=torch.uint8, device="cuda")
print("ok")
"""

TRAIN = """
import os, sys, torch
if os.environ.get("FRAGSCOPE_PLAN"):
    import fragscope.torch
    fragscope.torch.enable()
torch.manual_seed(0)
layers = []
for i in range(6):
    layers += [torch.nn.Linear(512 + 96 * i, 1024), torch.nn.GELU(),
               torch.nn.Linear(1024, 512 + 96 * (i + 1)), torch.nn.Dropout(0.1)]
model = torch.nn.Sequential(*layers).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(8):
    optimizer.zero_grad(set_to_none=True)
    model(torch.empty(4096, 512, device="cuda")).square().mean().backward()
    optimizer.step()
print("ok")
print("peaks", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), file=sys.stderr)
"""


def start(build, out, *arguments, script, words=(), environment=None):
    command = [build / "bin/fragscope", "run", "-o", out, *arguments, "--", sys.executable, "-W",
               "ignore", str(script), *map(str, words)]
    python = str(pathlib.Path(__file__).resolve().parents[2] / "tools/python")
    return subprocess.run(command, capture_output=True, text=True,
                          env=dict(os.environ, PYTHONPATH=python, **(environment or {})))


def ask(build, *arguments):
    done = subprocess.run([build / "bin/fragscope", *arguments], capture_output=True, text=True,
                          check=True)
    return json.loads(done.stdout)


def events_of(build, path):
    done = subprocess.run([build / "bin/fragscope", "events", "--jsonl", path],
                          capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def script(tmp_path):
    def write(text):
        path = tmp_path / "script.py"
        path.write_text(text)
        return path
    return write


def test_torch_sees_a_smaller_card_and_the_replay_knows_it(build, tmp_path, script):
    small = start(build, tmp_path / "small.fsr", "-q", "--gpu", "4GiB", script=script(FILL))
    out = tmp_path / "capped.fsr"
    capped = start(build, out, "-q", "--gpu", "24GiB", "--memory-limit", "4GiB", script=script(FILL))
    assert capped.returncode == 0, capped.stderr
    assert capped.stdout == small.stdout
    assert capped.stdout.startswith(f"{4 * GIB} {4 * GIB}\n")
    assert "GPU 0 has a total capacity of 4.00 GiB of which" in capped.stdout
    replay = ask(build, "replay", "--json", "--strict", out)
    verify = replay["processes"][0]["devices"][0]["verify"]
    assert verify["address_matches"] == verify["block_events"] > 10
    assert verify["segment_matches"] == verify["segment_calls"] > 10
    text = subprocess.run([build / "bin/fragscope", "explain", out], capture_output=True, text=True,
                          check=True).stdout
    assert "capped at 4.00 GiB" in text and "cause: capacity" in text


@pytest.mark.parametrize("conf", ["", "expandable_segments:True", "backend:cudaMallocAsync"])
def test_every_backend_of_torch_is_capped(build, tmp_path, script, conf):
    done = start(build, tmp_path / "run.fsr", "-q", "--gpu", "24GiB", "--memory-limit", "4GiB",
                 script=script(FILL), environment={"PYTORCH_CUDA_ALLOC_CONF": conf})
    assert done.returncode == 0, done.stderr
    pieces = int(done.stdout.splitlines()[1].split()[0])
    assert pieces == 13  # of 300 MiB


def test_the_failure_is_on_disk_before_python_knows(build, tmp_path, script):
    out, copy = tmp_path / "run.fsr", tmp_path / "copy.fst"
    done = start(build, out, "--gpu", "4GiB", "--on-oom", "dump", script=script(FILL),
                 words=(out, copy))
    assert done.returncode == 128 + 9
    events = events_of(build, copy)
    assert [e["kind"] for e in events].count("oom") == 1
    assert sum(e["kind"] == "alloc" for e in events) == 13
    assert done.stderr.count("ran out of memory") == 1
    assert len(events_of(build, out)) >= len(events)


def test_a_retry_that_succeeds_is_no_failure(build, tmp_path, script):
    out = tmp_path / "run.fsr"
    once = start(build, out, "--gpu", "4GiB", "--oom-at", "6", "--on-oom", "report",
                 script=script(ONE_MORE))
    assert (once.returncode, once.stdout) == (0, "ok\n"), once.stderr
    assert "ran out of memory" not in once.stderr
    assert [e.get("refused") for e in events_of(build, out)].count(True) == 1
    verify = ask(build, "replay", "--json", "--strict", out)["processes"][0]["devices"][0]["verify"]
    assert verify["segment_matches"] == verify["segment_calls"]
    always = start(build, tmp_path / "2.fsr", "--gpu", "4GiB", "--oom-at", "6+", "--on-oom", "report",
                   script=script(ONE_MORE))
    assert always.returncode == 1 and "OutOfMemoryError" in always.stderr
    assert "verdict:" in always.stderr
    assert "fail on purpose, where the program gets that far (--oom-at)" in always.stderr


def test_what_needs_more_than_the_card_fails_with_torchs_own_words(build, tmp_path, script):
    for options in ((), ("--max-split-size-mb", "64"), ("--memory-limit", "2GiB")):
        done = start(build, tmp_path / f"{len(options)}{options[:1]}.fsr", "-q", "--gpu", "2GiB",
                     *options, script=script("import torch\n"
                                             "torch.empty(3 * 2**30, dtype=torch.uint8, "
                                             "device='cuda')\n"))
        assert done.returncode == 1
        assert "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB. GPU 0 has a " \
            "total capacity of 2.00 GiB of which" in done.stderr


def test_a_plan_of_torchs_step_is_followed_through_the_pluggable_allocator(build, tmp_path, script):
    recorded, planned = tmp_path / "recorded.fsr", tmp_path / "planned.fsr"
    path = tmp_path / "plan.json"
    first = start(build, recorded, "-q", "--gpu", "24GiB", script=script(TRAIN))
    assert first.stdout == "ok\n", first.stderr
    answer = ask(build, "plan", "--json", "-o", path, recorded)
    figures = answer["figures"]
    assert answer["made_from"]["step"]["repeats"] >= 3
    assert figures["planned_reserved_peak_bytes"] < figures["recorded_reserved_peak_bytes"]
    second = start(build, planned, "-q", "--gpu", "24GiB", "--plan", path, script=script(TRAIN))
    assert second.stdout == "ok\n", second.stderr
    device = ask(build, "report", "--json", planned)["processes"][0]["devices"][0]
    assert device["reserved_bytes"]["peak"] <= 1.02 * figures["planned_reserved_peak_bytes"]
    assert device["reserved_bytes"]["peak"] < figures["recorded_reserved_peak_bytes"]
    properties = ask(build, "info", "--json", planned)["processes"][0]["properties"]
    assert properties["enforce_plan"] == str(path)


def test_a_second_cache_under_torchs_own_is_said_and_recorded_alone(build, tmp_path, script):
    out = tmp_path / "run.fsr"
    done = start(build, out, "--gpu", "24GiB", "--enforce", "shim", "--max-split-size-mb", "64",
                 script=script(TRAIN))
    assert done.stdout == "ok\n", done.stderr
    assert done.stderr.count("puts a second cache under PyTorch's own") == 1
    [process] = ask(build, "info", "--json", out)["processes"]
    assert process["properties"]["block_source"] == "api" and process["properties"]["enforce"] == "shim"
    blocks = [e for e in events_of(build, out) if e["plane"] == "block"]
    assert blocks and all(e["served"] for e in blocks)  # not PyTorch's of the same memory beside them
    subprocess.run([build / "bin/fragscope", "replay", "--strict", out], check=True, capture_output=True)


def test_ctl_names_the_way_to_change_settings_of_a_stock_torch(build, tmp_path, script):
    out = tmp_path / "run.fsr"
    path = script("import os, torch\n"
                  "held = torch.empty(2**20, dtype=torch.uint8, device='cuda')\n"
                  "print(os.getpid(), flush=True)\ninput()\n")
    runner = subprocess.Popen([build / "bin/fragscope", "run", "-q", "--gpu", "4GiB", "-o", out, "--", sys.executable,
                               str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    pid = runner.stdout.readline().decode().strip()
    done = subprocess.run([build / "bin/fragscope", "ctl", "set", pid, "max_split_size_mb=64"],
                          capture_output=True, text=True)
    runner.communicate(b"\n")
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert "fragscope.torch.enable()" in done.stderr and "fragscope run" not in done.stderr


def test_settings_that_the_script_sets_itself_are_told_as_its_own(build, tmp_path, script):
    out = tmp_path / "run.fsr"
    done = start(build, out, "-q", "--gpu", "4GiB", "--max-split-size-mb", "64", script=script(
        "import os\nos.environ['PYTORCH_CUDA_ALLOC_CONF'] = 'max_split_size_mb:128'\nimport torch\n"
        "held = torch.empty(2**20, dtype=torch.uint8, device='cuda')\n"))
    assert done.returncode == 0, done.stderr
    text = subprocess.run([build / "bin/fragscope", "info", out], capture_output=True, text=True, check=True).stdout
    assert "not as asked (max_split_size_mb:64): the program has set PyTorch's variable to " \
        "max_split_size_mb:128" in text
