"""fragscope check-budget as a pipeline calls it."""

import json
import pathlib

import pytest

from conftest import one_line

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden"


@pytest.fixture
def small(fragscope):
    return fragscope.record(*fragscope.steps("alloc", 4 << 20, "pinned", 4096)).directory


def test_limits_on_what_was_recorded(fragscope, small):
    kept = fragscope("check-budget", small, "--max-driver", "4MiB", "--max-pinned", 4096, "--json")
    answer = json.loads(kept.stdout)
    assert (kept.returncode, answer["kept"], answer["gaps"]) == (0, True, [])
    assert [(c["figure"], c["value"], c["limit"]) for c in answer["checks"]] == [
        ("driver_bytes", 4 << 20, 4 << 20), ("pinned_bytes", 4096, 4096)]
    over = fragscope("check-budget", small, "--max-driver", (4 << 20) - 1)
    assert over.returncode == 1 and over.stdout.startswith(b"exceeded")


def test_what_was_not_written_is_no_proof(fragscope):
    """A bound on the trace cut the peak off: what is left keeps every limit, and proves nothing."""
    cut = fragscope.record(*fragscope.steps("pairs", 400000, "alloc", 64 << 20), options=["--max-trace", "64KiB"])
    done = fragscope("check-budget", "--json", cut.directory, "--max-driver", "1GiB")
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["kept"]) == (1, False)
    assert "were not written (--max-trace)" in answer["gaps"][0]
    report = fragscope("explain", cut.directory)
    assert b"were not written (--max-trace)" in report.stderr


def test_a_figure_that_is_unknown_is_not_kept(fragscope, small):
    done = fragscope("check-budget", small, "--max-reserved", "1TiB")
    assert done.returncode == 1 and done.stdout.startswith(b"unknown")


def test_growth_over_a_baseline(fragscope, small):
    larger = fragscope.record(*fragscope.steps("alloc", 8 << 20, "pinned", 4096)).directory
    assert fragscope("check-budget", small, "--baseline", small).returncode == 0
    assert fragscope("check-budget", small, "--baseline", larger).returncode == 0
    done = fragscope("check-budget", larger, "--baseline", small, "--json")
    exceeded = [c for c in json.loads(done.stdout)["checks"] if not c["kept"]]
    assert done.returncode == 1
    assert [(c["figure"], c["baseline"]) for c in exceeded] == [("driver_bytes", 4 << 20)]
    assert fragscope("check-budget", larger, "--baseline", small, "--tolerance", "100%").returncode == 0


def test_a_damaged_run_passes_no_gate(fragscope, small, tmp_path):
    (trace,) = small.glob("*.fst")
    cut = tmp_path / "cut.fst"
    cut.write_bytes(trace.read_bytes()[:-1])
    done = fragscope("check-budget", cut, "--max-driver", "1GiB")
    assert done.returncode == 1 and b"incomplete" in done.stdout


@pytest.mark.parametrize("words", [
    [], ["--max-driver", "many"], ["--max-fragmentation", "101%"], ["--max-fragmentation", "-1"],
    ["--max-fragmentation", "1x"], ["--baseline", ".", "--tolerance", "nan"], ["--max-ooms", "-1"],
])
def test_usage(fragscope, small, words):
    done = fragscope("check-budget", small, *words)
    assert done.returncode == 2
    one_line(done.stderr)


def test_a_process_without_a_pid_has_none(fragscope, tmp_path):
    """A snapshot names no process: null and words, not 0."""
    trace = GOLDEN / "replay/false_oom.trace"
    nameless = tmp_path / "nameless.trace"
    nameless.write_text(trace.read_text().replace("process pid=7", "process pid=0"))
    done = fragscope("check-budget", nameless, "--max-reserved", "2GiB", "--json", check=True)
    (check,) = json.loads(done.stdout)["checks"]
    assert check["kept"] and check["pid"] is None
    assert b"pid unknown" in fragscope("check-budget", nameless, "--max-reserved", "2GiB").stdout
