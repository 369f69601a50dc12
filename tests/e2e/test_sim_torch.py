"""Stock PyTorch on the simulated GPU, without the recorder. Interpreters: FRAGSCOPE_TORCH_PYTHON
(several, separated by ':'), else the one that runs the tests when it has torch."""

import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

pytestmark = pytest.mark.torch
WORKLOADS = pathlib.Path(__file__).with_name("sim_workloads.py")


def interpreters():
    named = [p for p in os.environ.get("FRAGSCOPE_TORCH_PYTHON", "").split(":") if p]
    return named or ([sys.executable] if importlib.util.find_spec("torch") else [None])


@pytest.fixture(params=interpreters(), ids=lambda p: p or "none")
def python(request):
    if request.param is None:
        pytest.skip("no Python with torch: set FRAGSCOPE_TORCH_PYTHON")
    return request.param


def run(build, python, workloads, conf="", **keys):
    sim = build / "lib/fragscope/sim"
    keys = {"devices": 2, "total_bytes": 24 * 2**30, **keys}
    environment = dict(
        os.environ,
        FRAGSCOPE_SIM=";".join(f"{k}={v}" for k, v in keys.items()),
        PYTORCH_CUDA_ALLOC_CONF=conf,
        LD_PRELOAD=":".join(str(p) for p in sorted(sim.glob("lib*.so.*"), reverse=True)
                            if p.name not in ("libcuda.so.1", "libnvidia-ml.so.1")),
        LD_LIBRARY_PATH=str(sim),
    )
    for name in ("FRAGSCOPE_SIM_LEDGER", "CUDA_VISIBLE_DEVICES"):
        environment.pop(name, None)
    done = subprocess.run([python, WORKLOADS, workloads], env=environment, text=True,
                          capture_output=True, timeout=900)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr[-3000:]


def test_training_devices_errors_and_graphs(build, python):
    run(build, python, "devices,train,values,graph,loader,layers")


@pytest.mark.parametrize("kernel_us", [0, 50])
def test_profiler_sees_every_kernel_and_copy(build, python, kernel_us):
    run(build, python, "profile", kernel_us=kernel_us)


def test_out_of_memory_text(build, python):
    run(build, python, "oom")


@pytest.mark.parametrize(
    "conf", ["expandable_segments:True", "max_split_size_mb:40,garbage_collection_threshold:0.8"])
def test_allocator_settings(build, python, conf):
    run(build, python, "segments", conf)


def test_asynchronous_backend(build, python):
    run(build, python, "asynchronous", "backend:cudaMallocAsync")


def test_late_events_hold_memory_back(build, python):
    run(build, python, "late_events", event_latency_queries=6)


@pytest.mark.parametrize("conf", ["", "backend:cudaMallocAsync", "pinned_use_cuda_host_register:True"])
def test_the_log_of_a_script_repeats(build, python, conf, tmp_path):
    logs = []
    for name in ("first", "second"):
        run(build, python, "repeat", conf, books=tmp_path / name)
        logs.append((tmp_path / name).read_text(encoding="ascii"))
    calls = {line.split()[2] for line in logs[0].splitlines()}
    assert {"cuMemHostRegister_v2" if "register" in conf else "cuMemHostAlloc"} <= calls
    assert logs[0] == logs[1]


def test_gpt2_from_its_configuration(build, python):
    have = subprocess.run([python, "-c", "import transformers"], capture_output=True)
    if have.returncode != 0:
        pytest.skip("transformers is not installed there")
    run(build, python, "gpt2")
