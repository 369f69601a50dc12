"""`fragscope run --gpu …` with other tenants, errors by script and answers of the user's own; CUDA is
called through ctypes."""

import json
import sys

import pytest

PRELUDE = """
import ctypes, sys
cuda = ctypes.CDLL("libcudart.so." + sys.argv[1])
def malloc(size):
    pointer = ctypes.c_void_p()
    return cuda.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(size))
def free_bytes():
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert cuda.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)) == 0
    return free.value
"""
ECC = 214


@pytest.fixture
def major(build):
    libraries = sorted((build / "lib/fragscope/sim").glob("libcudart.so.*"))
    if not libraries:
        pytest.skip("built without CUDA headers")
    return libraries[-1].name.rpartition(".")[2]


@pytest.fixture
def run(fragscope, major, tmp_path):
    def call(code, *options, gpu="1GiB", quiet=True):
        script = tmp_path / "script.py"
        script.write_text(PRELUDE + code)
        return fragscope("run", *(["-q"] if quiet else []), "--gpu", gpu, *options, "-o", tmp_path / "run.fsr", "--", sys.executable,
                         script, major)

    return call


def test_other_tenants_leave_less(run):
    done = run("print(free_bytes(), malloc(700 << 20), malloc(600 << 20))", "--gpu-used", "384MiB")
    assert done.stdout.split() == [str(640 << 20).encode(), b"2", b"0"], done.stderr


@pytest.mark.parametrize("size", ["1GiB", "2GiB", "much", "-1"])
def test_tenants_that_do_not_fit_are_refused(run, size):
    done = run("", f"--gpu-used={size}")
    assert done.returncode == 2 and b"--gpu-used" in done.stderr and not done.stdout


def test_the_third_allocation_fails(run, tmp_path):
    rows = tmp_path / "faults.txt"
    rows.write_text("# out of memory once\ncudaMalloc 3 fail CUDA_ERROR_OUT_OF_MEMORY\n")
    done = run("print(*(malloc(1 << 20) for _ in range(5)))", "--sim-script", rows)
    assert done.stdout.split() == [b"0", b"0", b"2", b"0", b"0"], done.stderr


def test_a_lost_device_stays_lost(run, tmp_path):
    rows = tmp_path / "faults.txt"
    rows.write_text("cudaMalloc 2 lost CUDA_ERROR_ECC_UNCORRECTABLE\n")
    done = run("print(malloc(1), malloc(1), malloc(1), cuda.cudaDeviceSynchronize())", "--sim-script", rows)
    assert done.stdout.split() == [b"0"] + 3 * [str(ECC).encode()], done.stderr


@pytest.mark.parametrize("option", ["--sim-script", "--sim-answers"])
def test_files_that_mean_nothing_are_refused_with_their_line(run, tmp_path, option):
    rows = tmp_path / "rows.txt"
    rows.write_text("# fine\nnonsense\n")
    done = run("print('ran')", option, rows)
    assert done.returncode == 2 and f"{rows}:2: ".encode() in done.stderr and not done.stdout
    missing = run("print('ran')", option, tmp_path / "missing.txt")
    assert missing.returncode == 2 and b"missing.txt: cannot be read" in missing.stderr


BUSY = """
driver = ctypes.CDLL("libcuda.so.1")
malloc(1)
module, kernel, stream, other = (ctypes.c_void_p() for _ in range(4))
event, early, late = (ctypes.c_void_p() for _ in range(3))
assert driver.cuModuleLoadData(ctypes.byref(module), b"") == 0
assert driver.cuModuleGetFunction(ctypes.byref(kernel), module, b"k") == 0
for made in (stream, other):
    assert driver.cuStreamCreate(ctypes.byref(made), 1) == 0
for made in (early, event, late):
    assert driver.cuEventCreate(ctypes.byref(made), 0) == 0
def launch(on):
    return driver.cuLaunchKernel(kernel, *6 * [1], 0, on, None, None)
"""
NOT_READY = 600


