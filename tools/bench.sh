#!/usr/bin/env bash
# Builds and runs the benchmarks of tests/bench: the machine first, then mean, median, standard
# deviation and coefficient of variation of REPETITIONS runs each (default 5).
set -euo pipefail
cd "$(dirname "$0")/.."
tools/build.sh release fs_base >/dev/null
cmake build/release >/dev/null  # Google Benchmark may have come after the first configuration
tools/build.sh release benchmarks >/dev/null
echo "machine: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(nproc) cores," \
  "$(awk '/MemTotal/ {printf "%.0f GiB", $2 / 1048576}' /proc/meminfo), Linux $(uname -r)," \
  "load $(cut -d' ' -f1 /proc/loadavg)"
echo "version: $(git describe --always --dirty 2>/dev/null || echo unknown), $(tools/compiler.sh)" \
  "$("$(tools/compiler.sh)" -dumpfullversion)"
for program in build/release/bin/bench_*; do
  "$program" --benchmark_repetitions="${REPETITIONS:-5}" --benchmark_report_aggregates_only=true \
    --benchmark_min_time=0.2 2>/dev/null
done
