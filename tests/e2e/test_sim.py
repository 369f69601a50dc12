"""The simulated GPU's stand-ins from outside: programs linked against the simulated runtime, shared
cards, exports."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest

GIB = 2**30
IMPORTS = pathlib.Path(__file__).resolve().parents[2] / "src/simcuda/imports"


def majors(build):
    return [m for m in (12, 13) if (build / f"tests/sim/sim_memory_{m}").exists()]


@pytest.fixture(params=[12, 13])
def major(request, build):
    if request.param not in majors(build):
        pytest.skip(f"built without CUDA {request.param} headers")
    return request.param


def start(build, major, program, *arguments, ledger=None, **keys):
    """Starts a program on a simulated card of 1 GiB, or as `keys` say."""
    keys = {"total_bytes": GIB, **keys}
    environment = dict(os.environ, FRAGSCOPE_SIM=";".join(f"{k}={v}" for k, v in keys.items()))
    environment.pop("FRAGSCOPE_SIM_LEDGER", None)
    if ledger is not None:
        environment["FRAGSCOPE_SIM_LEDGER"] = str(ledger)
    command = [build / f"tests/sim/sim_{program}_{major}", *map(str, arguments)]
    return subprocess.Popen(command, env=environment, text=True, stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def run(*arguments, **keys):
    process = start(*arguments, **keys)
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    return out


def test_memory(build, major):
    run(build, major, "memory")


@pytest.mark.parametrize("latency", [0, 1, 3])
def test_streams_events_capture(build, major, latency):
    run(build, major, "streams", latency, event_latency_queries=latency)


def test_pools_and_virtual_memory(build, major):
    run(build, major, "pools")


def test_requests_that_no_correct_program_makes(build, major):
    run(build, major, "misuse")


@pytest.mark.parametrize("kernel_us", [0, 2])
def test_activity_records(build, major, kernel_us):
    run(build, major, "activity", build / f"lib/fragscope/sim/libcupti.so.{major}",
        kernel_us=kernel_us)


def test_devices_and_look_ups(build, major):
    run(build, major, "devices", devices=2)


def test_a_forked_child_is_refused(build, major):
    run(build, major, "tenant", "fork")


def test_addresses_repeat_from_run_to_run(build, major):
    first = run(build, major, "tenant", "addresses", 3)
    assert first == run(build, major, "tenant", "addresses", 3)
    assert "(nil)" in first  # the card runs full in this list
    assert first != run(build, major, "tenant", "addresses", 4)


def test_context_bytes_are_charged_once(build, major):
    out = run(build, major, "tenant", "free", context_bytes=100 * 2**20)
    assert out == f"{GIB - 100 * 2**20} {GIB}\n"


@pytest.mark.parametrize("variable, cards", [
    ("2,0", "2 0 "), ("1", "1 "), ("", "none"), ("-1", "none"), ("1,9,2", "1 "), ("1,1", "none"),
    ("GPU-46726167-5363-6f70-652d-73696d2d0032", "2 "), ("NoSuch,0", "none"),
])
def test_visible_devices(build, major, monkeypatch, variable, cards):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    assert run(build, major, "tenant", "cards", devices=3) == cards


def test_hidden_cards_keep_their_books(build, major, monkeypatch, tmp_path):
    ledger = tmp_path / "ledger"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    first = start(build, major, "tenant", "hold", 700, ledger=ledger, devices=2)
    assert first.stdout.readline() == "held\n"
    assert run(build, major, "tenant", "free", ledger=ledger, devices=2) == f"{324 * 2**20} {GIB}\n"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert run(build, major, "tenant", "free", ledger=ledger, devices=2) == f"{GIB} {GIB}\n"
    first.communicate(timeout=60)


def test_two_processes_share_a_card(build, major, tmp_path):
    ledger = tmp_path / "ledger"
    first = start(build, major, "tenant", "hold", 700, ledger=ledger)
    assert first.stdout.readline() == "held\n"
    second = start(build, major, "tenant", "hold", 400, ledger=ledger)
    assert second.stdout.readline() == "cudaErrorMemoryAllocation\n"
    second.communicate(timeout=60)
    assert run(build, major, "tenant", "free", ledger=ledger) == f"{324 * 2**20} {GIB}\n"
    first.send_signal(signal.SIGKILL)
    first.wait(timeout=60)
    third = start(build, major, "tenant", "hold", 1024, ledger=ledger)
    assert third.stdout.readline() == "held\n"
    third.communicate(timeout=60)
    assert run(build, major, "tenant", "free", ledger=ledger) == f"{GIB} {GIB}\n"


def test_without_a_configuration_there_is_no_device(build, major):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("FRAGSCOPE")}
    command = [build / f"tests/sim/sim_tenant_{major}", "hold", "1"]
    done = subprocess.run(command, env=environment, text=True, capture_output=True, input="",
                          timeout=60)
    assert done.stdout == "cudaErrorNoDevice\n"


def test_a_bad_configuration_is_one_line(build, major):
    process = start(build, major, "tenant", "hold", 1, colour="red")
    out, errors = process.communicate(timeout=60)
    assert out == "cudaErrorNoDevice\n"
    assert errors == "fragscope: FRAGSCOPE_SIM: cannot use 'colour=red'\n"


def test_books_list_every_memory_call(build, major, tmp_path):
    books = tmp_path / "books.txt"
    out = run(build, major, "tenant", "addresses", 3, books=books)
    lines = [line.split() for line in books.read_text().splitlines()]
    allocated = [line[3] for line in lines if line[2] == "cuMemAlloc_v2"]
    assert allocated == ["0x0" if a == "(nil)" else a for a in out.split()]
    assert {line[5] for line in lines} == {"0", "2"}
    assert any(line[2] == "cuMemFree_v2" for line in lines)


# A monitor: another process, only NVML. Prints total, free, used and the tenants of device 0.
MONITOR = """
import ctypes, sys
nvml = ctypes.CDLL("libnvidia-ml.so.1")
device, memory, count = ctypes.c_void_p(), (ctypes.c_ulonglong * 3)(), ctypes.c_uint(8)
class Info(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("gi", ctypes.c_uint),
                ("ci", ctypes.c_uint)]
