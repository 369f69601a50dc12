"""Calls cudaMalloc from many kinds of Python code. For every call it prints, as a line of JSON, the
bytes asked for and the frames that the interpreter itself sees: [name, file, line], innermost first.

usage: python_frames.py LIBCUDART. Runs on CPython 3.9 and later.
"""

import ctypes
import functools
import gc
import json
import sys
import threading

holding = ctypes.PyDLL(sys.argv[1])  # keeps the GIL during the call
releasing = ctypes.CDLL(sys.argv[1])
address = ctypes.c_void_p()
sizes = iter(range(1000, 100000))


def frames_from(frame):
    seen = []
    while frame is not None:
        code = frame.f_code
        seen.append([getattr(code, "co_qualname", code.co_name), code.co_filename, frame.f_lineno])
        frame = frame.f_back
    return seen


def call(library=holding):
    size = next(sizes)
    said = (frames_from(sys._getframe()), library.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(size)))
    print(json.dumps([size, said[0]]))


class Layer:
    def __init__(self):
        self.forward = lambda: self.step()

    def step(self):
        call()

    @staticmethod
    def in_static():
        call()

    @property
    def weight(self):
        call()
        return 1

    def __del__(self):
        call()


def generator():
    for _ in range(2):
        call()
        yield


async def coroutine():
    call()


def wrapped(function):
    @functools.wraps(function)
    def wrapper(*arguments):
        return function(*arguments)
    return wrapper


@wrapped
def décorée():
    call()


def multi_line(*_):
    return (
        sorted([2, 1], key=lambda _: call() or 0)  # Python called by C called by Python
        and
        call()
    )


def recurse(depth):
    if depth:
        return recurse(depth - 1)
    return call()


def generated():
    """Code that comes and goes: every function may lie where the one before it was."""
    for number in range(40):
        space = {"call": call}
        source = "\n" * (number % 3) + f"def f_{number}():\n    call()\n"
        exec(compile(source, f"<generated {number}>", "exec"), space)
        space[f"f_{number}"]()
        # The same name, file and first line; other code.
        again = {"call": call}
        exec(compile("def g():\n" + "    pass\n" * (number % 5) + "    call()\n", "<again>", "exec"), again)
        again["g"]()
        del space, again
        if number % 7 == 0:
            gc.collect()


def in_thread(target):
    thread = threading.Thread(target=target)
    thread.start()
    thread.join()


def main():
    call()
    layer = Layer()
    layer.forward()
    Layer.in_static()
    layer.weight
    layer.forward = None
    del layer
    for _ in generator():
        call()
    try:
        coroutine().send(None)
    except StopIteration:
        pass
    décorée()
    multi_line()
    list(map(lambda _: call(), [1]))
    recurse(30)
    recurse(400)
    generated()
    in_thread(call)
    call(releasing)  # without the GIL, while another thread has it
    in_thread(lambda: call(releasing))
    done = threading.Event()
    worker = threading.Thread(target=lambda: [sum(range(1000)) for _ in iter(done.is_set, True)])
    worker.start()
    for _ in range(200):
        call(releasing)
    in_thread(lambda: [call(releasing) for _ in range(200)])
    done.set()
    worker.join()
    eval("call()")


main()
call()
