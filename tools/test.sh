#!/usr/bin/env bash
# test.sh TIER…: sets up, builds and runs test tiers; the last line is "N passed, N failed".
#   quick  unit, property and golden tests (ctest), checks and end-to-end tests (pytest)
#   torch  end-to-end tests with a real PyTorch
#   clients  other people's programs from pip on the simulated GPU
#   workloads  training scripts on the simulated GPU (tests/workloads)
#   asan, tsan  the ctest tests under AddressSanitizer + UBSan, or under ThreadSanitizer
# Exit code: 0 when nothing failed. Which test belongs where: tests/README.md.
set -uo pipefail
cd "$(dirname "$0")/.."
exec </dev/null

broken() {  # a step before the tests failed: nothing else can be said
  echo "test: $1" >&2
  echo "0 passed, 1 failed"
  exit 1
}

options=()
preset=release
for tier in "$@"; do
  case $tier in
    quick) ;;
    torch) options+=(--torch) ;;
    clients) options+=(--clients) ;;
    workloads) options+=(--workloads) ;;
    asan) preset=asan-ubsan ;;
    tsan) preset=tsan ;;
    *) broken "unknown tier $tier" ;;
  esac
done
tools/setup.sh "${options[@]}" || broken "the set-up failed"
tools/build.sh "$preset" || broken "the build failed"
cache=${XDG_CACHE_HOME:-$HOME/.cache}/fragscope
exec "$cache/tests-venv/bin/python" tools/run_tests.py --build "build/$preset" "$@"
