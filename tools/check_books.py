"""A recording against the books of the simulated device: nothing that was served is missing.

usage: check_books.py RUN BOOKS [--fragscope PROGRAM]

BOOKS is what the simulated driver wrote of each call that it answered (`fragscope run --gpu …
--sim-log BOOKS`, or books=BOOKS in FRAGSCOPE_SIM): process, number, call, address, bytes, result. An address
that is the program's own, and so another one in each run, is `host`, with a number when it was registered;
such addresses are not compared. RUN is the run directory of the same processes. Of each process every answered call must be an event of its
kind with that address, those bytes and that result, as often as it was answered; and every event
must have been answered, but for calls that the runtime refuses or answers itself (zero bytes, null).
Prints one line per kind: calls and bytes by the books, and by the recording.
Exit code: 0 complete, 1 not (one line for each difference), 2 something cannot be read.
"""

import argparse
import collections
import json
import pathlib
import subprocess
import sys
from typing import Counter, Dict, Iterator, List, NamedTuple

# Call as the simulated driver names it -> kind of event.
KINDS = {
    "cuMemAlloc_v2": "device_alloc", "cuMemAllocPitch_v2": "device_alloc", "cuMemFree_v2": "device_free",
    "cuMemAllocManaged": "managed_alloc",
    "cuMemAllocHost_v2": "pinned_alloc", "cuMemHostAlloc": "pinned_alloc", "cuMemFreeHost": "pinned_free",
    "cuMemHostRegister_v2": "pinned_register", "cuMemHostUnregister": "pinned_unregister",
    "cuMemAllocAsync": "async_alloc", "cuMemAllocFromPoolAsync": "async_alloc", "cuMemFreeAsync": "async_free",
    "cuMemAllocAsync:captured": "graph_alloc", "cuMemFreeAsync:captured": "graph_free",
    "cuMemPoolCreate": "pool_create", "cuMemPoolDestroy": "pool_destroy", "cuMemPoolTrimTo": "pool_trim",
    "cuMemPoolSetAttribute": "pool_set", "cuMemPoolExportToShareableHandle": "pool_export",
    "cuMemPoolImportFromShareableHandle": "pool_import", "cuMemPoolExportPointer": "ipc_export",
    "cuMemPoolImportPointer": "ipc_open",
    "cuArrayCreate_v2": "array_alloc", "cuArray3DCreate_v2": "array_alloc", "cuArrayDestroy": "array_free",
    "cuMipmappedArrayCreate": "array_alloc", "cuMipmappedArrayDestroy": "array_free",
    "cuMemAddressReserve": "va_reserve", "cuMemAddressFree": "va_free", "cuMemCreate": "phys_create",
    "cuMemRelease": "phys_release", "cuMemMap": "va_map", "cuMemUnmap": "va_unmap",
    "cuMemSetAccess": "va_access", "cuMemRetainAllocationHandle": "phys_retain",
    "cuMemExportToShareableHandle": "phys_export", "cuMemImportFromShareableHandle": "phys_import",
    "cuIpcGetMemHandle": "ipc_export", "cuIpcOpenMemHandle": "ipc_open", "cuIpcOpenMemHandle_v2": "ipc_open",
    "cuIpcCloseMemHandle": "ipc_close", "cuImportExternalMemory": "external_import",
    "cuDestroyExternalMemory": "external_destroy", "cuExternalMemoryGetMappedBuffer": "external_map",
    "cuGraphAddMemAllocNode": "graph_alloc", "cuGraphAddMemFreeNode": "graph_free",
    "cuGraphInstantiateWithFlags": "graph_instantiate", "cuGraphInstantiateWithParams": "graph_instantiate",
    "cuGraphInstantiate_v2": "graph_instantiate", "cuGraphExecDestroy": "graph_exec_destroy",
    "cuGraphDestroy": "graph_destroy", "cuDeviceGraphMemTrim": "graph_trim",
    "cuCtxDestroy": "context_destroy", "cuDevicePrimaryCtxReset": "context_destroy",
    "cuDevicePrimaryCtxRelease": "context_destroy",
}
# Kinds whose bytes the books have; array events know the bytes of their texels only.
SIZED = {"device_alloc", "managed_alloc", "pinned_alloc", "pinned_register", "async_alloc", "va_reserve",
         "va_free", "phys_create", "va_map", "va_unmap", "va_access", "external_import", "external_map",
         "graph_alloc", "array_alloc"}
# Kinds that do not start a recording: before a process's first other call they are not recorded.
SILENT = {"context_destroy", "graph_destroy", "graph_exec_destroy", "graph_instantiate", "graph_trim"}
ADDRESSLESS = {"context_destroy", "graph_trim", "pinned_register", "pinned_unregister"}
# Outside of the device's fixed windows (driver/host_window.h) and of small numbers.
REPEATABLE = (range(0, 1 << 32), range(0x2000_0000_0000, 0x5500_0000_0000))
PROGRAMS_OWN = -1


