"""numba-cuda: arrays of every kind, a kernel, and the end of its context."""
import numpy
from numba import cuda

cuda.get_current_device()
data = cuda.to_device(numpy.arange(1000, dtype=numpy.float32))
empty = cuda.device_array(2000, dtype=numpy.float64)
pinned = cuda.pinned_array(512, dtype=numpy.uint8)
managed = cuda.managed_array(300, dtype=numpy.float32)


@cuda.jit
def add(values):
    place = cuda.grid(1)
    if place < values.size:
        values[place] += 1


add[4, 256](data)
assert data.copy_to_host().shape == (1000,)
stream = cuda.stream()
cuda.event().record(stream)
stream.synchronize()
del data, empty, pinned, managed
cuda.close()
print("done")
