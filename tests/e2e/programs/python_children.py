"""Processes made in the ways that training scripts make them; each child allocates its own size.
usage: python_children.py LIBCUDART WAY; WAY: spawn, forkserver, fork, posix_spawn, subprocess, idle"""

import ctypes
import multiprocessing
import os
import subprocess
import sys


def allocate(size):
    library = ctypes.CDLL(sys.argv[1])
    assert library.cudaMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(size)) == 0


def child(runtime, size):
    sys.argv[1] = runtime
    allocate(size)


def nothing(runtime, size):
    pass


def run_multiprocessing(way, target=child):
    context = multiprocessing.get_context(way)
    children = [context.Process(target=target, args=(sys.argv[1], 3000 + rank)) for rank in range(2)]
    for process in children:
        process.start()
    for process in children:
        process.join()
        assert process.exitcode == 0


def main(way):
    again = [sys.executable, __file__, sys.argv[1], "alone"]
    if way == "alone":
        allocate(int(os.environ["SIZE"]))
    elif way in ("posix_spawn", "subprocess"):
        for rank in range(2):
            environment = dict(os.environ, SIZE=str(3000 + rank))
            if way == "posix_spawn":
                pid = os.posix_spawn(sys.executable, again, environment)
                assert os.waitpid(pid, 0)[1] == 0
            else:
                subprocess.run(again, env=environment, check=True)
    elif way == "idle":
        allocate(2999)
        for how in ("fork", "spawn"):
            run_multiprocessing(how, nothing)
        subprocess.run(["sh", "-c", "echo quiet | cat"], check=True)
    else:
        run_multiprocessing(way)


if __name__ == "__main__":
    main(sys.argv[2])