def test_kernels_keep_their_stream_busy(run):
    code = BUSY + """
assert driver.cuEventRecord(early, stream) == 0
assert [launch(stream), launch(stream)] == [0, 0]
assert driver.cuEventRecord(event, stream) == 0
print(driver.cuEventQuery(early), driver.cuEventQuery(event), driver.cuStreamQuery(stream), driver.cuStreamQuery(other))
assert driver.cuStreamWaitEvent(other, event, 0) == 0
assert driver.cuEventRecord(late, other) == 0
print(driver.cuStreamQuery(other), driver.cuEventQuery(late), driver.cuStreamSynchronize(None))
print(driver.cuEventElapsedTime(ctypes.byref(ctypes.c_float()), early, event))
"""
    done = run(code, "--sim-kernel-us", str(10**9))  # longer than any test
    wanted = [0, NOT_READY, NOT_READY, 0, NOT_READY, NOT_READY, 0, NOT_READY]
    assert [int(word) for word in done.stdout.split()] == wanted, done.stderr


@pytest.mark.parametrize("wait", ["cuStreamSynchronize(stream)", "cuEventSynchronize(event)", "cuCtxSynchronize()"])
def test_calls_that_wait_return_when_the_kernels_are_done(run, fragscope, tmp_path, wait):
    code = BUSY + f"""
assert [launch(stream), launch(stream)] == [0, 0]
assert driver.cuEventRecord(event, stream) == 0
print(driver.{wait}, driver.cuEventQuery(event), driver.cuStreamQuery(stream))
"""
    done = run(code, "--sim-kernel-us", "2000")
    assert done.stdout.split() == [b"0", b"0", b"0"], done.stderr
    notes = json.loads(fragscope("info", "--json", tmp_path / "run.fsr", check=True).stdout)["run"]["notes"]
    assert notes["simulation.kernel_us"] == "2000 (assumed)"


def test_without_the_option_work_is_done_when_it_is_issued(run):
    code = BUSY + "print(launch(stream), driver.cuEventRecord(event, stream), driver.cuEventQuery(event))"
    assert run(code).stdout.split() == [b"0", b"0", b"0"]


@pytest.mark.parametrize("value", ["0", "3600000001", "much"])
def test_kernel_times_that_mean_nothing_are_refused(run, value):
    done = run("print('ran')", f"--sim-kernel-us={value}")
    assert done.returncode == 2 and b"--sim-kernel-us" in done.stderr and not done.stdout


@pytest.mark.parametrize("option", ["--sim-script", "--sim-answers", "--gpu-used", "--sim-kernel-us"])
def test_options_of_the_simulation_need_one(fragscope, option):
    done = fragscope("run", option, "1" if option == "--sim-kernel-us" else "1GiB", "--", "true")
    assert done.returncode == 2 and b"needs a simulated device" in done.stderr


def test_reads_of_computed_values_are_counted(run, fragscope, tmp_path):
    code = """
value, pointer = ctypes.c_int(7), ctypes.c_void_p()
cuda.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(4))
print(cuda.cudaMemcpy(ctypes.byref(value), pointer, ctypes.c_size_t(4), 2), value.value)
"""
    done = run(code)
    assert done.stdout.split() == [b"0", b"0"], done.stderr
    notes = json.loads(fragscope("info", "--json", tmp_path / "run.fsr", check=True).stdout)["run"]["notes"]
    assert notes["simulation.answered_values"] == "zero 1"
    assert b"--sim-answers" not in done.stderr


def test_a_command_that_fails_is_told_of_zeros_it_read(run):
    code = """
value, pointer = ctypes.c_int(7), ctypes.c_void_p()
cuda.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(4))
cuda.cudaMemcpy(ctypes.byref(value), pointer, ctypes.c_size_t(4), 2)
1 // value.value
"""
    done = run(code, quiet=False)
    assert done.returncode == 1 and b"gave zeros (1); if that is why the command failed" in done.stderr
