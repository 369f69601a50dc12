#!/usr/bin/env python3
"""How long a snapshot takes to load, and how much memory: `fragscope info` of generated pickles (it reads
the file, rewinds the trace and counts every event).

usage: bench_snapshot.py FRAGSCOPE [BYTES]     (default 200000000; the bar is stated for 1000000000)
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent


def measure(fragscope, path):
    begin = time.monotonic()
    child = subprocess.Popen([fragscope, "info", "--json", path], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.monotonic() - begin
    assert status == 0, f"info failed: {status}"
    size = path.stat().st_size
    print(f"{path.stem:<24}{size / 1e6:>9.0f} MB{seconds:>8.2f} s{size / 1e6 / seconds:>8.0f} MB/s"
          f"{usage.ru_utime + usage.ru_stime:>8.2f} s CPU{usage.ru_maxrss * 1024 / size:>7.2f} x file in RAM")


def main(fragscope, size):
    with tempfile.TemporaryDirectory() as directory:
        for name, options in (("snapshot_with_stacks", []), ("snapshot_without_stacks", ["--no-frames"])):
            path = pathlib.Path(directory) / f"{name}.pickle"
            subprocess.run([sys.executable, HERE / "make_snapshot.py", str(size), path, *options],
                           stdout=subprocess.DEVNULL, check=True)
            measure(fragscope, path)
            path.unlink()


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 200_000_000)
