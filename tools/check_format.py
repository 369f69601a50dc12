"""C++ files are formatted by .clang-format.

usage: check_format.py [FILE…]     (default: the tracked C++ files)

Versions of clang-format disagree in details; the house version is 14 (Debian 12, Ubuntu 22.04).
Exit code: 0 formatted, 1 not (one line each), 77 no clang-format 14 on this machine.
"""

import pathlib
import re
import shutil
import subprocess
import sys
from typing import List, Optional

ROOT = pathlib.Path(__file__).resolve().parent.parent


def find_tool() -> Optional[str]:
    for name in ("clang-format-14", "clang-format"):
        path = shutil.which(name)
        if path:
            version = subprocess.run([path, "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout
            if re.search(r"version 14\.", version):
                return path
    return None


def main(arguments: List[str]) -> int:
    tool = find_tool()
    if tool is None:
        print("check_format: no clang-format 14 here")
        return 77
    names = arguments
    if not names:
        listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z", "*.cpp", "*.h"],
                                stdout=subprocess.PIPE, check=True, text=True)
        names = [str(ROOT / name) for name in listed.stdout.split("\0") if name]
    style = f"--style=file:{ROOT / '.clang-format'}"
    done = subprocess.run([tool, style, "--dry-run", "--ferror-limit=1", *names], stderr=subprocess.PIPE, text=True, check=True)
    found = sorted(set(re.findall(r"^(.+?):\d+:\d+: (?:warning|error)", done.stderr, re.M)))
    for name in found:
        print(f"{name}: not formatted (make format)")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
