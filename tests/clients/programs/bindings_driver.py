"""cuda-python's driver bindings: they find each function by cuGetProcAddress at the first call."""
from cuda.bindings import driver as cu


def ok(answer):
    assert int(answer[0]) == 0, answer
    return answer[1] if len(answer) == 2 else answer[1:]


PAGE = 2 << 20
ok(cu.cuInit(0))
device = ok(cu.cuDeviceGet(0))
ok(cu.cuCtxSetCurrent(ok(cu.cuDevicePrimaryCtxRetain(device))))
plain = ok(cu.cuMemAlloc(1000))
ordered = ok(cu.cuMemAllocAsync(5000, cu.CUstream(0)))
managed = ok(cu.cuMemAllocManaged(700, 1))
pinned = ok(cu.cuMemHostAlloc(4096, 0))
about = cu.CUDA_ARRAY_DESCRIPTOR()
about.Width, about.Height, about.NumChannels = 64, 8, 1
about.Format = cu.CUarray_format.CU_AD_FORMAT_FLOAT
ok(cu.cuArrayDestroy(ok(cu.cuArrayCreate(about))))
properties = cu.CUmemAllocationProp()
properties.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
properties.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
handle = ok(cu.cuMemCreate(PAGE, properties, 0))
range_ = ok(cu.cuMemAddressReserve(2 * PAGE, 0, 0, 0))
ok(cu.cuMemMap(range_, PAGE, 0, handle, 0))
ok(cu.cuMemUnmap(range_, PAGE))
ok(cu.cuMemRelease(handle))
ok(cu.cuMemAddressFree(range_, 2 * PAGE))
assert int(cu.cuMemAlloc(1 << 50)[0]) == 2
free, total = ok(cu.cuMemGetInfo())
assert 0 < free < total
ok(cu.cuMemFree(plain))
ok(cu.cuMemFreeAsync(ordered, cu.CUstream(0)))
ok(cu.cuMemFree(managed))
ok(cu.cuMemFreeHost(pinned))
ok(cu.cuDevicePrimaryCtxRelease(device))
print("done")
