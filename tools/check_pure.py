"""src/model is pure: same events and same configuration give the same bytes out.

usage: check_pure.py ARCHIVE_OR_OBJECT…

Looks at the undefined symbols (no files, streams, clocks, threads, environment, randomness) and at
the data sections (nothing writable that outlives a call).
Exit code: 0 pure, 1 not (one line each), 2 a file cannot be read.
"""

import re
import subprocess
import sys
from typing import List

BANNED = [
    ("files", r"f?open(?:at)?(?:64)?|fdopen|creat|read|write|pread|pwrite|f(?:read|write|puts|printf|close|seek)|"
              r"v?f?printf|puts|putchar|perror|__printf_chk|__fprintf_chk|stat|fstat|mmap|munmap|unlink|stdout|stderr"),
    ("streams", r"std::(?:ios_base::Init|cout|cerr|clog|cin|basic_[io]?f(?:ile)?(?:stream|buf)).*"),
    ("files", r"std::filesystem::.*"),
    ("clocks", r"clock_gettime|gettimeofday|time|clock|times|std::chrono::_V2::.*"),
    ("threads", r"pthread_\w+|std::(?:thread|this_thread|mutex|condition_variable|future).*|sched_yield|usleep|nanosleep|sleep"),
    ("environment", r"(?:secure_)?getenv|__secure_getenv|setenv|putenv|environ|getpid|gettid|gethostname|sysconf"),
    ("randomness", r"s?rand(?:om)?|[dln]rand48|getrandom|getentropy|std::random_device::.*"),
    ("processes", r"system|fork|exec\w+|exit|_exit|abort_handler|dlopen|dlsym"),
]
WRITABLE = re.compile(r"^\.(?:bss|tbss|data|tdata)(?!\.rel\.ro)")
COMPILER_OWN = re.compile(r"^(?:DW\.ref\.|\.|_ZGV)|^$")


def output_of(*command: str) -> List[str]:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        print(f"check_pure: {' '.join(command)}: {done.stderr.strip()}", file=sys.stderr)
        sys.exit(2)
    return done.stdout.splitlines()


def undefined_problems(path: str) -> List[str]:
    problems, member = [], ""
    for line in output_of("nm", "--undefined-only", "--demangle", path):
        if line.endswith(":"):
            member = line[:-1]
        name = line.strip()[2:] if line.strip().startswith("U ") else ""
        for what, pattern in BANNED:
            if name and re.fullmatch(pattern, name.split("@")[0]):
                problems.append(f"{member or path}: {what}: {name}")
    return problems


def data_problems(path: str) -> List[str]:
    problems, member = [], ""
    for line in output_of("objdump", "-t", path):
        header = re.match(r"^(\S+):\s+file format", line)
        if header:
            member = header.group(1)
        # address, flags, section, size, name
        symbol = re.match(r"^[0-9a-f]+ (.{7}) (\S+)\s+([0-9a-f]+)\s+(?:\.\w+ )?(.*)$", line)
        if symbol and WRITABLE.match(symbol.group(2)) and int(symbol.group(3), 16) > 0:
            if not COMPILER_OWN.match(symbol.group(4)):
                problems.append(f"{member or path}: writable data: {symbol.group(4)}")
    return problems


def main(arguments: List[str]) -> int:
    if not arguments:
        print("usage: check_pure.py ARCHIVE_OR_OBJECT…", file=sys.stderr)
        return 2
    problems = [p for path in arguments for p in undefined_problems(path) + data_problems(path)]
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
