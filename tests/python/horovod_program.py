# SPDX-License-Identifier: Apache-2.0
"""A program written for Horovod. `python -m farandole.as_horovod` runs it."""

import support

support.need("numpy", "tensorflow", "keras")

import numpy as np
import tensorflow as tf

import horovod.tensorflow as hvd
from horovod.common.process_sets import global_process_set
from horovod.tensorflow.compression import Compression

hvd.init()
for gpu in tf.config.experimental.list_physical_devices("GPU"):
    tf.config.experimental.set_memory_growth(gpu, True)

random = np.random.default_rng(hvd.rank())
inputs = random.normal(size=(256, 4)).astype(np.float32)
targets = inputs @ np.array([[1.0], [2.0], [-1.0], [0.5]], np.float32)
dataset = tf.data.Dataset.from_tensor_slices((inputs, targets)).repeat().shuffle(256).batch(32)

model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
optimizer = tf.optimizers.SGD(0.05 * hvd.size())


@tf.function
def training_step(batch, expected, first_batch):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.math.squared_difference(model(batch, training=True), expected))
    tape = hvd.DistributedGradientTape(tape, compression=Compression.fp16, process_set=global_process_set)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    if first_batch:
        hvd.broadcast_variables(model.variables, root_rank=0)
        hvd.broadcast_variables(optimizer.variables, root_rank=0)
    return loss


for number, (batch, expected) in enumerate(dataset.take(200 // hvd.size())):
    loss = training_step(batch, expected, number == 0)

loss = hvd.allreduce(loss, name="final_loss").numpy()
kernels = hvd.allgather(tf.reshape(model.trainable_variables[0], [1, 4])).numpy()
assert loss < 1e-2, loss
assert (kernels == kernels[0]).all(), kernels
if hvd.rank() == 0:
    print(f"loss {loss:.2e} on {hvd.size()} ranks")
