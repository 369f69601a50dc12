"""Addresses that are used again: stacks of a library that was unloaded stay its own."""

import subprocess
import sys

SOURCE = 'extern "C" int cudaMalloc(void**, unsigned long);\n' \
    'extern "C" int allocate(unsigned long size) { void* p; int e = cudaMalloc(&p, size); asm volatile(""); return e; }\n'

PROGRAM = """
import _ctypes, ctypes, sys
runtime = ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)
for number, path in enumerate(sys.argv[2:]):
    library = ctypes.CDLL(path)
    library.allocate(ctypes.c_ulong(1000 + number))
    print(next(l.split("-")[0] for l in open("/proc/self/maps") if l.rstrip().endswith(path)))
    _ctypes.dlclose(library._handle)
"""


def test_a_library_in_the_place_of_another(fragscope, build, tmp_path):
    (tmp_path / "source.cpp").write_text(SOURCE)
    first, second = tmp_path / "libfirst.so", tmp_path / "libother.so"
    for path in (first, second):
        subprocess.run(["g++", "-shared", "-fPIC", "-O1", "-Wl,--build-id", "-o", path,
                        tmp_path / "source.cpp"], check=True)
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    order = [first, second, first, second, second, first]
    run = fragscope.record(sys.executable, script, build / "lib/fragscope/sim/libcudart.so.13", *order)
    assert run.finished.returncode == 0, run.finished.stderr
    places = run.finished.stdout.decode().split()
    assert len(set(places)) < len(places)  # else this test shows nothing
    first.unlink()  # build-ids come from memory, not from a file that may be another by now
    events = [e for e in run.events("--stacks") if e["kind"] == "device_alloc"]
    seen = []
    for event in events:
        native = [f["module"] for f in event["stack"] if f["module"]]
        seen.append(next(m for m in native if m.startswith(str(tmp_path))))
    assert seen == [str(path) for path in order]
