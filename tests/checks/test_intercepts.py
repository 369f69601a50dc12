"""check_intercepts.py: on the checkout with every header at hand, and with planted faults."""

import shutil
import subprocess

import pytest


@pytest.fixture
def lists(root, tmp_path):
    """lists(file, change) -> a root with copies of the two lists, `file` of them changed."""

    def make(file=None, change=None):
        (tmp_path / "shim").mkdir(exist_ok=True)
        for name in ("intercepts.def", "not_allocations.txt"):
            text = (root / "shim" / name).read_text(encoding="utf-8")
            changed = change(text) if name == file else text
            assert name != file or changed != text
            (tmp_path / "shim" / name).write_text(changed, encoding="utf-8")
        return tmp_path

    return make


@pytest.fixture
def headers(tmp_path):
    """headers(cuda_h, runtime_h, typedefs) -> an include directory of a toolkit that has only these."""

    def make(cuda_h="", runtime_h="", typedefs=""):
        place = tmp_path / "include"
        place.mkdir(exist_ok=True)
        for name, text in (("cuda.h", cuda_h), ("cuda_runtime_api.h", runtime_h),
                           ("cudaTypedefs.h", typedefs)):
            (place / name).write_text(text, encoding="utf-8")
        return place

    return make


def test_every_name_of_the_vendor_has_a_row_or_a_reason(check):
    code, lines = check("intercepts")
    assert code == 0, lines
    names = int(lines[0].split()[0])
    assert names > 900


def test_a_new_function_is_a_finding(check, headers, lists):
    place = headers("enum CUresult { OK }; CUresult cuMemConjure(void); CUresult cuMemcpy(int);",
                    "enum cudaError_t { Ok }; cudaError_t cudaConjure(void);")
    code, lines = check("intercepts", "--include", place, "--libraries", place, lists())
    assert code == 1
    assert [line.split(":")[0] for line in lines] == ["cuMemConjure", "cudaConjure"]


def test_a_new_version_of_a_hooked_function_is_a_finding(check, headers, lists):
    place = headers("enum CUresult { OK }; CUresult cuMemFree_v7(int); CUresult cuMemcpy_v9(int);",
                    "", "typedef CUresult (CUDAAPI *PFN_cuMemFree_v99000_ptsz)(CUdeviceptr p);\n")
    code, lines = check("intercepts", "--include", place, "--libraries", place, lists())
    assert (code, lines) == (1, [
        "cuMemFree_v7: an ABI of a hooked function without a row in shim/intercepts.def",
        "cuMemFree version 99000 ptsz: no row in shim/intercepts.def"])


@pytest.mark.parametrize("symbol", ["cudaMallocArray", "cuMemAllocAsync_ptsz", "cuMulticastUnbind"])
def test_a_removed_row_is_a_finding(check, lists, symbol):
    without = lists("intercepts.def", lambda text: "".join(
        line for line in text.splitlines(True) if not line.startswith(f"CUDA_HOOK({symbol},")))
    code, lines = check("intercepts", without)
    assert code == 1 and any(line.startswith(symbol.replace("_ptsz", "")) for line in lines), lines


def test_a_removed_reason_is_a_finding(check, lists):
    code, lines = check("intercepts", lists("not_allocations.txt",
                                            lambda text: text.replace(" cuMemcpyPeerAsync", "")))
    assert code == 1 and {line.split(":")[0] for line in lines} == {
        "cuMemcpyPeerAsync", "cuMemcpyPeerAsync_ptsz"}


def test_a_name_with_a_row_and_a_reason_is_a_finding(check, lists):
    code, lines = check("intercepts", lists("not_allocations.txt",
                                            lambda text: text + "  cudaMalloc\n"))
    assert (code, lines) == (1, ["cudaMalloc: has a row and a reason not to"])


def test_an_import_of_a_library_counts(check, headers, lists, tmp_path):
    compiler = next(c for c in ("g++", "g++-12", "clang++") if shutil.which(c))
    library = tmp_path / "wheel" / "libimports.so"
    library.parent.mkdir()
    subprocess.run([compiler, "-x", "c++", "-shared", "-fPIC", "-", "-o", str(library)], check=True,
                   input=b'extern "C" int cudaSummon(); int f() { return cudaSummon(); }')
    code, lines = check("intercepts", "--include", headers("", ""), "--libraries", library.parent, lists())
    assert code == 1 and lines[0].startswith("cudaSummon: neither in")


def test_without_headers_it_says_so(check, lists, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    code, lines = check("intercepts", "--include", empty, "--libraries", empty, lists())
    assert code == 2 and "no cuda.h in" in lines[0]