infos = (Info * 8)()
assert nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 1
assert nvml.nvmlInit_v2() == 0
assert nvml.nvmlDeviceGetHandleByIndex_v2(7, ctypes.byref(device)) == 2
assert nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0
assert nvml.nvmlDeviceGetMemoryInfo(device, memory) == 0
assert nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(count), infos) == 0
assert nvml.nvmlDeviceGetFanSpeed(device, ctypes.byref(count)) == 3
print(*memory, *[f"{i.pid}:{i.used}" for i in infos if i.pid])
assert nvml.nvmlShutdown() == 0
"""


def test_nvml_sees_every_process(build, major, tmp_path):
    ledger = tmp_path / "ledger"
    first = start(build, major, "tenant", "hold", 700, ledger=ledger)
    second = start(build, major, "tenant", "hold", 100, ledger=ledger)
    assert (first.stdout.readline(), second.stdout.readline()) == ("held\n", "held\n")
    environment = dict(os.environ, FRAGSCOPE_SIM=f"total_bytes={GIB}",
                       FRAGSCOPE_SIM_LEDGER=str(ledger),
                       LD_LIBRARY_PATH=str(build / "lib/fragscope/sim"))
    done = subprocess.run([sys.executable, "-c", MONITOR], env=environment, text=True,
                          capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    words = done.stdout.split()
    assert [int(w) for w in words[:3]] == [GIB, 224 * 2**20, 800 * 2**20]
    assert set(words[3:]) == {f"{first.pid}:{700 * 2**20}", f"{second.pid}:{100 * 2**20}"}
    for process in (first, second):
        process.communicate(timeout=60)


def exports(path):
    listing = subprocess.run(["nm", "-D", "--defined-only", "--with-symbol-versions", path],
                             capture_output=True, text=True, check=True).stdout
    return {line.split()[-1] for line in listing.splitlines()}


@pytest.mark.parametrize("names", sorted(IMPORTS.glob("*.txt")), ids=lambda p: p.stem)
def test_every_import_of_the_wheels_is_exported(build, names):
    library, number = re.fullmatch(r"torch-[\d.]+-(\w+?)(\d+)", names.stem).groups()
    soname = f"lib{library}.so.{number}"
    path = build / "lib/fragscope/sim" / soname
    if not path.exists():
        pytest.skip(f"built without CUDA {number} headers")
    found = exports(path)
    wanted = {f"{name}@@{soname}" for name in names.read_text().split()}
    assert len(wanted) > 10
    assert wanted - found == set()


def test_every_per_thread_name_of_the_headers_is_exported(build, major):
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "fragscope"
    headers = [*cache.glob(f"cuda-headers/{major}/include"), *pathlib.Path("/usr/local").glob(f"cuda-{major}*/include")]
    if not headers:
        pytest.skip(f"no CUDA {major} headers")
    text = (headers[0] / "cuda_runtime_api.h").read_text()
    wanted = {f"{name}_{kind.lower()}@@libcudart.so.{major}"
              for kind, name in re.findall(r"__CUDART_API_(PTDS|PTSZ)\((cuda\w+)\)", text)
              if re.search(rf"CUDARTAPI {name}\(", text)}
    assert len(wanted) > 50
    assert wanted - exports(build / f"lib/fragscope/sim/libcudart.so.{major}") == set()


def test_stand_ins_export_their_api_and_need_only_libc(build):
    prefixes = {"libcuda.so.1": r"cu[A-Z]|fragscope_sim_", "libnvidia-ml.so.1": "nvml",
                "libcudart": "(__)?cuda", "libcublas.": "cublas", "libcublasLt.": "cublasLt",
                "libcudnn": "cudnn", "libcufft": "cufft", "libcusolver": "cusolver",
                "libcusparse": "cusparse", "libcupti": "cupti", "libnccl": "p?nccl"}
    libraries = sorted((build / "lib/fragscope/sim").glob("lib*.so.*"))
    assert len(libraries) >= 7
    for path in libraries:
        pattern = next(v for k, v in prefixes.items() if path.name.startswith(k))
        nodes = {path.name, f"{path.name}@@{path.name}"}  # version nodes are absolute symbols
        strangers = [s for s in exports(path) - nodes if not re.match(pattern, s)]
        assert strangers == []
        dynamic = subprocess.run(["objdump", "-p", path], capture_output=True, text=True,
                                 check=True).stdout
        needed = set(re.findall(r"NEEDED\s+(\S+)", dynamic))
        allowed = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0"}
        assert {n for n in needed if not n.startswith("ld-linux")} <= allowed, path.name


KINDS = {
    "cuMemAlloc_v2": "device_alloc", "cuMemAllocPitch_v2": "device_alloc",
    "cuMemFree_v2": "device_free", "cuMemAllocManaged": "managed_alloc",
    "cuMemHostAlloc": "pinned_alloc", "cuMemFreeHost": "pinned_free",
    "cuMemHostRegister_v2": "pinned_register", "cuMemHostUnregister": "pinned_unregister",
}


def as_booked(events):
    """Recorded calls with the program's own memory named as the device's books name it."""
    names = {}
    registered = 0
    for kind, address, result in events:
        if kind == "pinned_register" and result == 0:
            registered += 1
            names[address] = f"host{registered}"
        yield kind, names.get(address, hex(address)), result
        if kind == "pinned_unregister":
            names.pop(address, None)


@pytest.mark.parametrize("program", ["tenant", "memory"])
def test_the_recorder_missed_nothing_that_the_device_served(build, major, tmp_path, program):
    """The device's own books against the recorded events, call by call."""
    books, out = tmp_path / "books.txt", tmp_path / "run.fsr"
    arguments = ["addresses", "3"] if program == "tenant" else []
    environment = dict(os.environ, LD_PRELOAD=str(build / "lib/libfragscope.so"),
                       FRAGSCOPE_OUT=str(out), FRAGSCOPE_SIM=f"total_bytes={GIB};books={books}")
    done = subprocess.run([build / f"tests/sim/sim_{program}_{major}", *arguments],
                          env=environment, text=True, capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    served = [line.split() for line in books.read_text().splitlines()]
    served = [(KINDS[c], address, int(result))
              for _, _, c, address, _, result in served if c in KINDS]
    listing = subprocess.run([build / "bin/fragscope", "events", "--jsonl", out], text=True,
                             capture_output=True, check=True, timeout=60).stdout
    events = [json.loads(line) for line in listing.splitlines()]
    seen = [(e["kind"], e["address"] or 0, e["result"])
            for e in events if e["plane"] == "driver" and e["kind"] in KINDS.values()]
    seen = list(as_booked(seen))
    if program == "memory":  # also makes calls that the runtime refuses before the driver is asked
        served, seen = ([e for e in calls if e[1] != "0x0" and e[2] == 0] for calls in (served, seen))
    assert len(served) > 15
    assert seen == served


def test_profilers_get_the_time_of_the_host(build):
    script = ("import ctypes, sys, time\n"
              "cupti, now = ctypes.CDLL(sys.argv[1]), ctypes.c_uint64()\n"
              "before = time.time_ns()\n"
              "assert cupti.cuptiGetTimestamp(ctypes.byref(now)) == 0\n"
              "assert before <= now.value <= time.time_ns()\n"
              "assert cupti.cuptiGetTimestamp(None) == 1")
    for library in sorted((build / "lib/fragscope/sim").glob("libcupti.so.*")):
        subprocess.run([sys.executable, "-c", script, library], check=True, timeout=60)


@pytest.mark.parametrize("major, version, bad_parameter", [(8, [8, 9, 7], 3), (9, [9, 26, 0], 2000)])
def test_both_majors_of_cudnn_speak_their_own_codes(build, major, version, bad_parameter):
    script = ("import ctypes, sys\n"
              "dnn, part, found = ctypes.CDLL(sys.argv[1]), ctypes.c_int(), []\n"
              "for which in range(3):\n"
              "    assert dnn.cudnnGetProperty(which, ctypes.byref(part)) == 0\n"
              "    found.append(part.value)\n"
              "dnn.cudnnGetErrorString.restype = ctypes.c_char_p\n"
              "print([found, dnn.cudnnBackendCreateDescriptor(0, None)])")
    library = build / f"lib/fragscope/sim/libcudnn.so.{major}"
    done = subprocess.run([sys.executable, "-c", script, library], capture_output=True, text=True, check=True,
                          timeout=60)
    assert json.loads(done.stdout) == [version, bad_parameter]
