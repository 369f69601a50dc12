# Thin front: every line calls a script or CMake. `make demo` and `make test` work as the first
# command on a bare machine; what they install is listed in CONTRIBUTING.md.
#
#   make             set up and build build/release
#   make demo        record, replay, explain and fix an out-of-memory case; no GPU needed
#   make demo-torch  the same with a real PyTorch script (installs torch in a cached venv)
#   make test        everything but the benchmarks; ends with "N passed, N failed"
#   make test-quick  without the torch tier       make test-torch  the torch tier alone
#   make test-clients  numba, cuda-python, JAX and TensorFlow on the simulated GPU (4 GB of wheels)
#   make test-pythons  Python stacks under CPython 3.14 and 3.15 too (fetched by apt, 100 MB)
#   make test-workloads  unmodified training scripts on the simulated GPU, with golden figures
#   make accuracy TABLE=FILE  simulated peaks against peaks measured on real cards
#   make enforce-table   fragmentation of training programs: settings, plans and the bound
#   make oracle      the allocator model against the installed torch's libc10_cuda, random lists
#   make oracle-all  the same for every torch release from 2.1 on (downloads the wheels once)
#   make mutate-model SEED=1 COUNT=100   changes src/model in small ways; every change must fail a test
#   make soak        10^8 served allocations over 16 threads and 4 streams, each checked
#   make asan tsan   unit tests under sanitizers  make bench       benchmarks, with the machine
#   make format tidy clang-format in place, clang-tidy
#   make install PREFIX=/usr/local                make clean
SHELL := /bin/bash
PREFIX ?= /usr/local

.DEFAULT_GOAL := build
.PHONY: build setup demo demo-torch test test-quick test-torch test-clients test-pythons \
        test-workloads accuracy \
        enforce-table oracle oracle-all mutate-model soak asan tsan bench install format tidy clean

setup:
	@tools/setup.sh

build: setup
	@tools/build.sh release

demo: setup
	@tools/build.sh release product
	@tools/demo/demo.sh

demo-torch:
	@tools/setup.sh --torch
	@tools/build.sh release product
	@tools/demo/demo.sh --torch

test:
	@tools/test.sh quick torch

test-quick:
	@tools/test.sh quick

test-torch:
	@tools/test.sh torch

test-clients:
	@tools/test.sh clients

test-pythons: build
	@pythons=$$(tools/pythons.sh) && FRAGSCOPE_TEST_PYTHONS=$$pythons \
	  $${XDG_CACHE_HOME:-$$HOME/.cache}/fragscope/tests-venv/bin/python -m pytest -q \
	  tests/e2e/test_python_stacks.py

test-workloads: build
	@tools/setup.sh --workloads
	@tools/test.sh workloads

accuracy: build
	@tools/setup.sh --accuracy
	@python3 tests/accuracy/accuracy.py "$(TABLE)"

enforce-table: build
	@tools/setup.sh --torch
	@$${FRAGSCOPE_TORCH_VENV:-$${XDG_CACHE_HOME:-$$HOME/.cache}/fragscope/torch-venv}/bin/python \
	    tools/enforce_table.py

oracle: build
	@tests/oracle/fuzz

oracle-all: build
	@tests/oracle/fuzz --all

mutate-model: setup
	@tools/mutate_model.py --seed $(or $(SEED),1) --count $(or $(COUNT),100)

soak: build
	@tools/build.sh release cuda_soak
	@LD_LIBRARY_PATH=$(CURDIR)/build/release/lib/fragscope/sim \
	  FRAGSCOPE_SIM="total_bytes=8589934592;event_latency_queries=5" \
	  build/release/tests/cuda/cuda_soak $(or $(PAIRS),100000000) 16 4

asan:
	@tools/test.sh asan

tsan:
	@tools/test.sh tsan

bench:
	@tools/setup.sh --bench
	@tools/bench.sh

install: build
	@cmake --install build/release --prefix "$(PREFIX)"

format:
	@tools/setup.sh --lint
	@git ls-files '*.cpp' '*.h' | xargs clang-format -i

tidy:
	@tools/setup.sh --lint
	@tools/build.sh dev
	@git ls-files 'src/*.cpp' 'tools/*.cpp' 'shim/*.cpp' | xargs clang-tidy --quiet -p build/dev

clean:
	@rm -rf build
