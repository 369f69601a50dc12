"""Marks and ranges around calls of cudaMalloc. usage: python_marks.py LIBCUDART"""

import ctypes
import sys
import threading

import fragscope

library = ctypes.PyDLL(sys.argv[1])


def allocate(size):
    address = ctypes.c_void_p()
    library.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(size))


@fragscope.range("step é")
def step():
    allocate(2000)


fragscope.mark("before the recording")
allocate(1000)
print(fragscope.active())
with fragscope.range("outer"):
    step()
    step()
    fragscope.mark("x" * 5000)
    thread = threading.Thread(target=step)
    thread.start()
    thread.join()
    try:
        with fragscope.range("fails"):
            raise KeyError
    except KeyError:
        pass
fragscope.range_pop()  # one too many
