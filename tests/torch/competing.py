"""Two programs of PyTorch compete for one card: the second is refused what fits once the first is killed.

Arguments: nothing, or "hold GIB" for one of the two. With FRAGSCOPE_MONITORS (a directory with nvitop and
gpustat) they are asked as well. Prints JSON lines: what the first holds, the second's refusal, what
monitors see, what the second gets and what they see after the first was killed.
"""
import json
import os
import signal
import subprocess
import sys

GIB = 1 << 30


def hold():
    import torch
    held = []
    for line in sys.stdin:
        try:
            held.append(torch.empty(int(line) * GIB, dtype=torch.uint8, device="cuda"))
            refused = None
        except torch.OutOfMemoryError as error:
            refused = str(error)
        free, total = torch.cuda.mem_get_info()
        print(json.dumps({"refused": refused, "used": total - free,
                          "reserved": torch.cuda.memory_reserved()}), flush=True)


def start():
    return subprocess.Popen([sys.executable, __file__, "hold"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ask(process, gib):
    process.stdin.write(f"{gib}\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def look(monitors):
    listed = subprocess.run([f"{monitors}/gpustat", "--json"], check=True, capture_output=True).stdout
    card = json.loads(listed)["gpus"][0]
    drawn = subprocess.run([f"{monitors}/nvitop", "-1", "--colorful", "--ascii"], check=True, capture_output=True,
                           text=True).stdout
    return {"used_mib": card["memory.used"], "nvitop": drawn,
            "processes": {p["pid"]: p["gpu_memory_usage"] for p in card["processes"]}}


def main():
    monitors = os.environ.get("FRAGSCOPE_MONITORS")
    first, second = start(), start()
    steps = [ask(first, 10) | {"pid": first.pid}, ask(second, 15) | {"pid": second.pid},
             look(monitors) if monitors else None]
    first.send_signal(signal.SIGKILL)
    first.wait()
    steps += [ask(second, 15), look(monitors) if monitors else None]
    second.communicate()
    for step in steps:
        print(json.dumps(step))


hold() if sys.argv[1:] == ["hold"] else main()
