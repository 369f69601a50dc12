#!/usr/bin/env bash
# The demo: a training run that PyTorch's allocator lets fail, recorded, explained, recomputed under
# a split limit, and then run to its end with that limit. Every figure it prints comes from the
# programs it calls.
#
# usage: demo.sh [--torch | --no-torch]
#   --torch     fail when no Python with a CUDA build of torch is there (else: say so and end)
#   --no-torch  leave the part with PyTorch out
# FRAGSCOPE_DEMO_DIR keeps the recordings (default build/demo). No GPU is needed.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${FRAGSCOPE_BUILD:-build/release}
runs=${FRAGSCOPE_DEMO_DIR:-build/demo}
limit=32
train=$build/bin/fragscope-demo-train
bold= plain=
if [ -t 1 ]; then bold=$'\e[1m' plain=$'\e[0m'; fi

say() { printf '\n%s%s%s\n' "$bold" "$1" "$plain"; }

# expect CODE COMMAND…: shows and runs a command that must end with CODE.
expect() {
  local wanted=$1 code=0
  shift
  printf '%s$ %s%s\n' "$bold" "$(sed "s,$build/bin/,,g; s,$runs/,,g" <<<"$*")" "$plain"
  "$@" || code=$?
  if [ "$code" != "$wanted" ]; then
    echo "demo: expected exit code $wanted, got $code" >&2
    exit 1
  fi
}
fragscope=$build/bin/fragscope

record_and_fail() {
  say "1. A training loop on a simulated 12 GiB card. Its allocator is PyTorch's (src/model over cudaMalloc)."
  expect 1 "$fragscope" run --gpu 12GiB -o "$runs/default.fsr" -- "$train"
}

explain() {
  say "2. What the recording says: how much was really in use, and what holds the rest."
  expect 0 "$fragscope" report --no-stacks "$runs/default.fsr"
}

recompute() {
  say "3. The allocator rebuilt from the recording, every decision checked; its segments at the end."
  expect 0 "$fragscope" replay --strict "$runs/default.fsr"
  say "   The same requests, recomputed with blocks above $limit MiB never split."
  expect 0 "$fragscope" replay "$runs/default.fsr" --max-split-size-mb "$limit"
}

enforce() {
  say "4. The limit enforced: the same program, unchanged, to its end."
  expect 0 "$fragscope" run --gpu 12GiB --max-split-size-mb "$limit" \
    -o "$runs/limited.fsr" -- "$train"
  say "   And a program without an allocator: its cudaMalloc and cudaFree calls served under the limit."
  expect 0 "$fragscope" run --gpu 12GiB --enforce=shim --max-split-size-mb "$limit" \
    -o "$runs/plain.fsr" -- "$train" --plain
  expect 0 "$fragscope" info "$runs/plain.fsr"
}

# Prints the first Python whose torch was built for CUDA.
find_torch() {
  local cache=${XDG_CACHE_HOME:-$HOME/.cache}/fragscope python
  for python in "${FRAGSCOPE_TORCH_VENV:-$cache/torch-venv}/bin/python" python3; do
    command -v "$python" >/dev/null 2>&1 || continue
    "$python" - 2>/dev/null <<'PYTHON' || continue
import importlib.util, pathlib, re, sys
spec = importlib.util.find_spec("torch")
version = pathlib.Path(spec.origin).with_name("version.py").read_text() if spec else ""
sys.exit(0 if re.search(r"^cuda(: [^=]*)? = '\d+", version, re.M) else 1)
PYTHON
    echo "$python"
    return
  done
}

with_torch() {
  local python
  python=$(find_torch)
  if [ -z "$python" ]; then
    say "5. No Python with a CUDA build of torch here: \`make demo-torch\` installs one and goes on."
    [ "${1:-}" != --torch ] || exit 1
    return
  fi
  say "5. A real PyTorch training script, its own figures and those of the recording."
  expect 0 "$fragscope" run --gpu 24GiB -o "$runs/torch.fsr" -- "$python" tools/demo/train_torch.py
  expect 0 "$fragscope" report --no-stacks "$runs/torch.fsr"
  expect 0 "$fragscope" replay --strict "$runs/torch.fsr"
}

rm -rf "$runs"
mkdir -p "$runs"
record_and_fail
explain
recompute
enforce
[ "${1:-}" = --no-torch ] || with_torch "${1:-}"
say "The recordings are in $runs; \`$fragscope --help\` lists what else can be asked of them."
