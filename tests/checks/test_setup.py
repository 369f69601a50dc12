"""tools/setup.sh: asks the package manager for what is missing, and for nothing otherwise."""

import os
import subprocess

import pytest


@pytest.fixture
def setup(root, tmp_path):
    """setup(**variables) -> (exit code, stderr, calls of apt-get) with a recorded apt-get."""

    def tool(name, text):
        path = tmp_path / name
        path.write_text("#!/bin/sh\n" + text, encoding="utf-8")
        path.chmod(0o755)
        return str(path)

    def run(missing=None):
        calls = tmp_path / "calls"
        tool("apt-get", f'echo "$@" >> {calls}\n')
        tool("sudo", 'while [ "$1" = -n ]; do shift; done; exec "$@"\n')
        environment = dict(os.environ, PATH=f"{tmp_path}:{os.environ['PATH']}")
        if missing:  # a compiler that finds every header but one package's
            environment["CXX"] = tool("compiler", f"cat > /dev/null; echo '>{missing}'\n")
        done = subprocess.run([str(root / "tools/setup.sh")], env=environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, check=False)
        return done.returncode, done.stderr, calls.read_text(encoding="utf-8") if calls.exists() else ""

    return run


def test_nothing_is_asked_for_when_all_is_there(setup):
    assert setup() == (0, "", "")


def test_a_missing_package_is_asked_for_by_name(setup):
    code, errors, calls = setup(missing="libnothing-dev")
    assert code == 1
    assert "install -y --no-install-recommends libnothing-dev\n" in calls
    assert errors.splitlines()[-1] == "setup: still missing after the installation: libnothing-dev"


def test_an_unknown_option_is_refused(root):
    done = subprocess.run([str(root / "tools/setup.sh"), "--everything"], stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == ("setup: unknown option --everything (known: --accuracy --bench --clients --lint "
                           "--torch --workloads)\n")
