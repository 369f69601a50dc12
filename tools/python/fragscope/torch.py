"""Serves PyTorch's device memory from libfragscope_alloc.so: PyTorch's own allocation rules, with
settings that `fragscope ctl set` can change while the process runs.

    import fragscope.torch

    fragscope.torch.enable(max_split_size_mb=128)   # before the first CUDA tensor

PyTorch's own allocator would refuse to answer torch.cuda.memory_stats() and what is built on it
(memory_allocated(), memory_summary(), …): enable() puts the library's answers in their place. Snapshots
and history are not there; a FragScope recording has both.
"""

import ctypes
import os
import pathlib
import shutil

__all__ = ["enable", "enabled", "library_path", "memory_stats", "set_settings"]

_NAME = "libfragscope_alloc.so"
_VISIT = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_int64, ctypes.c_void_p)
# Setter of PyTorch's class -> entry point of the library.
_FUNCTIONS = {
    "set_init_fn": "fragscope_alloc_init",
    "set_reset_fn": "fragscope_alloc_reset",
    "set_memory_fraction_fn": "fragscope_alloc_memory_fraction",
    "set_base_alloc_fn": "fragscope_alloc_base",
    "set_record_stream_fn": "fragscope_alloc_record_stream",
    "set_release_pool": "fragscope_alloc_release_pool",
}
# How a graph capture names its pool: since torch 2.3, and before.
_POOLS = {
    "set_begin_allocate_to_pool": "fragscope_alloc_begin_pool",
    "set_end_allocate_to_pool_fn": "fragscope_alloc_end_pool",
}
_STREAM_POOLS = {
    "set_begin_allocate_stream_to_pool": "fragscope_alloc_begin_stream_pool",
    "set_end_allocate_stream_to_pool_fn": "fragscope_alloc_end_stream_pool",
}

_library = None
_allocator = None  # PyTorch's wrapper: lives as long as the process allocates


def library_path():
    """The library: $FRAGSCOPE_ALLOC_LIBRARY, beside the preloaded recorder, or beside `fragscope`."""
    named = os.environ.get("FRAGSCOPE_ALLOC_LIBRARY")
    if named:
        return named
    places = [pathlib.Path(entry).parent for entry in
              os.environ.get("LD_PRELOAD", "").replace(":", " ").split()
              if pathlib.Path(entry).name == "libfragscope.so"]
    program = shutil.which("fragscope")
    if program:
        places.append(pathlib.Path(program).resolve().parent.parent / "lib")
    for place in places:
        if (place / _NAME).exists():
            return str(place / _NAME)
    raise FileNotFoundError(
        f"{_NAME} is not found: name it in FRAGSCOPE_ALLOC_LIBRARY, put `fragscope` into PATH, or "
        "start the script with `fragscope run`")


def _checked(alloc_conf):
    """Bytes for the library, whose texts end at a NUL."""
    if not isinstance(alloc_conf, str):
        raise TypeError('alloc_conf is text such as "max_split_size_mb:64", not '
                        f"{type(alloc_conf).__name__}")
    if "\0" in alloc_conf:
        raise ValueError(f"settings {alloc_conf!r} are not accepted: a NUL character")
    return alloc_conf.encode()


def _settings(max_split_size_mb, alloc_conf):
    text = alloc_conf if alloc_conf is not None else os.environ.get("FRAGSCOPE_ALLOC_CONF", "")
    text = _checked(text).decode()
    if max_split_size_mb is None:
        return text
    if isinstance(max_split_size_mb, bool) or not isinstance(max_split_size_mb, int):
        raise TypeError("max_split_size_mb is a whole number of MiB")
    if max_split_size_mb < 0:
        raise ValueError(f"max_split_size_mb is a whole number of MiB, not {max_split_size_mb}")
    return ",".join(filter(None, [text, f"max_split_size_mb:{max_split_size_mb}"]))


