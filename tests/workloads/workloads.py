"""Workloads: unmodified scripts on a simulated card, and what must hold of every one.

The script's own figures, the recording and the device's books must agree to the byte; and with the
versions of packages that a golden file was made with, the figures are the golden ones.
FRAGSCOPE_UPDATE_GOLDEN=1 writes the file instead.
"""

import fcntl
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
GOLDEN = HERE / "golden.json"
PACKAGES = ("torch", "torchvision", "transformers", "peft", "accelerate", "diffusers")
CARD = "a100-40gb"
# At the end of a script, now and then, and with any device (pytorch/pytorch#38228; src/simcuda/README.md).
ABORT_OF_PYTORCH = "terminate called without an active exception"
TRIES = 4

# name: script with arguments, what it needs beyond torch, settings of torch's allocator
WORKLOADS = {
    "resnet50": ("resnet50.py", ["torchvision"], ""),
    "resnet50-amp": ("resnet50.py --amp", ["torchvision"], ""),
    "resnet50-amp-channels-last": ("resnet50.py --amp --channels-last", ["torchvision"], ""),
    "resnet50-expandable": ("resnet50.py", ["torchvision"], "expandable_segments:True"),
    "vit": ("vit.py", ["torchvision"], ""),
    "recurrent": ("recurrent.py", [], ""),
    "transformer-loader": ("transformer.py", [], ""),
    "gpt2": ("language_model.py gpt2", ["transformers"], ""),
    "gpt2-checkpointing": ("language_model.py gpt2 --checkpointing", ["transformers"], ""),
    "gpt2-async": ("language_model.py gpt2", ["transformers"], "backend:cudaMallocAsync"),
    "llama": ("language_model.py llama", ["transformers"], ""),
    "generate": ("generate.py", ["transformers"], ""),
    "lora": ("lora.py", ["transformers", "peft", "accelerate"], ""),
    "diffusion": ("diffusion.py", ["diffusers"], ""),
    "optimizers": ("optimizers.py", [], ""),
    "cuda-graph": ("cuda_graph.py", [], ""),
    "linear-algebra": ("linear_algebra.py", [], ""),
    "functional": ("functional.py", [], ""),
    "routing": ("routing.py", [], ""),
    "adversarial": ("adversarial.py", [], ""),
    "speech": ("speech.py", [], ""),
    "values-read": ("values_read.py", [], ""),
    "detection": ("detection.py", ["torchvision"], ""),
    "profiled": ("profiled.py", [], ""),
    "ddp": ("distributed.py ddp", [], ""),
    "fsdp": ("distributed.py fsdp", [], ""),
    "fsdp-fake-8": ("distributed.py fake", [], ""),
    "compiled": ("compiled.py default", [], ""),
    "compiled-reduce-overhead": ("compiled.py reduce-overhead", [], ""),
}
# Few, quick and of different kinds: part of `make test`.
QUICK = ("gpt2", "recurrent", "ddp")


def missing(name):
    """The first package that the workload needs and this Python lacks, or None."""
    for package in ["torch", *WORKLOADS[name][1]]:
        if importlib.util.find_spec(package) is None:
            return package
    return None


def versions():
    found = {}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package).split("+")[0]
        except importlib.metadata.PackageNotFoundError:
            pass
    return found


def printed(text):
    """[(peak allocated, peak reserved)] of the processes that said so, sorted."""
    return sorted((int(a), int(r)) for a, r in re.findall(r"^memory (\d+) (\d+)$", text, re.MULTILINE))


def recorded(report):
    """The same of the recording, of the same number of processes: those with the highest peaks."""
    peaks = [(device["allocated_bytes"]["peak"], device["reserved_bytes"]["peak"])
             for process in report["processes"] for device in process["devices"]
             if device["reserved_bytes"]["peak"]]
    return sorted(peaks)


def run(name, build, tmp_path):
    """Runs a workload and checks the agreement; returns its figures."""
    script, _, settings = WORKLOADS[name]
    program, directory, books = build / "bin/fragscope", tmp_path / "run.fsr", tmp_path / "books.txt"
    devices = "2x" if script.startswith("distributed") else ""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("FRAGSCOPE_", "PYTORCH_"))}
    environment["MEETING"] = str(tmp_path / "meeting")
    environment["TORCHINDUCTOR_CACHE_DIR"] = str(tmp_path / "compiled")  # what is not compiled anew takes less memory
    if settings:
        environment["PYTORCH_CUDA_ALLOC_CONF"] = settings
    path, *arguments = script.split()
    command = [program, "run", "--gpu", devices + CARD, "--sim-log", books, "--stacks", "none", "-o", directory, "--",
               sys.executable, HERE / "scripts" / path, *arguments]
    for _ in range(TRIES):
        shutil.rmtree(directory, ignore_errors=True)
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              check=False, cwd=tmp_path)
        if done.returncode == 0 or ABORT_OF_PYTORCH not in done.stderr:
            break
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    figures = printed(done.stdout)
    assert figures, done.stdout
    report = json.loads(subprocess.run([program, "report", "--json", directory], capture_output=True,
                                       check=True).stdout)
    if "cudaMallocAsync" not in settings:  # whose blocks are the driver's, without torch's books
        assert recorded(report) == figures
    compared = subprocess.run([sys.executable, ROOT / "tools/check_books.py", directory, books, "--fragscope",
                               program], capture_output=True, text=True, check=False)
    assert compared.returncode == 0, compared.stdout[-2000:] + compared.stderr
    return figures


def read_golden():
    return json.loads(GOLDEN.read_text(encoding="utf-8")) if GOLDEN.exists() else {"versions": {}, "peaks": {}}


def update_golden(name, mine):
    """Tests run beside each other: one at a time."""
    folder = os.open(HERE, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        golden = read_golden()
        golden["versions"] = versions()
        golden["peaks"][name] = mine
        golden["peaks"] = dict(sorted(golden["peaks"].items()))
        GOLDEN.write_text(json.dumps(golden, indent=1) + "\n", encoding="utf-8")
    finally:
        os.close(folder)


def check_golden(name, figures):
    mine = [list(pair) for pair in figures]
    if os.environ.get("FRAGSCOPE_UPDATE_GOLDEN"):
        update_golden(name, mine)
        return
    golden = read_golden()
    if golden["versions"] == versions() and name in golden["peaks"]:
        assert golden["peaks"][name] == mine
