"""All workloads (`make test-workloads`)."""

import pytest
import workloads


@pytest.mark.parametrize("name", workloads.WORKLOADS)
def test_workload(name, build, tmp_path):
    package = workloads.missing(name)
    if package:
        pytest.skip(f"{package} is not installed")
    workloads.check_golden(name, workloads.run(name, build, tmp_path))
