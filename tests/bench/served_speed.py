#!/usr/bin/env python3
"""served_speed.cpp with the installed torch on the simulated GPU, and the synchronising way apart.

usage: served_speed.py BUILD [PAIRS]

Prints, per number of threads, three rounds of PyTorch's own allocator and of libfragscope_alloc.so in
one process; then what cudaMalloc and cudaFree cost under --enforce=shim, whose frees wait for the
device. Needs a torch in the cached venv.
"""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/oracle"))
import wheels  # noqa: E402


def build(torch, folder):
    program = folder / "served_speed"
    runtime = f"libcudart.so.{torch.cuda_major}"
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["g++", "-std=c++20", "-O2", "-w", f"-D_GLIBCXX_USE_CXX11_ABI={0 if torch.old_abi else 1}",
         "-isystem", str(torch.root / "include"), "-isystem", str(wheels.cuda_include(torch.cuda_major)),
         str(ROOT / "tests/bench/served_speed.cpp"), "-o", str(program), f"-L{wheels.SIM}",
         f"-l:{runtime}", f"-L{torch.root / 'lib'}", "-lc10_cuda", "-lc10", "-ldl", "-lpthread",
         "-Wl,--allow-shlib-undefined",
         f"-Wl,--disable-new-dtags,-rpath,{wheels.SIM}:{torch.root / 'lib'}"], check=True)
    return program


def main():
    if len(sys.argv) < 2:
        print(__doc__.splitlines()[2], file=sys.stderr)
        return 2
    place, pairs = pathlib.Path(sys.argv[1]).resolve(), int(sys.argv[2]) if len(sys.argv) > 2 else 200000
    try:
        version = wheels.newest_installed()
        if version is None:
            raise wheels.OracleError("no torch is installed: tools/setup.sh --torch")
        program = build(wheels.find(version, False), place / "bench")
    except (wheels.OracleError, subprocess.CalledProcessError) as error:
        print(f"served_speed: {error}", file=sys.stderr)
        return 3
    print(f"served_speed: torch {version}, blocks reused without waiting for the device", flush=True)
    gpu = [str(place / "bin/fragscope"), "run", "-q", "--no-record", "--gpu", "24GiB", "--"]
    for threads in (1, 64):
        subprocess.run([*gpu, str(program), str(place / "lib/libfragscope_alloc.so"), str(threads),
                        str(pairs if threads == 1 else pairs // 4)], check=True)
    shim = [str(place / "bin/fragscope"), "run", "-q", "--gpu", "24GiB", "-o",
            str(place / "bench/served_speed.fsr"), "--stacks", "none", "--max-split-size-mb", "128",
            "--enforce", "shim", "--"]
    for threads in (1, 64):
        subprocess.run(["rm", "-rf", str(place / "bench/served_speed.fsr")], check=True)
        subprocess.run([*shim, str(place / "tests/cuda/cuda_served"), "cost", str(threads),
                        str(max(pairs // threads // 4, 1000))], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
