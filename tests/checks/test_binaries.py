"""check_needed.py, check_exports.py and check_pure.py: on the build, and on planted libraries."""

import os
import shutil
import subprocess

import pytest

EXPORT = '__attribute__((visibility("default")))'
THROWING = "#include <stdexcept>\n#include <string>\n" \
           f'extern "C" {EXPORT} void hook() {{ throw std::runtime_error(std::string("x")); }}\n'


@pytest.fixture
def compile_shared(tmp_path):
    """compile_shared(source, *flags) -> path of a shared library made of it."""
    compiler = os.environ.get("CXX") or next(c for c in ("g++", "g++-12", "clang++") if shutil.which(c))

    def make(source, *flags, suffix="so"):
        (tmp_path / "planted.cpp").write_text(source, encoding="utf-8")
        library = tmp_path / f"libplanted.{suffix}"
        subprocess.run([compiler, "-std=c++20", "-fPIC", "-fvisibility=hidden", *(flags or ("-shared",)),
                        str(tmp_path / "planted.cpp"), "-o", str(library)], check=True)
        return library

    return make


@pytest.fixture
def names(tmp_path):
    """names(text) -> path of a .def file."""

    def make(text):
        path = tmp_path / "list.def"
        path.write_text(text, encoding="utf-8")
        return path

    return make


# --- NEEDED ---------------------------------------------------------------------------------------
def test_the_shim_needs_libc_alone(check, build):
    assert check("needed", build / "lib/libfragscope.so") == (0, [])


def test_the_pluggable_allocator_needs_libc_alone(check, build):
    assert check("needed", build / "lib/libfragscope_alloc.so") == (0, [])


def test_a_dynamic_libstdcxx_is_found(check, compile_shared):
    code, lines = check("needed", compile_shared(THROWING))
    assert code == 1
    assert any(line.endswith("needs libstdc++.so.6") for line in lines)
    assert any(line.endswith("undefined __cxa_throw") for line in lines)


def test_a_dynamic_unwinder_is_found(check, compile_shared):
    library = compile_shared('extern "C" int _Unwind_Backtrace(void*, void*);\n'
                             f'extern "C" {EXPORT} int f() {{ return _Unwind_Backtrace(nullptr, nullptr); }}\n',
                             "-shared", "-nostdlib", "-lc")
    assert check("needed", library) == (1, [f"{library}: undefined _Unwind_Backtrace"])


def test_a_weak_reference_to_the_unwinder_is_found_too(check, compile_shared):
    library = compile_shared('extern "C" __attribute__((weak)) int _Unwind_Backtrace(void*, void*);\n'
                             f'extern "C" {EXPORT} int f() {{ return _Unwind_Backtrace ? 1 : 0; }}\n',
                             "-shared", "-nostdlib", "-lc")
    assert check("needed", library) == (1, [f"{library}: undefined _Unwind_Backtrace"])


def test_a_static_libstdcxx_passes(check, compile_shared):
    flags = ("-shared", "-static-libstdc++", "-static-libgcc", "-Wl,--exclude-libs,ALL")
    source = f'#include <atomic>\nextern "C" {EXPORT} int f() {{ static std::atomic<int> n; return n++; }}\n'
    assert check("needed", compile_shared(source, *flags)) == (0, [])


def test_what_is_no_library_is_an_error_of_its_own(check, names):
    assert check("needed", names("no library"))[0] == 2


# --- exports --------------------------------------------------------------------------------------
def test_the_shim_exports_its_list(check, build, root):
    assert check("exports", build / "lib/libfragscope.so", root / "shim/intercepts.def") == (0, [])


def test_the_pluggable_allocator_exports_its_list(check, build, root):
    library = build / "lib/libfragscope_alloc.so"
    assert check("exports", library, root / "alloc/entry_points.def") == (0, [])


TWO = f'extern "C" {{ {EXPORT} int cudaMalloc() {{ return 0; }} {EXPORT} int cudaFree() {{ return 0; }} }}\n'


def test_an_exact_list_passes(check, compile_shared, names):
    rows = "CUDA_HOOK(cudaMalloc, x)\nPLAIN_EXPORT(cudaFree)\nNOT_HOOKED(cudaArray, why)\n"
    assert check("exports", compile_shared(TWO), names(rows)) == (0, [])


def test_a_missing_and_a_stray_export_are_found(check, compile_shared, names):
    library = compile_shared(TWO)
    assert check("exports", library, names("CUDA_HOOK(cudaMalloc, x)\nCUDA_HOOK(cuMemAlloc_v2, x)\n")) == (1, [
        f"{library}: does not export cuMemAlloc_v2", f"{library}: exports cudaFree, which no list names"])


def test_a_version_node_is_found_and_can_be_asked_for(check, compile_shared, names, tmp_path):
    (tmp_path / "map").write_text("libx.so.1 { global: cuda*; local: *; };\n", encoding="utf-8")
    library = compile_shared(TWO, "-shared", f"-Wl,--version-script={tmp_path}/map")
    rows = names("CUDA_HOOK(cudaMalloc, x)\nCUDA_HOOK(cudaFree, x)\n")
    code, lines = check("exports", library, rows)
    assert code == 1
    assert f"{library}: cudaMalloc carries version node libx.so.1, not none" in lines
    assert check("exports", library, rows, "--node", "libx.so.1") == (0, [])


def test_an_empty_list_is_an_error_of_its_own(check, compile_shared, names):
    assert check("exports", compile_shared(TWO), names("// nothing"))[0] == 2


# --- purity ---------------------------------------------------------------------------------------
def test_the_model_is_pure(check, build):
    if "SANITIZE:STRING=\n" not in (build / "CMakeCache.txt").read_text(encoding="utf-8"):
        pytest.skip("a sanitizer adds symbols of its own")
    assert check("pure", build / "src/model/libfs_model.a") == (0, [])


@pytest.mark.parametrize("source, expected", [
    ("#include <cstdlib>\nconst char* f() { return std::getenv(\"X\"); }\n", "environment: getenv"),
    ("#include <cstdio>\nvoid f() { std::fopen(\"x\", \"r\"); }\n", "files: fopen"),
    ("#include <iostream>\nvoid f() { std::cout << 1; }\n", "streams: std::cout"),
    ("#include <chrono>\nlong f() { return std::chrono::steady_clock::now().time_since_epoch().count(); }\n", "clocks: std::chrono::"),
    ("#include <cstdlib>\nint f() { return std::rand(); }\n", "randomness: rand"),
    ("#include <mutex>\nstd::mutex m;\nvoid f() { m.lock(); }\n", "threads: pthread_mutex_lock"),
    ("int count;\nint f() { return ++count; }\n", "writable data: count"),
    ("int f() { static int calls = 3; return ++calls; }\n", "writable data: _ZZ1fvE5calls"),
])
def test_an_impure_object_is_found(check, compile_shared, source, expected):
    code, lines = check("pure", compile_shared(source, "-c", suffix="o"))
    assert code == 1
    assert any(expected in line for line in lines), lines


def test_pure_code_passes(check, compile_shared):
    source = "#include <map>\n#include <string_view>\nconstexpr std::string_view kNames[] = {\"a\", \"b\"};\n" \
             "std::string_view f(int i) { std::map<int, int> m; m[i] = 1; return kNames[m[i]]; }\n"
    assert check("pure", compile_shared(source, "-c", suffix="o")) == (0, [])
