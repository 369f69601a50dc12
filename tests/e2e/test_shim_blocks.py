"""The block plane of libfragscope.so: torch's reports, the adaptor, fragscope_api.h."""

import fslog
from shim_programs import programs  # noqa: F401  (fixture)

ADAPTOR, REPORT, API = 1 << 1, 1 << 2, 1 << 3
UNKNOWN = fslog.UNKNOWN
FIELDS = ("kind", "address", "size", "requested", "stream", "aux", "aux2", "flags")
MIB2, MIB20 = 2 << 20, 20 << 20


def rows(log):
    return [tuple(e[f] for f in FIELDS) for e in log.events]


def test_reports_alone(programs, tmp_path):
    environment = {"FRAGSCOPE_TORCH_ADAPTOR_DIR": str(tmp_path / "nothing")}
    library = programs.directory / "libc10_cuda.so"
    (log,) = programs.run_both("shim_torch", library, **environment)
    assert log.properties["block_source"] == "report"
    assert "torch_version" not in log.properties
    assert rows(log) == [
        ("alloc", 0x1000000, 512, UNKNOWN, UNKNOWN, 512, MIB2, REPORT),
        ("alloc", 0x1000200, 1024, UNKNOWN, UNKNOWN, 1536, MIB2, REPORT),
        ("free_requested", 0x1000000, 512, UNKNOWN, UNKNOWN, 1024, MIB2, REPORT),
        ("alloc", 0x2000000, 20971520, UNKNOWN, UNKNOWN, 20972544, MIB2 + MIB20, REPORT),
        ("oom", UNKNOWN, UNKNOWN, 999, UNKNOWN, UNKNOWN, UNKNOWN, REPORT),
    ]
    assert {e["device"] for e in log.events} == {0}


def test_adaptor_and_reports_make_one_event_per_block(programs):
    environment = {"FRAGSCOPE_TORCH_ADAPTOR_DIR": str(programs.directory)}
    library = programs.directory / "libc10_cuda.so"
    (log,) = programs.run_both("shim_torch", library, **environment)
    assert log.properties["block_source"] == "adaptor"
    assert log.properties["torch_version"] == "9.9.0"
    u = UNKNOWN
    assert rows(log) == [
        # The report that opened the adaptor: the tracker did not see this block.
        ("alloc", 0x1000000, 512, u, u, 512, MIB2, REPORT),
        ("alloc", 0x1000200, 1024, 1000, 7, 1536, MIB2, ADAPTOR),
        ("free_requested", 0x1000000, u, 100, 0, u, u, ADAPTOR),
        ("free_completed", 0x1000000, u, 100, 0, u, u, ADAPTOR),
        ("segment_alloc", 0x2000000, MIB20, MIB20, 0, u, u, ADAPTOR),
        ("alloc", 0x2000000, 20971520, 19500000, 7, 20972544, MIB2 + MIB20, ADAPTOR),
        ("oom", u, u, 999, 0, 123, u, ADAPTOR),
        ("segment_free", 0x2000000, MIB20, MIB20, 0, u, u, ADAPTOR),
    ]


def test_stacks_of_blocks_leave_out_the_recorder(programs):
    environment = {"FRAGSCOPE_TORCH_ADAPTOR_DIR": str(programs.directory)}
    programs.run("shim_torch", programs.directory / "libc10_cuda.so", **environment)
    (log,) = programs.logs()
    innermost = {log.stacks[e["stack"]][0] - 1 for e in log.events}
    modules = [line.split(" ", 2) for line in log.modules]
    names = {
        path.rsplit("/", 1)[-1]
        for place, _, path in modules
        for frame in innermost
        if int(place.split("-")[0], 16) <= frame < int(place.split("-")[1], 16)
    }
    assert "libc10_cuda.so" in names
    assert not any(n.startswith("0123456789abcdef-") or n == "libfragscope.so" for n in names)


def test_first_cudamalloc_of_the_allocator_opens_the_adaptor(programs):
    environment = {"FRAGSCOPE_TORCH_ADAPTOR_DIR": str(programs.directory)}
    library = programs.directory / "libc10_cuda.so"
    (log,) = programs.run_both("shim_torch", library, "cuda", **environment)
    blocks = [e for e in log.events if e["kind"] not in ("device_alloc",)]
    assert all(e["flags"] == ADAPTOR for e in blocks)
    assert [e["kind"] for e in log.events][:3] == ["device_alloc", "segment_alloc", "alloc"]
    first = log.of("alloc")[0]
    assert (first["requested"], first["size"], first["stream"]) == (100, 512, 0)


def test_reports_are_passed_on_without_a_recording(programs, tmp_path):
    library = programs.directory / "libc10_cuda.so"
    result = programs.run("shim_torch", library, FRAGSCOPE_DISABLE="1")
    # Also without a recording every report is passed on.
    assert result.stdout == b"fake_memory_reports 5\nfake_oom_reports 1\n"
    assert not programs.out.exists()


def test_frameworks_tell_their_blocks(programs):
    (log,) = programs.run_both("shim_api")
    assert log.properties["block_source"] == "api"
    address = log.of("device_alloc")[0]["address"]
    u = UNKNOWN
    blocks = [tuple(e[f] for f in FIELDS) for e in log.events if e["flags"] & API]
    assert blocks == [
        ("segment_alloc", address, MIB2, MIB2, 0, u, u, API),
        ("mark", u, u, u, u, u, u, API),
        ("alloc", address, 512, 100, 7, 512, MIB2, API),
        ("free_requested", address, u, u, 7, u, u, API),
        ("free_completed", address, u, u, 7, u, u, API),
        ("oom", u, u, 5000, 0, u, u, API),
        ("segment_map", 0x9000000, 2 * MIB2, 2 * MIB2, 3, u, u, API),
        ("segment_unmap", 0x9200000, MIB2, MIB2, 3, u, u, API),
        ("segment_free", address, MIB2, MIB2, 0, u, u, API),
    ]
    assert list(log.texts.values()) == ["step 1"]
    assert log.of("mark")[0]["text"] == next(iter(log.texts))
