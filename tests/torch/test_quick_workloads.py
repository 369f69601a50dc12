"""Some of the workloads of tests/workloads."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "workloads"))
import workloads  # noqa: E402


@pytest.mark.parametrize("name", workloads.QUICK)
def test_workload(name, build, tmp_path):
    package = workloads.missing(name)
    if package:
        pytest.skip(f"{package} is not installed")
    workloads.check_golden(name, workloads.run(name, build, tmp_path))
