#!/usr/bin/env bash
# Builds and runs the benchmarks of tests/bench: the machine first, then mean, median, standard
# deviation and coefficient of variation of REPETITIONS runs each (default 5).
set -euo pipefail
cd "$(dirname "$0")/.."
tools/build.sh release fs_base >/dev/null
cmake build/release >/dev/null  # Google Benchmark may have come after the first configuration
tools/build.sh release benchmarks recorder_benchmarks replay_speed search_speed fragscope fragscope_shim >/dev/null
echo "machine: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(nproc) cores," \
  "$(awk '/MemTotal/ {printf "%.0f GiB", $2 / 1048576}' /proc/meminfo), Linux $(uname -r)," \
  "load $(cut -d' ' -f1 /proc/loadavg)"
echo "version: $(git describe --always --dirty 2>/dev/null || echo unknown), $(tools/compiler.sh)" \
  "$("$(tools/compiler.sh)" -dumpfullversion)"
for program in build/release/bin/bench_*; do
  "$program" --benchmark_repetitions="${REPETITIONS:-5}" --benchmark_report_aggregates_only=true \
    --benchmark_min_time=0.2 2>/dev/null
done
# The searches of advise and plan against what they may take.
build/release/bin/search_speed "${SEARCH_EVENTS:-1000000}" "${PLAN_REQUESTS:-282000}"
# Replay of a training loop that stock PyTorch ran on the simulated GPU, where a torch venv is there;
# else of a trace that is named.
python=${FRAGSCOPE_TORCH_VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/fragscope/torch-venv}/bin/python
trace=${FRAGSCOPE_BENCH_TRACE:-}
if [ -z "$trace" ] && [ -x "$python" ]; then
  for loop in transformer resnet; do
    run=build/release/bench/$loop.fsr
    if [ ! -e "$run/run.json" ]; then
      mkdir -p build/release/bench
      build/release/bin/fragscope run --gpu 24GiB -o "$run" -- "$python" tests/bench/train.py $loop 40 >/dev/null
    fi
    build/release/bin/replay_speed "$run"/*.fst "${EVENTS:-10000000}" "${REPETITIONS:-5}"
    # The same requests to the model and to the installed torch's own allocator, in one process.
    tests/oracle/speed "$run" --repetitions "${REPETITIONS:-5}"
  done
elif [ -n "$trace" ]; then
  build/release/bin/replay_speed "$trace" "${EVENTS:-10000000}" "${REPETITIONS:-5}"
else
  echo "replay_speed: no torch venv (tools/setup.sh --torch) and no FRAGSCOPE_BENCH_TRACE: left out"
fi

# What recording costs.
options=()
if [ -x "$python" ]; then
  options+=(--torch "$python")
  if "$python" -c 'import memray' 2>/dev/null; then options+=(--memray "$python"); fi
fi
python3 tests/bench/recorder/recorder.py build/release --repetitions "${REPETITIONS:-5}" "${options[@]}"
# Served allocations beside PyTorch's own.
if [ -x "$python" ]; then
  tools/build.sh release fragscope_alloc cuda_served >/dev/null
  python3 tests/bench/served_speed.py build/release "${PAIRS:-200000}"
fi
# How fast a large snapshot loads.
python3 tests/bench/bench_snapshot.py build/release/bin/fragscope "${SNAPSHOT_BYTES:-200000000}"
