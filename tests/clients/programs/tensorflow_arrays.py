"""TensorFlow: exports trampolines of its own for every CUDA function."""
import tensorflow as tf

assert tf.config.list_physical_devices("GPU"), "no GPU"
with tf.device("/GPU:0"):
    constant = tf.constant([[1.0, 2.0], [3.0, 4.0]])
    variable = tf.Variable(tf.zeros([256, 256]))
    total = constant + 1.0
assert "GPU:0" in total.device and variable.shape == (256, 256)
print("done")
