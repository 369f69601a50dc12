"""Serves PyTorch's device memory from libfragscope_alloc.so: PyTorch's own allocation rules, with
settings that `fragscope ctl set` can change while the process runs.

    import fragscope.torch

    fragscope.torch.enable(max_split_size_mb=128)   # before the first CUDA tensor

PyTorch's statistics of its own allocator read nothing then (it refuses to answer); memory_stats()
of this module answers instead. Snapshots and history are not there; a FragScope recording has both.
"""

import ctypes
import os
import pathlib
import shutil

__all__ = ["enable", "enabled", "library_path", "memory_stats", "set_settings"]

_NAME = "libfragscope_alloc.so"
_STATS = ("allocated_bytes.all.current", "allocated_bytes.all.peak", "reserved_bytes.all.current",
          "reserved_bytes.all.peak", "active_bytes.all.current", "inactive_split_bytes.all.current",
          "requested_bytes.all.current", "allocation.all.allocated", "num_alloc_retries", "num_ooms",
          "segment.all.current")
# Setter of PyTorch's class -> entry point of the library.
_FUNCTIONS = {
    "set_init_fn": "fragscope_alloc_init",
    "set_reset_fn": "fragscope_alloc_reset",
    "set_memory_fraction_fn": "fragscope_alloc_memory_fraction",
    "set_base_alloc_fn": "fragscope_alloc_base",
    "set_record_stream_fn": "fragscope_alloc_record_stream",
    "set_begin_allocate_to_pool": "fragscope_alloc_begin_pool",
    "set_end_allocate_to_pool_fn": "fragscope_alloc_end_pool",
    "set_release_pool": "fragscope_alloc_release_pool",
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


def _settings(max_split_size_mb, alloc_conf):
    text = alloc_conf if alloc_conf is not None else os.environ.get("FRAGSCOPE_ALLOC_CONF", "")
    if max_split_size_mb is None:
        return text
    if isinstance(max_split_size_mb, bool) or not isinstance(max_split_size_mb, int):
        raise TypeError("max_split_size_mb is a whole number of MiB")
    return ",".join(filter(None, [text, f"max_split_size_mb:{max_split_size_mb}"]))


def _load():
    library = ctypes.CDLL(library_path())
    library.fragscope_alloc_configure.restype = ctypes.c_char_p
    library.fragscope_alloc_configure.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
    library.fragscope_alloc_set.restype = ctypes.c_char_p
    library.fragscope_alloc_set.argtypes = [ctypes.c_char_p]
    library.fragscope_alloc_stats.restype = ctypes.c_size_t
    library.fragscope_alloc_stats.argtypes = [ctypes.c_int, ctypes.POINTER(ctypes.c_uint64),
                                              ctypes.c_size_t]
    return library


def enabled():
    """True once enable() has made this library PyTorch's allocator."""
    return _allocator is not None


def enable(max_split_size_mb=None, alloc_conf=None):
    """Makes libfragscope_alloc.so PyTorch's allocator for this process, once and for all devices.

    `alloc_conf` is in PyTorch's grammar ("garbage_collection_threshold:0.8"), by default
    $FRAGSCOPE_ALLOC_CONF. Raises ValueError for settings that cannot be served, RuntimeError when
    memory has been allocated already or PyTorch is too old.
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
    missing = [setter for setter in _FUNCTIONS if not hasattr(inner, setter)]
    if missing:
        raise RuntimeError(f"torch {torch.__version__} cannot be served: its pluggable allocator has "
                           f"no {', '.join(missing)}; use torch 2.1 or later")
    for setter, name in _FUNCTIONS.items():
        getattr(inner, setter)(ctypes.cast(getattr(library, name), ctypes.c_void_p).value)
    torch.cuda.memory.change_current_allocator(allocator)
    _library, _allocator = library, allocator


def set_settings(alloc_conf):
    """New settings ("max_split_size_mb:64") from the next allocation on; ValueError: refused."""
    if _library is None:
        raise RuntimeError("fragscope.torch.enable() comes first")
    problem = _library.fragscope_alloc_set(str(alloc_conf).encode())
    if problem:
        raise ValueError(problem.decode())


def memory_stats(device=0):
    """What torch.cuda.memory_stats() would say, of the figures that are kept here (bytes, counts)."""
    if _library is None:
        raise RuntimeError("fragscope.torch.enable() comes first")
    values = (ctypes.c_uint64 * len(_STATS))()
    _library.fragscope_alloc_stats(int(device), values, len(_STATS))
    return dict(zip(_STATS, values))
