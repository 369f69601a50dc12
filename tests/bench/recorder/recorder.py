"""What the recorder costs, measured; `make bench` runs it. Nothing is asserted.

usage: recorder.py BUILD_DIRECTORY [--repetitions N] [--torch PYTHON] [--memray PYTHON]

Hook cost: a loop of cudaMalloc and cudaFree on a CUDA runtime that does nothing (null_cudart.cpp),
CPU time of the threads. Training loop: PyTorch on the simulated GPU. Where its kernels take no time,
shares are those of a program that does nothing but allocate and launch: the worst case. On a card the
host waits for kernels; the curve assumes that each takes so many microseconds (--sim-kernel-us), the
same for all, and measures the step in wall-clock time. Figures are median [least … most].
"""

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
PAIRS = 100000
KERNEL_US = (0, 5, 10, 20, 50, 100)
DEPTH = 36  # frames above the loop; main, _start and the loop make it 40

PYTHON_LOOP = """
import ctypes, sys
library = ctypes.PyDLL(sys.argv[1])
library.bench_calls.restype = ctypes.c_double
library.bench_calls.argtypes = [ctypes.c_int, ctypes.c_long]
def down(depth):
    return down(depth - 1) if depth else library.bench_calls(0, int(sys.argv[2]))
library.bench_calls(0, 1)
print(down(38))
"""


def spread(values, unit, digits=2):
    low, high = min(values), max(values)
    return f"{statistics.median(values):.{digits}f} [{low:.{digits}f} … {high:.{digits}f}] {unit}"


def cpu_seconds(command, environment):
    child = os.posix_spawnp(command[0], command, environment)
    _, status, usage = os.wait4(child, 0)
    if status != 0:
        sys.exit(f"{command[0]} failed")
    return usage.ru_utime + usage.ru_stime


def row(name, text):
    print(f"{name:<62}{text}", flush=True)


