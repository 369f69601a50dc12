"""What a library that is preloaded into foreign processes asks of them: libc and nothing else.

usage: check_needed.py LIBRARY…

- NEEDED names libc.so.6 and the dynamic loader alone
- no undefined symbol of the C++ runtime, the unwinder or libunwind: a preloaded dependency on
  these would pin the host's copy, or fail where the host brings a newer one
Exit code: 0 kept, 1 broken (one line each), 2 a library cannot be read.
"""

import re
import subprocess
import sys
from typing import List

ALLOWED_NEEDED = re.compile(r"^(?:libc\.so\.6|ld-linux[\w-]*\.so\.\d+)$")
LIBC_OWN = {"__cxa_finalize", "__cxa_atexit", "__cxa_thread_atexit_impl", "__cxa_at_quick_exit"}
# A static libstdc++ leaves these behind as weak references, which bind to nothing or to an equal.
WEAK_LEFTOVERS = re.compile(r"^(?:_ZGT\w+|__cxa_pure_virtual)$")
BANNED = re.compile(r"^(?:_Z|__cxa_|__gxx_|__gcc_|_Unwind_|_?unw_|_U(?:x86_64|aarch64|L)|__emutls|__dynamic_cast)")


def output_of(*command: str) -> List[str]:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        print(f"check_needed: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else command}",
              file=sys.stderr)
        sys.exit(2)
    return done.stdout.splitlines()


def problems_of(library: str) -> List[str]:
    problems = []
    for line in output_of("readelf", "-dW", library):
        match = re.search(r"\(NEEDED\).*\[(.+)\]", line)
        if match and not ALLOWED_NEEDED.match(match.group(1)):
            problems.append(f"{library}: needs {match.group(1)}")
    for line in output_of("nm", "-D", "--undefined-only", library):
        kind, name = line.split()[0], line.split()[-1].split("@")[0]
        if kind == "w" and WEAK_LEFTOVERS.match(name):
            continue
        if BANNED.match(name) and name not in LIBC_OWN:
            problems.append(f"{library}: undefined {name}")
    return problems


def main(arguments: List[str]) -> int:
    if not arguments:
        print("usage: check_needed.py LIBRARY…", file=sys.stderr)
        return 2
    problems = [problem for library in arguments for problem in problems_of(library)]
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
