"""Runs the check scripts of tools/, on the checkout and on small planted trees."""

import subprocess
import sys

import pytest


@pytest.fixture
def check(root):
    """check(name, *arguments) -> (exit code, lines printed)."""

    def run(name, *arguments):
        command = [sys.executable, str(root / "tools" / f"check_{name}.py"), *map(str, arguments)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              stdin=subprocess.DEVNULL, check=False)
        return done.returncode, done.stdout.splitlines()

    return run


@pytest.fixture
def tree(tmp_path):
    """tree({"path": "text"}) writes files below an empty directory and returns it."""

    def write(files):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return tmp_path

    return write
