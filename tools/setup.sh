#!/usr/bin/env bash
# Installs what building, testing and the demo need, and nothing when it is all there already.
#
#   tools/setup.sh          compiler, libraries, CUDA headers, a small Python with pytest
#   tools/setup.sh --bench  also Google Benchmark
#   tools/setup.sh --lint   also clang, clang-format and clang-tidy
#   tools/setup.sh --workloads  --torch and what the workloads need (torchvision, peft, accelerate,
#                           diffusers; about 100 MB more)
#   tools/setup.sh --accuracy   a Python with the versions of published measurements (about 6 GB)
#   tools/setup.sh --torch  also a Python with torch, transformers, numpy and pytest (about 6 GB)
#   tools/setup.sh --clients  also Pythons with numba-cuda, cuda-python, JAX; TensorFlow (about 4 GB)
#
# Debian packages come through apt (as root or with sudo; otherwise one line names them). What
# comes from PyPI goes below ${XDG_CACHE_HOME:-~/.cache}/fragscope and is reused:
#   cuda-headers/{12,13}/include   headers of the CUDA runtime wheels; a toolkit of that major
#                                  version (>= 12.4) on this machine is used instead
#   tests-venv, torch-venv         FRAGSCOPE_TORCH_VENV names another one with torch to be used
# Exit code: 0 all there, 1 something is missing (one line says what).
set -euo pipefail
exec </dev/null

cache=${XDG_CACHE_HOME:-$HOME/.cache}/fragscope
want_bench= want_lint= want_torch= want_clients= want_workloads= want_accuracy=
for option in "$@"; do
  case $option in
    --bench) want_bench=1 ;;
    --lint) want_lint=1 ;;
    --torch) want_torch=1 ;;
    --clients) want_clients=1 ;;
    --workloads) want_torch=1 want_workloads=1 ;;
    --accuracy) want_accuracy=1 ;;
    *)
      echo "setup: unknown option $option (known: --accuracy --bench --clients --lint --torch --workloads)" >&2
      exit 2 ;;
  esac
