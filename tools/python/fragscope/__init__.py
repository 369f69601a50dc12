"""Marks and ranges in a FragScope recording: what a training script says of itself.

    import fragscope

    with fragscope.range("forward"):
        loss = model(batch)
    fragscope.mark("epoch 3")

Works with and without the recorder (`fragscope run`, or LD_PRELOAD=libfragscope.so): without it
every call does nothing. Marks and ranges are kept from the first CUDA memory call of the process on.
Ranges belong to the thread that opens them and nest.
"""

import contextlib
import ctypes

__all__ = ["active", "mark", "range", "range_pop", "range_push"]

_API_VERSION = 1
# Members of struct fragscope_api (fragscope_api.h) before `mark`: size and version are one word.
_ACTIVE, _MARK, _RANGE_PUSH, _RANGE_POP = 1, 8, 9, 10


def _load():
    """The recorder's table as (active, mark, range_push, range_pop); None where it has none."""
    try:
        get = ctypes.PyDLL(None).fragscope_get_api
    except AttributeError:
        return None, None, None, None
    get.restype = ctypes.c_void_p
    get.argtypes = [ctypes.c_uint32]
    table = get(_API_VERSION)
    if not table:
        return None, None, None, None
    size = ctypes.c_uint32.from_address(table).value
    words = (ctypes.c_void_p * (size // ctypes.sizeof(ctypes.c_void_p))).from_address(table)

    def function(index, result, *arguments):
        # PYFUNCTYPE keeps the GIL: the call is short, and Python frames are recorded with it.
        return ctypes.PYFUNCTYPE(result, *arguments)(words[index]) if index < len(words) else None

    return (function(_ACTIVE, ctypes.c_int), function(_MARK, None, ctypes.c_char_p),
            function(_RANGE_PUSH, None, ctypes.c_char_p), function(_RANGE_POP, None))


_active, _mark, _push, _pop = _load()


def _bytes(text):
    return str(text).encode("utf-8", "replace")


def active():
    """True when this process is being recorded, or will be from its first CUDA memory call on."""
    return bool(_active is not None and _active())


def mark(text):
    """A point in time with a name; the first 1000 bytes count."""
    if _mark is not None:
        _mark(_bytes(text))


def range_push(text):
    """Opens a range of this thread; range_pop() closes the newest open one."""
    if _push is not None:
        _push(_bytes(text))


def range_pop():
    if _pop is not None:
        _pop()


@contextlib.contextmanager
def range(text):
    """A named stretch of time, as a context manager or as a decorator."""
    range_push(text)
    try:
        yield
    finally:
        range_pop()
