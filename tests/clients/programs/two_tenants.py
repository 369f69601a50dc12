"""Two programs hold memory of one card; what monitors say of them, before and after one is killed.

Arguments: the program that holds memory, the directory of nvitop and gpustat. Prints JSON lines.
"""

import json
import pathlib
import signal
import subprocess
import sys

import pynvml

HOLDER, BIN = sys.argv[1], pathlib.Path(sys.argv[2])


def hold(mib):
    process = subprocess.Popen([HOLDER, "hold", str(mib)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    return process, process.stdout.readline().strip()


def look():
    card = pynvml.nvmlDeviceGetHandleByIndex(0)
    gpustat = json.loads(subprocess.run([BIN / "gpustat", "--json"], check=True, capture_output=True).stdout)
    nvitop = subprocess.run([BIN / "nvitop", "-1", "--colorful", "--ascii"], check=True, capture_output=True, text=True)
    return {"used": pynvml.nvmlDeviceGetMemoryInfo(card).used,
            "nvml": {p.pid: p.usedGpuMemory for p in pynvml.nvmlDeviceGetComputeRunningProcesses(card)},
            "gpustat": {p["pid"]: p["gpu_memory_usage"] for p in gpustat["gpus"][0]["processes"]},
            "nvitop": nvitop.stdout}


pynvml.nvmlInit()
first, said = hold(1000)
second, said_too = hold(500)
third, refused = hold(22000)
print(json.dumps({"pids": [first.pid, second.pid], "said": [said, said_too, refused]}))
print(json.dumps(look()))
first.send_signal(signal.SIGKILL)
first.wait()
print(json.dumps(look()))
for process in (second, third):
    process.communicate()
