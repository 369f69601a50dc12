"""Families of random command lists: which settings and which commands are tried on which releases."""

from typing import List, NamedTuple


class Family(NamedTuple):
    name: str
    first: int  # minor release that has the option
    settings: str  # PYTORCH_CUDA_ALLOC_CONF
    arguments: List[str] = []  # of the oracle program
    last: int = 99

    @property
    def host(self) -> bool:
        return "--host" in self.arguments

    def applies(self, version: str) -> bool:
        return self.first <= int(version.split(".")[1]) <= self.last


USE_ON_OOM = ["--scopes", "--pool", "use_on_oom"]
NO_SPLIT = ["--scopes", "--pool", "no_split", "--pool", "use_on_oom"]
CHECKPOINTS = ["--scopes", "--checkpoints", "--no-events", "--commands", "1000"]
SWITCHES = ["--switch", "expandable_segments:True", "--switch", "expandable_segments:False",
            "--switch", "roundup_power2_divisions:2", "--switch", "roundup_power2_divisions:[64:4,256:2,>:1]",
            "--switch", "garbage_collection_threshold:0.5"]

# The first 28 have golden lists (tests/golden/oracle/lists), by number.
FAMILIES = [
    Family("default", 1, ""),
    Family("default, long lists", 1, "", ["--commands", "1000"]),
    Family("private pools", 1, "", ["--scopes"]),
    Family("three devices", 1, "", ["--devices", "3"]),
    Family("use_on_oom pools", 8, "", USE_ON_OOM),
    Family("use_on_oom pools, expandable", 8, "expandable_segments:True", USE_ON_OOM),
    Family("no_split pools", 10, "", NO_SPLIT),
    Family("no_split pools, max_split", 10, "max_split_size_mb:32", NO_SPLIT),
    Family("max_split 32", 1, "max_split_size_mb:32"),
    Family("max_split 64", 1, "max_split_size_mb:64"),
    Family("max_non_split_rounding", 6, "max_split_size_mb:64,max_non_split_rounding_mb:64"),
    Family("roundup 4", 1, "roundup_power2_divisions:4"),
    Family("roundup 1", 1, "roundup_power2_divisions:1"),
    Family("roundup list", 1, "roundup_power2_divisions:[1:2,4:8,32:1,>:4]"),
    Family("gc, fraction", 1, "garbage_collection_threshold:0.6", ["--fractions"]),
    Family("gc, fraction, max_split", 1, "garbage_collection_threshold:0.3,max_split_size_mb:40", ["--fractions"]),
    Family("expandable", 1, "expandable_segments:True"),
    Family("expandable, fraction", 1, "expandable_segments:True", ["--fractions"]),
    Family("expandable, private pools", 1, "expandable_segments:True", ["--scopes"]),
    Family("expandable, max_split", 5, "expandable_segments:True,max_split_size_mb:48"),
    Family("expandable, gc, roundup, max_split", 5,
           "expandable_segments:True,max_split_size_mb:30,garbage_collection_threshold:0.4,"
           "roundup_power2_divisions:8", ["--fractions", "--scopes"]),
    Family("switching at run time", 1, "", ["--switch", "expandable_segments:True", "--switch",
                                            "expandable_segments:False", "--switch", "roundup_power2_divisions:2"]),
    Family("large_segment, max_split", 11, "large_segment_size_mb:32,max_split_size_mb:40"),
    Family("large_segment, expandable", 11, "large_segment_size_mb:32,expandable_segments:True"),
    Family("throw_on_cudamalloc_oom", 12, "throw_on_cudamalloc_oom:True"),
    Family("throw_on_cudamalloc_oom, expandable", 12, "throw_on_cudamalloc_oom:True,expandable_segments:True",
           ["--fractions"]),
    Family("expandable_segments_reserve", 15, "expandable_segments:True,expandable_segments_reserve:0.2"),
    Family("expandable_segments_reserve, bytes", 15, "expandable_segments:True,expandable_segments_reserve:0.3G",
           ["--fractions"]),
    Family("large_segment 11", 11, "large_segment_size_mb:11"),
    # Without events: see SPEC_NOTES.md on streams that are synchronised under another device.
    Family("expandable, three devices", 1, "expandable_segments:True", ["--devices", "3", "--no-events"]),
    Family("many switches at run time", 1, "", SWITCHES + ["--fractions", "--scopes"]),
    Family("release_lock_on_cudamalloc", 2, "release_lock_on_cudamalloc:True"),
    Family("per_process_memory_fraction", 10, "per_process_memory_fraction:0.5,garbage_collection_threshold:0.5"),
    Family("roundup list, expandable", 1, "roundup_power2_divisions:[256:1,512:2,1024:4,>:8],expandable_segments:True"),
    Family("no record_stream", 1, "max_split_size_mb:128", ["--no-events", "--commands", "1000"]),
    Family("captures", 1, "", ["--scopes", "--captures"]),
    Family("captures, expandable", 1, "expandable_segments:True", ["--scopes", "--captures"]),
    Family("captures, max_split, gc", 1, "max_split_size_mb:32,garbage_collection_threshold:0.5",
           ["--scopes", "--captures", "--fractions"]),
    Family("checkpoints", 1, "", CHECKPOINTS),
    Family("checkpoints, max_split", 1, "max_split_size_mb:32", CHECKPOINTS),
    Family("checkpoints, expandable", 5, "expandable_segments:True", CHECKPOINTS),
    Family("settings strings at run time", 1, "", ["--strings"]),
    Family("pinned", 1, "", ["--host"]),
    Family("pinned, three devices", 1, "", ["--host", "--devices", "3"]),
    Family("pinned, cudaHostRegister", 5, "pinned_use_cuda_host_register:True,pinned_num_register_threads:4",
           ["--host", "--small"]),
    Family("pinned, background thread", 6, "pinned_use_background_threads:True", ["--host"]),
    Family("pinned, background switched", 6, "", ["--host", "--switch", "pinned_use_background_threads:True",
                                                  "--switch", "pinned_use_background_threads:False"]),
    Family("pinned, reserve segment", 10, "pinned_reserve_segment_size_mb:8", ["--host"]),
    Family("pinned, reserve segment, background", 10,
           "pinned_reserve_segment_size_mb:64,pinned_use_background_threads:True", ["--host"]),
    Family("pinned, private pools", 12, "", ["--host", "--scopes"]),
    Family("pinned, limits", 13, "pinned_max_round_threshold_mb:2,pinned_max_cached_size_mb:4", ["--host"]),
    Family("pinned, limits, private pools", 13, "pinned_max_round_threshold_mb:1",
           ["--host", "--scopes", "--switch", "pinned_max_cached_size_mb:2", "--switch", "pinned_max_cached_size_mb:900"]),
]
GOLDEN_FAMILIES = 27
