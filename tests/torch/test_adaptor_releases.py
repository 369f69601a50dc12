"""The torch adaptor compiles against the headers of every release that the oracle has fetched, with the
flags of shim/torch_adaptor/build_command.h."""

import os
import pathlib
import subprocess

import pytest

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "fragscope"
ROOT = pathlib.Path(__file__).resolve().parents[2]
ADAPTOR = ROOT / "shim/torch_adaptor/torch_adaptor.cpp"
FIRST = 4  # 2.4: the first with a tracker
RELEASES = sorted(int(place.name[2:]) for place in (CACHE / "oracle/wheels").glob("2.*")
                  if (place / "torch/include/c10/cuda/CUDACachingAllocator.h").exists())
PRINT = """#include "shim/torch_adaptor/build_command.h"
#include <cstdio>
#include <cstdlib>
int main(int, char** words) {
  fragscope::TorchAdaptorBuild build;
  build.source = words[1]; build.torch = words[2]; build.cuda_include = words[3];
  build.output = "/dev/null"; build.torch_minor = std::atoi(words[4]);
  for (const auto& word : fragscope::torch_adaptor_command(build)) std::puts(word.c_str());
}
"""


@pytest.fixture(scope="session")
def flags(tmp_path_factory):
    place = tmp_path_factory.mktemp("flags")
    (place / "print.cpp").write_text(PRINT)
    subprocess.run(["g++", "-std=c++20", f"-I{ROOT}", place / "print.cpp", "-o", place / "print"], check=True)
    return lambda *words: subprocess.run([place / "print", *map(str, words)], check=True, text=True,
                                         capture_output=True).stdout.splitlines()


def cuda_include():
    places = [CACHE / f"cuda-headers/{major}/include" for major in (12, 13)]
    places += [pathlib.Path("/usr/local/cuda/include")]
    return next(place for place in places if (place / "cuda_runtime_api.h").exists())


@pytest.mark.parametrize("minor", [minor for minor in RELEASES if minor >= FIRST] or [None])
def test_it_compiles(flags, tmp_path, minor):
    if minor is None:
        pytest.skip("no headers of other releases: make oracle-all fetches them")
    torch = CACHE / f"oracle/wheels/2.{minor}/torch"
    if not (torch / "include/torch/version.h").exists():  # of the wheel's headers only c10 is kept
        (tmp_path / "torch").mkdir()
        (tmp_path / "torch/version.h").write_text(
            f'#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR {minor}\n#define TORCH_VERSION ""\n')
    done = subprocess.run([*flags(ADAPTOR, torch, cuda_include(), minor), "-fsyntax-only", f"-isystem{tmp_path}"],
                          text=True, capture_output=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[:4000]
