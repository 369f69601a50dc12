"""Runs test tiers of a build and adds up their results.

usage: run_tests.py --build DIR TIER…    (tiers: quick, torch, clients, workloads, asan, tsan; see
tests/README.md)

Prints the output of ctest and pytest as it comes and, as the last line, "N passed, N failed".
A tier that produced no result counts as one failure: silence is not success.
Exit code: 0 when nothing failed, else 1.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "fragscope"


def count_junit(path):
    """(passed, failed, skipped) of a JUnit file; None when there is no usable file."""
    try:
        cases = list(xml.etree.ElementTree.parse(path).getroot().iter("testcase"))
    except (OSError, xml.etree.ElementTree.ParseError):
        return None
    failed = sum(1 for case in cases if case.find("failure") is not None or case.find("error") is not None)
    skipped = sum(1 for case in cases if case.find("skipped") is not None)
    return len(cases) - failed - skipped, failed, skipped


def run(title, command, junit, environment):
    """Runs one command that writes a JUnit file; returns (passed, failed)."""
    print(f"--- {title}", flush=True)
    code = subprocess.run(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, check=False).returncode
    counts = count_junit(junit)
    if counts is None or sum(counts) == 0:
        print(f"run_tests: {title}: no results (exit code {code})", flush=True)
        return 0, 1
    passed, failed, skipped = counts
    if code != 0 and failed == 0:
        print(f"run_tests: {title}: exit code {code} although no test case failed", flush=True)
        failed = 1
    if skipped:
        print(f"run_tests: {title}: {skipped} skipped", flush=True)
    return passed, failed


def ctest(build, junit):
    return ["ctest", "--test-dir", str(build), "-j", str(os.cpu_count()), "--output-on-failure",
            "--no-tests=error", "--output-junit", str(junit), "--progress"]


def pytest(python, folders, junit, *options):
    existing = [folder for folder in folders if (ROOT / folder).is_dir()]
    return [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={junit}", *spread(python),
            *options, *existing]


def spread(python):
    """All cores, a file's tests on one of them; a Python that somebody chose may lack what that takes."""
    has_xdist = subprocess.run([str(python), "-c", "import xdist"], check=False, stderr=subprocess.DEVNULL).returncode == 0
    return ["-n", str(os.cpu_count()), "--dist", "loadfile"] if has_xdist else []


def torch_python():
    chosen = os.environ.get("FRAGSCOPE_TORCH_VENV")
    return (pathlib.Path(chosen) if chosen else CACHE / "torch-venv") / "bin/python"


def main():
    parser = argparse.ArgumentParser(description="Run test tiers.")
    parser.add_argument("--build", required=True, type=pathlib.Path)
    tiers = ["quick", "torch", "clients", "workloads", "asan", "tsan"]
    parser.add_argument("tiers", nargs="+", choices=tiers)
    arguments = parser.parse_args()
    build = (ROOT / arguments.build).resolve()
    environment = dict(os.environ, FRAGSCOPE_BUILD=str(build), PYTHONDONTWRITEBYTECODE="1")
    python = CACHE / "tests-venv/bin/python"
    results = []
    with tempfile.TemporaryDirectory(prefix="fragscope-tests-") as scratch:
        junit = pathlib.Path(scratch) / "junit.xml"
        for tier in arguments.tiers:
            if tier in ("quick", "asan", "tsan"):
                results.append(run(f"unit tests ({tier})", ctest(build, junit), junit, environment))
                junit.unlink(missing_ok=True)
            if tier == "quick":
                command = pytest(python, ["tests/checks", "tests/e2e"], junit, "-m", "not torch")
                results.append(run("checks and end-to-end tests", command, junit, environment))
            if tier == "torch":
                command = pytest(torch_python(), ["tests/torch", "tests/e2e"], junit, "-m", "torch")
                results.append(run("torch tier", command, junit, environment))
            if tier == "clients":
                results.append(run("clients", pytest(python, ["tests/clients"], junit), junit, environment))
            if tier == "workloads":
                command = pytest(torch_python(), ["tests/workloads"], junit)
                results.append(run("workloads", command, junit, environment))
            junit.unlink(missing_ok=True)
    passed = sum(result[0] for result in results)
    failed = sum(result[1] for result in results)
    print(f"{passed} passed, {failed} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
