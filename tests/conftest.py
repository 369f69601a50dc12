"""What every Python test may use; folders add their own conftest.py."""

import os
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent


def pytest_collection_modifyitems(items):
    """Everything in tests/torch belongs to the torch tier, marked or not."""
    for item in items:
        if (ROOT / "tests" / "torch") in pathlib.Path(item.fspath).parents:
            item.add_marker(pytest.mark.torch)


@pytest.fixture(scope="session")
def root():
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def build():
    """The build directory: FRAGSCOPE_BUILD, by default build/release."""
    return pathlib.Path(os.environ.get("FRAGSCOPE_BUILD") or ROOT / "build/release").resolve()
