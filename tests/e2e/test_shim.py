"""libfragscope.so in front of small programs and stand-ins of CUDA (programs/shim_*.cpp).

Every program runs with and without the library: what it prints and how it ends must be equal.
"""

import os
import shutil
import signal
import subprocess
import sys

import pytest

import fslog
from shim_programs import allocs, programs, summary  # noqa: F401  (fixture)


# --- single calls


def test_every_call_is_one_event_with_its_own_name_and_result(programs):
    (log,) = programs.run_both("shim_basic")
    assert [(e["kind"], e["api"], e["result"]) for e in log.events] == [
        ("device_free", "cudaFree", 0),
        ("device_alloc", "cudaMalloc", 0),
        ("device_free", "cudaFree", 0),
        ("device_free", "cudaFree", 1),
        ("device_alloc", "cudaMalloc", 0),
        ("device_alloc", "cudaMalloc", 2),
        ("device_alloc", "cudaMalloc", 1),
        ("device_free", "cudaFree", 1),
        ("pinned_alloc", "cudaHostAlloc", 0),
        ("pinned_free", "cudaFreeHost", 0),
        ("pinned_alloc", "cudaMallocHost", 0),
        ("pinned_free", "cudaFreeHost", 0),
        ("async_alloc", "cudaMallocAsync", 0),
        ("async_free", "cudaFreeAsync", 0),
        ("device_alloc", "cuMemAlloc_v2", 0),
        ("device_free", "cuMemFree_v2", 0),
    ]
    assert all(e["final"] and e["device"] == 0 for e in log.events)
    failed = log.of("device_alloc")[2]
    assert failed["size"] == 2**50 and failed["address"] == fslog.UNKNOWN
    assert log.of("async_alloc")[0]["stream"] == 0x5000
    assert log.of("pinned_alloc")[0]["aux2"] == 2
    assert log.dropped == 0 and log.torn == 0 and log.finished == 1
    assert log.properties["device.0.name"] == "fake card"
    assert log.properties["device.0.simulated"] == "0"


def test_times_rise_and_frees_are_timed_before_later_allocations(programs):
    (log,) = programs.run_both("shim_basic")
    times = [e["time_ns"] for e in log.events]
    assert times == sorted(times) and times[0] >= log.monotonic_ns


def test_nested_driver_calls_are_not_reported_twice(programs):
    (log,) = programs.run_both("shim_callbacks", "nested")
    assert summary(log) == [("device_alloc", 111)]
    assert log.api_calls["cudaMalloc"] == 1


def test_exceptions_pass_and_recording_goes_on(programs):
    (log,) = programs.run_both("shim_callbacks", "throw")
    # The calls that threw never returned; a call deeper on the stack is recorded again.
    assert summary(log) == [("device_alloc", 333)]


def test_signal_handler_may_call_cuda_anywhere(programs):
    (log,) = programs.run_both("shim_callbacks", "signal")
    assert allocs(log) == [111, 222, 333]
    assert all(e["final"] for e in log.events)


def test_many_threads_lose_nothing(programs):
    (log,) = programs.run_both("shim_threads", 16, 500)
    assert len(log.of("device_alloc")) == 8000 and len(log.of("device_free")) == 8000
    assert log.dropped == 0 and log.torn == 0
    assert len({e["tid"] for e in log.events}) == 16
    live = set()
    for event in log.events:
        if event["kind"] == "device_alloc":
            assert event["address"] not in live
            live.add(event["address"])
        else:
            live.remove(event["address"])
    assert not live


# --- processes


def test_child_without_cuda_leaves_no_log(programs):
    (log,) = programs.run_both("shim_fork", "quiet")
    assert summary(log) == [("device_alloc", 111), ("device_free", None)]


def test_forked_child_has_a_log_of_its_own(programs):
    logs = programs.run_both("shim_fork", "frees")
    parent, child = sorted(logs, key=lambda log: log.pid)
    assert summary(parent) == [("device_alloc", 111), ("device_free", None)]
    assert summary(child) == [("device_free", None), ("device_alloc", 333)]
    assert child.events[0]["address"] == parent.events[0]["address"]
    assert all(e["tid"] == child.pid for e in child.events)


@pytest.mark.parametrize("mode", ["quiet", "frees", "before", "exec"])
def test_forks_on_kernels_that_clear_no_pages(programs, mode):
    preload = [programs.directory / "libshim_no_wipe.so", programs.shim]
    result = programs.run("shim_fork", mode, preload=preload)
    assert (result.returncode, result.stderr) == (0, b"")
    logs = sorted(programs.logs(), key=lambda log: log.monotonic_ns)
    expected = {"quiet": [[111]], "frees": [[111], [333]], "before": [[333]], "exec": [[111], [222]]}
    assert [allocs(log) for log in logs] == expected[mode]