class Bench:
    def __init__(self, arguments):
        self.build = pathlib.Path(arguments.build).resolve()
        self.repetitions = arguments.repetitions
        self.torch = arguments.torch
        self.memray = arguments.memray
        self.shim = self.build / "lib/libfragscope.so"
        self.fragscope = self.build / "bin/fragscope"
        self.programs = self.build / "tests/bench"
        self.environment = {k: v for k, v in os.environ.items()
                            if not k.startswith("FRAGSCOPE_") and k != "LD_PRELOAD"}

    @contextlib.contextmanager
    def preloaded(self, stacks):
        """An environment that records into memory, as `fragscope run` does."""
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        with tempfile.TemporaryDirectory(dir=memory) as directory:
            yield self.environment | {"LD_PRELOAD": str(self.shim), "FRAGSCOPE_STACKS": stacks,
                                      "FRAGSCOPE_OUT": directory + "/run.fsr"}

    def numbers(self, command, environment):
        done = subprocess.run([str(word) for word in command], env=environment, check=True,
                              stdout=subprocess.PIPE, timeout=600)
        return [float(word) for word in done.stdout.split()]

    def number(self, command, environment):
        return self.numbers(command, environment)[-1]

    def hook_cost(self):
        print("\n-- one hooked call, beyond the same call without the recorder (CPU time)")
        native = [self.programs / "hook_cost", "calls", DEPTH, PAIRS]
        python = [sys.executable, "-c", PYTHON_LOOP, self.programs / "libbench_recorder_calls.so", PAIRS]
        for stacks, command, name, bar in (
                ("none", native, "no stacks", "0.3"),
                ("native", native, "native stack of 40 frames", "2"),
                ("python", python, "Python stack of 40 frames", "4"),
                ("both", python, "Python stack of 40 frames and native stack", "4")):
            costs = []
            for _ in range(self.repetitions):
                plain = self.number(command, self.environment)
                with self.preloaded(stacks) as environment:
                    costs.append((self.number(command, environment) - plain) / 1000)
            row(f"  {name} (bar: {bar} µs)", spread(costs, "µs", 3))

    def threads(self):
        print("\n-- one call when many threads record at once (CPU time, no stacks)")
        for count in (1, 2, 64):
            with self.preloaded("none") as environment:
                costs = [self.number([self.programs / "hook_cost", "threads", count, 2 * PAIRS // count],
                                     environment) / 1000 for _ in range(self.repetitions)]
            row(f"  {count} thread(s) on {os.cpu_count()} cores", spread(costs, "µs", 3))

    def start_up(self):
        print("\n-- a process without CUDA, CPU time (bar: 1 ms)")
        with self.preloaded("both") as environment:
            for name, command in (("/bin/true", ["/bin/true"]), ("python -c ''", [sys.executable, "-c", ""])):
                costs = []
                for _ in range(20 * self.repetitions):
                    plain, recorded = (cpu_seconds(command, env) for env in (self.environment, environment))
                    costs.append((recorded - plain) * 1000)
                quarter = len(costs) // 4  # of a loaded machine the middle half says more
                row(f"  {name}, middle half of {len(costs)} pairs", spread(sorted(costs)[quarter:-quarter], "ms"))

    def tools(self):
        tools = {"recorded": "fragscope run, default settings",
                 "history-python": "torch.cuda.memory._record_memory_history, python stacks",
                 "history-all": "torch.cuda.memory._record_memory_history, all stacks"}
        return tools | ({"memray": "memray run --native"} if self.memray else {})

    def train(self, how, directory, kernel_us=0):
        """Device operations per step, seconds of the median step, seconds of CPU time of the loop."""
        options = ["-o", directory] if how == "recorded" else ["--no-record"]
        if kernel_us:
            options += ["--sim-kernel-us", kernel_us]
        python = [self.torch]
        if how == "memray":
            python = [self.memray, "-m", "memray", "run", "--native", "-q", "-f", "-o", directory + ".bin"]
        command = [self.fragscope, "run", "-q", "--gpu", "8GiB", *options, "--", *python,
                   HERE / "training_loop.py", how]
        return self.numbers(command, self.environment)[-3:]

    def training(self):
        if self.torch is None:
            print("\n-- training loop: left out, no Python with torch (--torch)")
            return
        print("\n-- a whole training loop, kernels take no time, against the same loop without a tool, paired")
        tools = self.tools()
        slower = {how: [] for how in tools}
        disk = None
        for _ in range(self.repetitions):
            with tempfile.TemporaryDirectory() as scratch:
                before = self.train("plain", scratch)[2]
                for how in tools:
                    slower[how].append((self.train(how, scratch + "/run.fsr")[2] / before - 1) * 100)
                disk = self.bytes_per_event(scratch + "/run.fsr")
        for how, name in tools.items():
            row(f"  {name}", spread(slower[how], "% more CPU time", 1))
        row("  trace on disk with stacks (bar: 8 bytes per event)", disk)

    def paused(self):
        """Of one process: what its steps cost more while it records than while that is paused."""
        if self.torch is None:
            return
        print("\n-- a step of that loop, recording paused and resumed in turn in one process (CPU time)")
        steps, more = [], []
        for _ in range(self.repetitions):
            with tempfile.TemporaryDirectory() as scratch:
                command = [self.fragscope, "run", "-q", "--gpu", "8GiB", "-o", scratch + "/run.fsr", "--", self.torch,
                           HERE / "paused_steps.py", self.fragscope, 15]
                paused, difference = self.numbers(command, self.environment)[-2:]
                steps.append(paused)
                more.append(difference)
        row("  paused", spread(steps, "ms"))
        row("  recorded, beyond that", spread(more, "ms"))

    def curve(self):
        """The bar is 1 % of a whole training loop: from which mean time of a kernel on is it kept?"""
        if self.torch is None:
            return
        tools = self.tools()
        print("\n-- a training step in wall-clock time by the assumed time of each kernel, paired (bar: 1 %)")
        for kernel_us in KERNEL_US:
            steps, slower = [], {how: [] for how in tools}
            for _ in range(self.repetitions):
                with tempfile.TemporaryDirectory() as scratch:
                    count, before, _ = self.train("plain", scratch, kernel_us)
                    steps.append(before * 1000)
                    for how in tools:
                        wall = self.train(how, scratch + "/run.fsr", kernel_us)[1]
                        slower[how].append((wall / before - 1) * 100)
            operations = count / max(kernel_us, 1)
            row(f"  {kernel_us} µs: about {operations:.0f} kernels per step, without a tool", spread(steps, "ms"))
            for how, name in tools.items():
                row(f"    {name}", spread(slower[how], "% longer", 1))

    def bytes_per_event(self, directory):
        info = json.loads(subprocess.run([self.fragscope, "info", "--json", directory], check=True,
                                         stdout=subprocess.PIPE).stdout)
        events = sum(process["events"] for process in info["processes"])
        size = sum(path.stat().st_size for path in pathlib.Path(directory).glob("*.fst"))
        return f"{size / events:.2f} bytes ({size} bytes, {events} events)"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--torch", help="a Python that has a CUDA build of torch")
    parser.add_argument("--memray", help="a Python that has that torch and memray")
    bench = Bench(parser.parse_args())
    print(f"recorder: {bench.repetitions} repetitions, load {os.getloadavg()[0]:.1f}")
    bench.hook_cost()
    bench.threads()
    bench.start_up()
    bench.training()
    bench.paused()
    bench.curve()


if __name__ == "__main__":
    main()
