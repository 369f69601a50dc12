"""FRAGSCOPE_ENFORCE=shim in front of programs/shim_policy.cpp and the stand-ins of CUDA (1 GiB)."""

import pytest

import fslog
from shim_programs import programs  # noqa: F401  (fixture)

MIB = 2**20
SERVED = 1 << 5


def places(result):
    """name -> (error, place relative to the first block)."""
    lines = [l for l in result.stdout.decode().splitlines() if " at " in l]
    return {
        l.split(":")[0]: (int(l.split()[-6]), int(l.split(" at ")[1].split(",")[0])) for l in lines
    }


def test_blocks_lie_where_the_caching_allocator_puts_them(programs):
    result = programs.run("shim_policy", FRAGSCOPE_ENFORCE="shim")
    assert result.returncode == 0 and result.stderr == b""
    got = places(result)
    # 1000 bytes from a 2 MiB segment; 3, 11 and again 2 MiB from one of 20 MiB behind it.
    assert got["a"] == (0, 0)
    assert got["b"] == (0, 2 * MIB)
    assert got["c"] == (0, 5 * MIB)
    assert got["d"] == got["b"]
    assert got["nothing"] == (0, -1)
    (log,) = programs.logs()
    assert log.properties["enforce"] == "shim" and log.properties["block_source"] == "api"
    assert [e["size"] for e in log.of("segment_alloc")][:2] == [2 * MIB, 20 * MIB]
    # Every segment call of the allocator is a call to real CUDA, and nothing else is.
    driver = [e for e in log.of("device_alloc") if e["result"] == 0 and e["size"]]
    assert [(e["address"], e["size"]) for e in driver] == [
        (e["address"], e["size"]) for e in log.of("segment_alloc")
    ]
    assert all(e["flags"] & SERVED for e in log.of("alloc", "free_requested", "segment_alloc"))
    first = log.of("alloc")[0]
    assert (first["requested"], first["size"], first["aux"], first["aux2"]) == (
        1000, 1024, 1024, 2 * MIB
    )


def test_split_limit_changes_the_segments(programs):
    programs.run(
        "shim_policy", FRAGSCOPE_ENFORCE="shim", FRAGSCOPE_ALLOC_CONF="max_split_size_mb:20"
    )
    (log,) = programs.logs()
    # 1000 MiB is oversize: the 986 MiB segment may not serve it and is given back for it.
    assert [e["size"] // MIB for e in log.of("segment_alloc")] == [2, 20, 986, 1000, 12]


def test_errors_are_cudas_own(programs):
    plain = programs.run("shim_policy", preload=())
    served = programs.run("shim_policy", FRAGSCOPE_ENFORCE="shim")

    def errors(result):
        text = result.stdout.decode().splitlines()[:-1]  # the last line counts real calls
        return [(l.split(":")[0], l.split(":")[1].split()[0], "last error 2" in l) for l in text]

    assert errors(served) == errors(plain)
    assert ("too much", "2", True) in errors(served)
    assert ("retry", "0", False) in errors(served)


def test_a_free_waits_for_the_device_once(programs):
    result = programs.run("shim_policy", FRAGSCOPE_ENFORCE="shim")
    waits = [int(l.split("waits ")[1]) for l in result.stdout.decode().splitlines() if "waits" in l]
    assert waits == [1, 2, 3, 4, 4, 4]  # not for a stranger, not for nothing


def test_device_reset_forgets_segments(programs):
    programs.run("shim_policy", FRAGSCOPE_ENFORCE="shim")
    (log,) = programs.logs()
    kinds = [e["kind"] for e in log.events]
    after = log.events[kinds.index("context_destroy") + 1 :]
    assert [e["kind"] for e in after] == ["device_alloc", "segment_alloc", "alloc"]


def test_unreadable_settings_leave_the_program_alone(programs):
    plain = programs.run("shim_policy", preload=())
    result = programs.run(
        "shim_policy", FRAGSCOPE_ENFORCE="shim", FRAGSCOPE_ALLOC_CONF="max_split_size_mb:potato"
    )
    assert (result.stdout, result.stderr) == (plain.stdout, b"")
    (log,) = programs.logs()
    assert log.properties["enforce"] == "none"


def test_policy_without_recording(programs):
    served = programs.run("shim_policy", FRAGSCOPE_ENFORCE="shim")
    quiet = programs.run("shim_policy", FRAGSCOPE_ENFORCE="shim", FRAGSCOPE_DISABLE="1")
    assert quiet.stdout == served.stdout
    assert len(fslog.logs_in(programs.out)) == 1


@pytest.mark.parametrize("variables, words", [
    ({"FRAGSCOPE_ENFORCE": "yes"}, "FRAGSCOPE_ENFORCE='yes' is neither shim nor auto"),
    ({"FRAGSCOPE_ENFORCE": "shim", "FRAGSCOPE_ALLOC_CONF": "max_split:1"}, "max_split"),
    ({"FRAGSCOPE_ENFORCE": "auto", "FRAGSCOPE_ALLOC_CONF": "expandable_segments:True"}, "FRAGSCOPE_ALLOC_CONF: "),
    ({"FRAGSCOPE_ENFORCE": "auto", "FRAGSCOPE_ALLOC_CONF": "backend:cudaMallocAsync"}, "CUDA's own allocator"),
])
def test_what_cannot_be_enforced_is_told_in_the_recording(programs, fragscope, variables, words):
    plain = programs.run("shim_policy", preload=())
    result = programs.run("shim_policy", **variables)
    assert (result.stdout, result.stderr, result.returncode) == (plain.stdout, b"", plain.returncode)
    (log,) = programs.logs()
    assert log.properties["enforce"] == "none" and words in log.properties["enforce.problem"]
    for command in ("info", "explain"):
        told = fragscope(command, programs.out)
        assert words in told.stdout.decode() + told.stderr.decode(), command


def test_what_can_be_enforced_has_no_problem(programs):
    programs.run("shim_policy", FRAGSCOPE_ENFORCE="shim", FRAGSCOPE_ALLOC_CONF="max_split_size_mb:20")
    (log,) = programs.logs()
    assert "enforce.problem" not in log.properties


def test_a_plan_that_cannot_be_followed_is_told_in_info(programs, fragscope, tmp_path):
    path = tmp_path / "plan.json"
    path.write_text("no plan\n")
    programs.run("shim_policy", FRAGSCOPE_ENFORCE="shim", FRAGSCOPE_PLAN=str(path))
    text = fragscope("info", programs.out, check=True).stdout.decode()
    assert "the plan was not followed: " in text and "plan.json" in text
