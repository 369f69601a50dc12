#!/usr/bin/env bash
# build.sh PRESET [TARGET…]: configures build/PRESET (once; again when the compiler changed) and
# builds. JOBS sets the number of parallel compilations.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:-release}
shift || true
compiler=$(tools/compiler.sh) || { echo "build: no C++20 compiler; run tools/setup.sh" >&2; exit 1; }
directory=build/$preset
if [ ! -e "$directory/build.ninja" ] ||
  [ "$(cat "$directory/compiler.txt" 2>/dev/null)" != "$compiler" ]; then
  mkdir -p "$directory"
  rm -f "$directory/CMakeCache.txt"
  cmake --preset "$preset" -DCMAKE_CXX_COMPILER="$compiler" >"$directory/configure.txt" 2>&1 ||
    { cat "$directory/configure.txt" >&2; exit 1; }
  echo "$compiler" >"$directory/compiler.txt"
fi
ninja -C "$directory" -j "${JOBS:-$(nproc)}" "$@"