def _load():
    library = ctypes.CDLL(library_path())
    library.fragscope_alloc_configure.restype = ctypes.c_char_p
    library.fragscope_alloc_configure.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
    library.fragscope_alloc_set.restype = ctypes.c_char_p
    library.fragscope_alloc_set.argtypes = [ctypes.c_char_p]
    library.fragscope_alloc_stats.restype = None
    library.fragscope_alloc_stats.argtypes = [ctypes.c_int, _VISIT, ctypes.c_void_p]
    library.fragscope_alloc_reset_stats.restype = None
    library.fragscope_alloc_reset_stats.argtypes = [ctypes.c_int, ctypes.c_int]
    return library


def enabled():
    """True once enable() has made this library PyTorch's allocator."""
    return _allocator is not None


def enable(max_split_size_mb=None, alloc_conf=None):
    """Makes libfragscope_alloc.so PyTorch's allocator for this process, once and for all devices.

    `alloc_conf` is in PyTorch's grammar ("garbage_collection_threshold:0.8"), by default
    $FRAGSCOPE_ALLOC_CONF. Raises ValueError for settings that cannot be served, TypeError for what
    is no text or whole number, RuntimeError when memory has been allocated already or PyTorch is too old.
    """
    global _library, _allocator
    import torch

    if _allocator is not None:
        raise RuntimeError("fragscope.torch.enable() was called before: use set_settings()")
    if torch.cuda.is_initialized():
        raise RuntimeError("CUDA is initialised already: call fragscope.torch.enable() before the "
                           "first CUDA tensor, at the top of the script")
    library = _load()
    problem = library.fragscope_alloc_configure(
        _settings(max_split_size_mb, alloc_conf).encode(), torch.__version__.encode())
    if problem:
        raise ValueError(problem.decode())
    allocator = torch.cuda.memory.CUDAPluggableAllocator(
        library._name, "fragscope_alloc_malloc", "fragscope_alloc_free")
    inner = allocator.allocator()
    by_stream = hasattr(inner, "set_begin_allocate_stream_to_pool")
    functions = _FUNCTIONS | (_STREAM_POOLS if by_stream else _POOLS)
    missing = [setter for setter in functions if not hasattr(inner, setter)]
    if missing:
        raise RuntimeError(f"torch {torch.__version__} cannot be served: its pluggable allocator has "
                           f"no {', '.join(missing)}; use torch 2.1 or later")
    for setter, name in functions.items():
        getattr(inner, setter)(ctypes.cast(getattr(library, name), ctypes.c_void_p).value)
    torch.cuda.memory.change_current_allocator(allocator)
    _library, _allocator = library, allocator
    _answer_statistics(torch)


def _answer_statistics(torch):
    """torch.cuda's statistics from the library: these three are what the others are made of."""
    def device_of(device):
        return _present(torch, torch.cuda._utils._get_device_index(device, optional=True))

    def memory_stats_as_nested_dict(device=None):
        return memory_stats(device_of(device)) if torch.cuda.is_initialized() else {}

    def reset_accumulated_memory_stats(device=None):
        _library.fragscope_alloc_reset_stats(device_of(device), 0)

    def reset_peak_memory_stats(device=None):
        _library.fragscope_alloc_reset_stats(device_of(device), 1)

    for function in (memory_stats_as_nested_dict, reset_accumulated_memory_stats,
                     reset_peak_memory_stats):
        setattr(torch.cuda.memory, function.__name__, function)
        setattr(torch.cuda, function.__name__, function)


def _present(torch, device):
    """The number of a device; raises, as PyTorch does, where there is none."""
    if not 0 <= device < torch.cuda.device_count():
        raise RuntimeError(f"Invalid device argument {device}: did you call init?")
    return device


def set_settings(alloc_conf):
    """New settings ("max_split_size_mb:64") from the next allocation on; ValueError: refused."""
    if _library is None:
        raise RuntimeError("fragscope.torch.enable() comes first")
    problem = _library.fragscope_alloc_set(_checked(alloc_conf))
    if problem:
        raise ValueError(problem.decode())


def memory_stats(device=0):
    """torch.cuda.memory_stats() of a device by number: its keys as PyTorch's allocator has them."""
    if _library is None:
        raise RuntimeError("fragscope.torch.enable() comes first")
    import torch

    device = _present(torch, int(device))
    found = {}

    def visit(key, value, _):
        found[key.decode()] = value

    _library.fragscope_alloc_stats(device, _VISIT(visit), None)
    return found