done
note() { echo "setup: $*" >&2; }
fail() { note "$*"; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

# --- Debian packages --------------------------------------------------------------------------
# Header of each library package: asked of the compiler, so a copy anywhere on its path counts.
headers=(
  "boost/interprocess/mapped_region.hpp libboost-dev"
  "libunwind.h libunwind-dev"
  "zstd.h libzstd-dev"
  "xxhash.h libxxhash-dev"
  "nlohmann/json.hpp nlohmann-json3-dev"
  "CLI/CLI.hpp libcli11-dev"
  "fmt/format.h libfmt-dev"
  "elfutils/libdwfl.h libdw-dev"
  "libelf.h libelf-dev"
)

# Prints the packages of `headers` that the compiler does not find; all of them without a compiler.
missing_headers() {
  local compiler entry
  compiler=$("$(dirname "$0")/compiler.sh" 2>/dev/null || true)
  if [ -z "$compiler" ]; then printf '%s\n' "${headers[@]#* }"; return; fi
  for entry in "${headers[@]}"; do
    printf '#if !__has_include(<%s>)\n>%s\n#endif\n' "${entry% *}" "${entry#* }"
  done | "$compiler" -E -P -x c++ - 2>/dev/null | sed -n 's/^ *> *//p' | tr -d ' '
}

# Prints one missing package a line.
missing_packages() {
  "$(dirname "$0")/compiler.sh" >/dev/null 2>&1 || compiler_package
  have cmake || echo cmake
  have ninja || echo ninja-build
  have ccache || echo ccache
  have make || echo make
  have readelf || echo binutils
  have pkg-config || echo pkg-config
  have git || echo git
  python3 -c 'import ensurepip, venv' 2>/dev/null || printf '%s\n' python3 python3-venv
  [ -e /etc/ssl/certs/ca-certificates.crt ] || echo ca-certificates
  missing_headers
  [ -e /usr/include/catch2/catch.hpp ] || [ -e /usr/include/catch2/catch_all.hpp ] ||
    [ -e /usr/local/include/catch2/catch_all.hpp ] || echo catch2
  [ -z "$want_bench" ] || [ -e /usr/include/benchmark/benchmark.h ] || echo libbenchmark-dev
  if [ -n "$want_lint" ]; then
    have clang++ || echo clang
    have clang-format || echo clang-format
    have clang-tidy || echo clang-tidy
  fi
}

# The distribution's g++ where that is 12 or newer, else g++-12 (Ubuntu 22.04).
compiler_package() {
  local id= version=
  if [ -r /etc/os-release ]; then
    id=$(. /etc/os-release; echo "${ID:-}")
    version=$(. /etc/os-release; echo "${VERSION_ID:-}")
  fi
  if [ "$id-$version" = ubuntu-22.04 ]; then echo g++-12; else echo g++; fi
}

install_packages() {
  local missing sudo=
  mapfile -t missing < <(missing_packages | sort -u)
  [ ${#missing[@]} -gt 0 ] || return 0
  have apt-get || fail "please install the equivalents of these Debian packages: ${missing[*]}"
  if [ "$(id -u)" != 0 ]; then
    if have sudo && sudo -n true 2>/dev/null; then sudo="sudo -n"
    elif have sudo && [ -t 2 ]; then sudo=sudo
    else fail "please install (as root): apt-get install -y ${missing[*]}"; fi
  fi
  note "installing ${missing[*]}"
  # A third-party package source that is down must not stop us: the install says what is missing.
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get -qq update >&2 || note "apt-get update had errors"
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends \
    "${missing[@]}" >/dev/null || fail "apt-get could not install: ${missing[*]}"
  mapfile -t missing < <(missing_packages | sort -u)
  [ ${#missing[@]} -eq 0 ] || fail "still missing after the installation: ${missing[*]}"
}

# --- Python -----------------------------------------------------------------------------------
# make_venv DIR PROBE PACKAGE…: a virtual environment where `PROBE` runs; made anew when broken.
make_venv() {
  local dir=$1 probe=$2
  shift 2
  if [ -x "$dir/bin/python" ] && "$dir/bin/python" -c "$probe" >/dev/null 2>&1; then return 0; fi
  note "creating $dir with $*"
  rm -rf "$dir"
  mkdir -p "$(dirname "$dir")"
  python3 -m venv "$dir" >&2 || fail "python3 -m venv $dir failed"
  "$dir/bin/python" -m pip install -q --disable-pip-version-check "$@" >&2 ||
    fail "pip could not install $* into $dir"
  "$dir/bin/python" -c "$probe" >&2 || fail "$dir is not usable after the installation"
}

# --- CUDA headers -----------------------------------------------------------------------------
# True when a toolkit of that major version, 12.4 or newer, lies where CMake looks for it.
toolkit_of() {
  local major=$1 dir version
  for dir in /usr/local/cuda/include "/usr/local/cuda-$major"*/include /usr/include; do
    [ -e "$dir/cuda_runtime_api.h" ] && [ -e "$dir/cuda.h" ] || continue
    version=$(sed -n 's/^#define CUDA_VERSION \([0-9]*\)$/\1/p' "$dir/cuda.h")
    if [ "${version:-0}" -ge 12040 ] && [ $((version / 1000)) = "$major" ]; then return 0; fi
  done
  return 1
}

# fetch_headers MAJOR REQUIREMENT…: unpacks include/ of these wheels. Versions are pinned: the
# oldest supported header set, so that nothing newer is used by accident.
fetch_headers() {
  local major=$1 target="$cache/cuda-headers/$1" work
  shift
  if [ -e "$target/include/cuda.h" ] && [ -e "$target/include/crt/host_defines.h" ]; then return 0; fi
  ! toolkit_of "$major" || return 0
  note "fetching the CUDA $major headers ($*)"
  mkdir -p "$cache/cuda-headers"
  work=$(mktemp -d "$cache/cuda-headers/.fetch-XXXXXX")
  "$cache/tests-venv/bin/python" -m pip download -q --disable-pip-version-check --no-deps \
    -d "$work/wheels" "$@" >&2 || { rm -rf "$work"; fail "pip could not download $*"; }
  python3 - "$work" <<'PYTHON' || { rm -rf "$work"; fail "the CUDA $major wheels hold no headers"; }
import pathlib, sys, zipfile
work = pathlib.Path(sys.argv[1])
for wheel in sorted((work / "wheels").glob("*.whl")):
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            parts = name.split("/")
            if "include" not in parts or name.endswith("/") or ".." in parts:
                continue
            target = work / "new" / "/".join(parts[parts.index("include"):])
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(archive.read(name))
for needed in ("cuda.h", "cuda_runtime_api.h", "crt/host_defines.h"):
    assert (work / "new/include" / needed).is_file(), needed
PYTHON
  rm -rf "$target"
  mv "$work/new" "$target"
  rm -rf "$work"
}

install_packages
make_venv "$cache/tests-venv" "import pytest, xdist" "pytest>=7" pytest-xdist
fetch_headers 12 nvidia-cuda-runtime-cu12==12.4.127 nvidia-cuda-nvcc-cu12==12.4.131
fetch_headers 13 nvidia-cuda-runtime==13.0.48 nvidia-cuda-crt==13.0.48
if [ -n "$want_torch" ] && [ -z "${FRAGSCOPE_TORCH_VENV:-}" ]; then
  make_venv "$cache/torch-venv" \
    "import torch, numpy, transformers, pytest; assert torch.version.cuda" \
    torch numpy transformers "pytest>=7"
  if ! "$cache/torch-venv/bin/python" -c "import xdist" >/dev/null 2>&1; then
    "$cache/torch-venv/bin/python" -m pip install -q --disable-pip-version-check pytest-xdist >&2 ||
      fail "pip could not install pytest-xdist into $cache/torch-venv"
  fi
fi
# TensorFlow wants another numpy than the rest. The extras that bring NVIDIA's libraries are not asked
# for: the simulated ones stand in.
if [ -n "$want_clients" ]; then
  make_venv "$cache/clients-venv" \
    "import numba.cuda.testing, cuda.bindings, filecheck, psutil, cffi, jax, jax_cuda13_plugin" \
    "numba-cuda[cu13]" cuda-bindings filecheck psutil cffi pytest jax jax-cuda13-plugin
  make_venv "$cache/tensorflow-venv" \
    "import importlib.metadata as m; m.version('tensorflow')" tensorflow
  make_venv "$cache/monitors-venv" "import pynvml, nvitop, gpustat" nvidia-ml-py nvitop gpustat
fi
if [ -n "$want_workloads" ]; then
  venv=${FRAGSCOPE_TORCH_VENV:-$cache/torch-venv}
  if ! "$venv/bin/python" -c "import torchvision, peft, accelerate, diffusers" >/dev/null 2>&1; then
    note "installing torchvision, peft, accelerate and diffusers into $venv"
    have_torch=$("$venv/bin/python" -c "import torch; print(torch.__version__.split('+')[0])")
    "$venv/bin/python" -m pip install -q --disable-pip-version-check "torch==$have_torch" \
      torchvision peft accelerate diffusers >&2 || fail "pip could not install the workloads' packages"
  fi
fi
if [ -n "$want_accuracy" ]; then
  make_venv "$cache/accuracy-venv" \
    "import torch, torchvision, transformers; assert torch.__version__.startswith('2.6.0')" \
    torch==2.6.0 torchvision==0.21.0 transformers==4.51.3 numpy
fi