class Call(NamedTuple):
    pid: int
    kind: str
    address: int
    size: int
    result: int


def normalised(pid: int, kind: str, address: int, size: int, result: int) -> Call:
    if not any(address in places for places in REPEATABLE):
        address = PROGRAMS_OWN
    return Call(pid, kind, 0 if kind in ADDRESSLESS else address, size if kind in SIZED else 0, result)


def address_of(field: str) -> int:
    return PROGRAMS_OWN if field.startswith("host") else int(field, 16)


def pids(path: pathlib.Path) -> List[int]:
    """By the number of a process in the log, from 1 on."""
    listed = path.with_name(path.name + ".pids")
    try:
        return [0, *(int(line) for line in listed.read_text(encoding="ascii").splitlines())]
    except (OSError, ValueError) as problem:
        print(f"check_books: {listed}: {problem}; it is written beside the books", file=sys.stderr)
        sys.exit(2)


def served(path: pathlib.Path) -> Iterator[Call]:
    processes = pids(path) if path.read_text(encoding="ascii") else []
    for number, line in enumerate(path.read_text(encoding="ascii").splitlines(), 1):
        fields = line.split()
        if len(fields) != 6 or fields[2] not in KINDS or not 0 < int(fields[0]) < len(processes):
            print(f"check_books: {path}:{number}: not a line of the books: {line}", file=sys.stderr)
            sys.exit(2)
        yield normalised(processes[int(fields[0])], KINDS[fields[2]], address_of(fields[3]), int(fields[4]), int(fields[5]))


class Recorded(NamedTuple):
    call: Call
    by_runtime: bool


def recorded(program: str, run: pathlib.Path) -> Iterator[Recorded]:
    done = subprocess.run([program, "events", "--jsonl", str(run)], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        print(f"check_books: {done.stderr.strip()}", file=sys.stderr)
        sys.exit(2)
    kinds = set(KINDS.values())
    for line in done.stdout.splitlines():
        event = json.loads(line)
        if event["plane"] != "driver" or event["kind"] not in kinds or event.get("served"):
            continue
        size = event["requested"] if event["kind"] == "array_alloc" else event["size"]
        call = normalised(event["pid"], event["kind"], event["address"] or 0, size or 0,
                          -1 if event["result"] is None else event["result"])
        yield Recorded(call, (event["api"] or "").startswith("cuda"))


def answered_without_the_driver(event: Recorded) -> bool:
    call = event.call
    if call.kind in ("device_free", "async_free", "pinned_free", "array_free") and call.address == 0:
        return True
    return event.by_runtime and (call.result != 0 or call.size == 0 and call.kind in SIZED)


def text(call: Call) -> str:
    return f"pid {call.pid} {call.kind} address {'host' if call.address == PROGRAMS_OWN else hex(call.address)} bytes {call.size} result {call.result}"


def after_the_start(books: List[Call]) -> Iterator[Call]:
    started = set()
    for call in books:
        if call.kind not in SILENT:
            started.add(call.pid)
        if call.pid in started:
            yield call


def compare(books: List[Call], events: List[Recorded]) -> List[str]:
    by_books: Counter[Call] = collections.Counter(after_the_start(books))
    by_events: Counter[Call] = collections.Counter(event.call for event in events)
    excused: Counter[Call] = collections.Counter(
        event.call for event in events if answered_without_the_driver(event))
    missing = by_books - by_events
    extra = by_events - by_books - excused
    return [f"not recorded ({count}): {text(call)}" for call, count in sorted(missing.items())] + \
           [f"not served ({count}): {text(call)}" for call, count in sorted(extra.items())]


def totals(calls: List[Call]) -> Dict[str, List[int]]:
    table: Dict[str, List[int]] = collections.defaultdict(lambda: [0, 0])
    for call in calls:
        table[call.kind][0] += 1
        table[call.kind][1] += call.size if call.result == 0 else 0
    return table


def main(arguments: List[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("run", type=pathlib.Path)
    parser.add_argument("books", type=pathlib.Path)
    parser.add_argument("--fragscope", default="fragscope")
    options = parser.parse_args(arguments)
    if not options.books.is_file():
        print(f"check_books: no books at {options.books}", file=sys.stderr)
        return 2
    books = list(served(options.books))
    events = list(recorded(options.fragscope, options.run))
    ours, theirs = totals([event.call for event in events]), totals(books)
    print(f"{'kind':20} {'served':>8} {'bytes':>16} {'recorded':>9} {'bytes':>16}")
    for kind in sorted(set(ours) | set(theirs)):
        print(f"{kind:20} {theirs[kind][0]:8} {theirs[kind][1]:16} {ours[kind][0]:9} {ours[kind][1]:16}")
    problems = compare(books, events)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
