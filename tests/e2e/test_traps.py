"""What is known to go wrong between a recorder and its host. TRAPS.md has the whole list; here are the
cases that no other file has."""

import json
import os
import re
import subprocess
import sys

import pytest

from shim_programs import programs  # noqa: F401  (fixture)


def sim_program(build, name):
    path = build / "tests/sim" / name
    if not path.exists():
        pytest.skip(f"{name}: built without the headers of that CUDA major")
    return path


def test_every_request_is_answered_as_without_us(build, fragscope, tmp_path):
    """Results, status outputs and null outputs of some hundred thousand requests: every name, version
    and flag."""
    environment = fragscope.environment | {
        "LD_LIBRARY_PATH": str(build / "lib/fragscope/sim"), "FRAGSCOPE_OUT": str(tmp_path / "run.fsr"),
        "FRAGSCOPE_SIM": f"total_bytes={2**30}"}
    command = [str(sim_program(build, "sim_versions"))]
    plain = subprocess.run(command, env=environment, capture_output=True, timeout=240, check=True)
    environment["LD_PRELOAD"] = str(build / "lib/libfragscope.so")
    hooked = subprocess.run(command, env=environment, capture_output=True, timeout=240, check=True)
    assert int(plain.stdout.splitlines()[-1].split()[0]) > 100_000
    assert hooked.stdout == plain.stdout and hooked.stderr == plain.stderr


def test_rare_calls_are_recorded_without_a_call_of_ours(programs):  # noqa: F811
    (log,) = programs.run_both("shim_rare")
    seen = [(e["kind"], e["api"], e["address"], e["aux"]) for e in log.events]
    assert seen[:5] == [
        ("multicast_create", "cuMulticastCreate", 0x3333, 2**64 - 1),
        ("multicast_bind", "cuMulticastBindMem", 0x3333, 0x55),
        ("multicast_bind", "cuMulticastBindMem_v2", 0x3333, 0x56),
        ("multicast_bind", "cuMulticastBindAddr", 0x3333, 0x9000),
        ("multicast_unbind", "cuMulticastUnbind", 0x3333, 2**64 - 1)]
    assert [e["size"] for e in log.events[:2]] == [4 << 20, 2 << 20]
    assert seen[5] == ("array_map", "cuMemMapArrayAsync", 0x77, 0x55)
    assert log.events[5]["aux2"] == 2 and log.events[5]["stream"] == 0x5000
    assert seen[6][:2] == ("external_map", "cuExternalMemoryGetMappedMipmappedArray")


def test_exceptions_are_thrown_by_the_hosts_own_library(programs, tmp_path):  # noqa: F811
    """libunwind, which we open for stacks, exports the unwinder's names too: none may bind to it."""
    bindings = tmp_path / "bindings"
    done = programs.run("shim_callbacks", "throw", LD_DEBUG="bindings", LD_DEBUG_OUTPUT=str(bindings))
    assert done.returncode == 0 and b"caught from inside" in done.stdout
    text = "".join(path.read_text(errors="replace") for path in tmp_path.glob("bindings.*"))
    bound = re.findall(r"binding file (\S+) \[0\] to (\S+) \[0\]: normal symbol `(_Unwind_\w+)'", text)
    assert any(symbol == "_Unwind_RaiseException" for _, _, symbol in bound), "nothing was thrown"
    assert {target.rsplit("/", 1)[-1].split(".so")[0] for source, target, _ in bound
            if "libunwind" not in source} <= {"libgcc_s"}


def test_64_threads_lose_nothing(programs):  # noqa: F811
    (log,) = programs.run_both("shim_threads", 64, 100)
    assert len(log.of("device_alloc")) == len(log.of("device_free")) == 6400
    assert log.dropped == log.torn == 0 and len({e["tid"] for e in log.events}) == 64


@pytest.mark.parametrize("mode", ["profiler", "vfork", "daemon"])
def test_nothing_is_lost_beside(build, fragscope, mode):
    run = fragscope.record(sim_program(build, "sim_interrupted_13"), mode, options=["-q"])
    assert run.finished.returncode == 0, run.finished.stderr
    assert run.finished.stdout == (b"" if mode == "daemon" else b"0 failures\n")
    kinds = [e["kind"] for e in run.events()]
    assert kinds.count("device_alloc") == kinds.count("device_free") == 20000


@pytest.mark.parametrize("visible, cards", [("", [0]), ("1,0", [1]), ("1", [1])])
def test_a_device_is_named_by_its_card(build, fragscope, tmp_path, visible, cards):
    out = tmp_path / "run.fsr"
    environment = fragscope.environment | {
        "LD_PRELOAD": str(build / "lib/libfragscope.so"), "FRAGSCOPE_OUT": str(out),
        "FRAGSCOPE_SIM": f"total_bytes={2**30};devices=2"}
    if visible:
        environment["CUDA_VISIBLE_DEVICES"] = visible
    subprocess.run([str(sim_program(build, "sim_table_13"))], env=environment, timeout=60, check=True)
    report = json.loads(fragscope("report", "--json", "--no-stacks", out, check=True).stdout)
    devices = report["processes"][0]["devices"]
    assert [(d["index"], d["uuid"]) for d in devices] == [(0, uuid_of(card)) for card in cards]


def uuid_of(card):
    """As the simulated card says (tests/e2e/test_sim.py chooses one by the same text)."""
    return f"GPU-46726167-5363-6f70-652d-73696d2d003{card}"


def test_a_run_without_memory_calls_says_why(fragscope, build, tmp_path):
    def reason(*command, **env):
        run = fragscope.record(*command, env=env)
        text = run.finished.stderr.decode()
        assert "recorded nothing: " in text
        answer = fragscope("report", "--json", run.directory)
        assert answer.returncode == 5
        told = json.loads(answer.stdout)["run"]["nothing_recorded"]
        assert told in text
        return told

    assert "no process of the command loaded CUDA's driver" in reason("true")
    library = build / "lib/fragscope/sim/libcuda.so.1"
    only_loaded = [sys.executable, "-c", f"import ctypes; ctypes.CDLL({str(library)!r}).cuInit(0)"]
    assert reason(*only_loaded).startswith("CUDA's driver was loaded, but no memory was asked of it")
    assert reason("true", FRAGSCOPE_DISABLE="1") == "FRAGSCOPE_DISABLE=1 was set"


@pytest.mark.parametrize("options, recorded", [("noexec", True), ("ro", False)])
def test_odd_file_systems(programs, tmp_path, options, recorded):  # noqa: F811
    place = tmp_path / "place"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size=16m,{options}", "none", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs root and the right to mount")
    try:
        plain = programs.run("shim_basic", preload=())
        done = programs.run("shim_basic", FRAGSCOPE_OUT=str(place / "run.fsr"))
        assert (done.stdout, done.stderr, done.returncode) == (plain.stdout, b"", plain.returncode)
        assert (len(list(place.rglob("*.fslog"))) == 1) == recorded
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)