def test_only_the_child_uses_cuda(programs):
    (log,) = programs.run_both("shim_fork", "before")
    assert allocs(log) == [333]


def test_spawned_programs_are_left_alone(programs):
    (log,) = programs.run_both("shim_fork", "spawn")
    assert allocs(log) == [111]


def test_exec_starts_a_new_log(programs):
    first, second = sorted(
        programs.run_both("shim_fork", "exec"), key=lambda log: log.monotonic_ns
    )
    assert (allocs(first), allocs(second)) == ([111], [222])
    assert first.pid == second.pid


def test_fork_beside_busy_threads(programs):
    logs = programs.run_both("shim_fork", "threads")
    parent, child = sorted(logs, key=lambda log: log.pid)
    assert allocs(child) == [333]
    assert parent.torn == 0 and parent.dropped == 0


def test_fork_beside_a_thread_inside_libunwind(programs):
    """Its lock is never given back in the child, which must do without native stacks."""
    unwinder = programs.directory / "unwind/libunwind.so.8"
    done = programs.run("shim_fork", "unwinding", preload=[programs.shim, unwinder])
    assert done.returncode == 0 and done.stdout == b"child: 0\n"
    parent, child = sorted(programs.logs(), key=lambda log: log.pid)
    assert allocs(child) == [333]
    assert child.properties["native_stacks"].startswith("none: forked")
    assert child.properties["stacks"] == "python"
    assert "native_stacks" not in parent.properties and parent.properties["stacks"] == "both"
    assert all(event["stack"] for event in parent.of("device_alloc"))


def test_without_cuda_its_functions_are_not_there(programs):
    """Our exports must not make a program believe that it has CUDA."""
    assert programs.run_both("shim_absent", programs.directory / "libcudart.so.13") == []
    told = programs.run("shim_absent", programs.directory / "libcudart.so.13").stdout.decode().splitlines()
    program = programs.directory / "shim_absent"
    assert told[:3] == [f"{how}: none {program}: undefined symbol: cudaMalloc"
                        for how in ("default", "next", "program")]
    assert told[-6] == "default: found -"


def test_static_destructors_are_recorded(programs):
    (log,) = programs.run_both("shim_exit", "static")
    assert summary(log) == [("device_alloc", 111), ("device_alloc", 222), ("device_free", None)]
    assert log.finished == 1


def test_tls_destructors_are_recorded(programs):
    (log,) = programs.run_both("shim_exit", "thread")
    assert allocs(log) == [111, 333] and len(log.of("device_free")) == 2


def test_a_small_stack_is_enough(programs):
    (log,) = programs.run_both("shim_exit", "small")
    assert allocs(log) == [555, 111]


def test_quick_exit_keeps_events(programs):
    (log,) = programs.run_both("shim_exit", "quick")
    assert allocs(log) == [111] and log.finished == 0


def test_kill_keeps_every_completed_call(programs):
    process = subprocess.Popen(
        [str(programs.directory / "shim_exit"), "kill"],
        env=programs.environment([programs.shim]),
        stdout=subprocess.PIPE,
    )
    rounds = [int(process.stdout.readline()) for _ in range(2000)]
    process.send_signal(signal.SIGKILL)
    rounds += [int(line) for line in process.stdout.read().split()]
    assert process.wait() == -signal.SIGKILL
    (log,) = programs.logs()
    frees = [e for e in log.of("device_free") if e["final"]]
    assert len(frees) >= rounds[-1] and log.dropped == 0 and log.torn <= 1
    assert log.finished == 0


# --- look-ups


