"""JAX: XLA finds CUDA by dlopen and dlsym alone. There is no /dev/nvidia* for it to look for."""
import jax
from jax._src import hardware_utils

hardware_utils.has_visible_nvidia_gpu = lambda: True

import jax.numpy as jnp  # noqa: E402

(device,) = jax.devices()
assert device.platform == "gpu", device
values = jax.device_put(jnp.ones((256, 256), jnp.float32))
result = jax.jit(lambda a: jnp.sin(a) + a * 2)(values)
result.block_until_ready()
assert result.shape == (256, 256)
print("done")