def test_lookups_are_substituted_only_for_exact_matches(programs):
    plain = programs.run("shim_lookup", preload=()).stdout.decode().splitlines()
    shimmed = programs.run("shim_lookup").stdout.decode().splitlines()
    # Results, status outputs and errors are equal; only the kind of pointer may differ.
    assert [line.rsplit(":", 1)[0] for line in plain] == [l.rsplit(":", 1)[0] for l in shimmed]
    got = dict(line.rsplit(": ", 1) for line in shimmed)
    hooks = {key for key, value in got.items() if value == "hook"}
    assert hooks == {
        "dlsym handle cuMemAlloc_v2",
        "dlsym default cuMemAlloc_v2",
        "dlsym main cuMemAlloc_v2",
        "dlsym handle cuMemPoolCreate",
        "v2 12000/0 result 0 status 0 cuMemPoolCreate",
        "v1 12000/0 result 0 cuMemPoolCreate",
        "v2 3020/0 result 0 status 0 cuMemAlloc_v2",
        "v1 3020/0 result 0 cuMemAlloc_v2",
        "v2 12000/1 result 0 status 0 cuMemAlloc_v2",
        "v1 12000/1 result 0 cuMemAlloc_v2",
        "v2 12000/2 result 0 status 0 cuMemAlloc_v2",
        "v1 12000/2 result 0 cuMemAlloc_v2",
        "v2 11020/0 result 0 status 0 cuMemAllocAsync",
        "v1 11020/0 result 0 cuMemAllocAsync",
        "v2 11020/2 result 0 status 0 cuMemAllocAsync_ptsz",
        "v1 11020/2 result 0 cuMemAllocAsync_ptsz",
        "v2 11030/0 result 0 status 0 cuGetProcAddress",
        "v1 11030/0 result 0 cuGetProcAddress",
        "v2 12000/0 result 0 status 0 cuGetProcAddress_v2",
        "v1 12000/0 result 0 cuGetProcAddress_v2",
    }
    (log,) = programs.logs()
    assert allocs(log) == [111, 222]  # through dlsym's and cuGetProcAddress's pointer
    assert int(log.properties["coverage.hooked"]) >= 14
    assert log.properties["coverage.unhooked.cuMemAlloc"] == "3"


@pytest.mark.parametrize("flag", ["local", "deepbind", "global"])
def test_each_caller_reaches_its_own_runtime(programs, flag):
    plugin = programs.directory / "libshim_plugin.so"
    (log,) = programs.run_both("shim_majors", plugin, flag)
    # RTLD_DEEPBIND puts the module and the runtime it brings out of every preload's reach
    # (shim/README.md); what others call is still seen, and the results are right.
    assert allocs(log) == ([111, 333, 333] if flag == "deepbind" else [111, 222, 333, 333])


@pytest.mark.parametrize("ours_first", [True, False])
def test_a_second_preload_keeps_its_place(programs, ours_first):
    other = programs.directory / "libshim_next_preload.so"
    preload = [programs.shim, other] if ours_first else [other, programs.shim]
    alone = programs.run("shim_exit", "quick", preload=[other])
    both = programs.run("shim_exit", "quick", preload=preload)
    assert (both.returncode, both.stdout, both.stderr) == (6, alone.stdout, b"")
    (log,) = programs.logs()
    # Outside of it we see what the program asks for, inside what the other makes of it.
    assert allocs(log) == ([111] if ours_first else [222])


def test_preloads_beside_python_and_shells_are_invisible(programs, tmp_path):
    for command in (
        ["bash", "-c", "echo hello | cat"],
        ["git", "--version"],
        [sys.executable, "-c", "import ctypes, sqlite3; print(ctypes.CDLL(None).getpid() > 0)"],
    ):
        plain = subprocess.run(command, cwd=tmp_path, capture_output=True)
        env = dict(os.environ, LD_PRELOAD=str(programs.shim))
        shimmed = subprocess.run(command, cwd=tmp_path, capture_output=True, env=env)
        assert (shimmed.stdout, shimmed.stderr) == (plain.stdout, plain.stderr)
        assert shimmed.returncode == 0
    assert not list(tmp_path.iterdir())


def test_a_module_may_bring_another_libstdcxx(programs, tmp_path):
    private = tmp_path / "private"
    private.mkdir()
    system = subprocess.run(
        ["g++", "-print-file-name=libstdc++.so.6"], capture_output=True, text=True, check=True
    ).stdout.strip()
    shutil.copy(system, private / "libstdc++.so.6")
    result = programs.run(
        "shim_host",
        programs.directory / "libshim_module.so",
        LD_LIBRARY_PATH=str(private),
        LD_DEBUG="bindings",
        LD_DEBUG_OUTPUT=str(tmp_path / "bindings"),
    )
    size, library = result.stdout.decode().split()
    assert (size, library) == ("100", str(private / "libstdc++.so.6"))
    bindings = "".join(p.read_text() for p in tmp_path.glob("bindings.*"))
    raising = [l for l in bindings.splitlines() if "`_Unwind_RaiseException'" in l]
    assert raising and all(" to " in l and "libgcc_s" in l.split(" to ")[1] for l in raising)
    (log,) = programs.logs()
    assert log.properties["stacks"] == "both"  # libunwind was there all the time
