# SPDX-License-Identifier: Apache-2.0
"""Images per second with random images, as a benchmark measures them."""

import argparse
import timeit

import numpy as np
import tensorflow as tf

import horovod.tensorflow as hvd

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
parser.add_argument("--fp16-allreduce", action="store_true", help="gradients travel in 16 bits")
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--num-warmup-batches", type=int, default=2)
parser.add_argument("--num-batches-per-iter", type=int, default=2)
parser.add_argument("--num-iters", type=int, default=2)
arguments = parser.parse_args()

hvd.init()
model = tf.keras.Sequential(
    [
        *[tf.keras.layers.Conv2D(8 * width, 3, strides=2, activation="relu") for width in (1, 2, 4)],
        tf.keras.layers.GlobalAveragePooling2D(),
        tf.keras.layers.Dense(10, activation="softmax"),
    ]
)
optimizer = tf.optimizers.SGD(0.01)
data = tf.random.uniform([arguments.batch_size, 32, 32, 3])
target = tf.random.uniform([arguments.batch_size, 1], minval=0, maxval=9, dtype=tf.int64)
compression = hvd.Compression.fp16 if arguments.fp16_allreduce else hvd.Compression.none


@tf.function
def benchmark_step(is_first):
    with tf.GradientTape() as tape:
        loss = tf.losses.SparseCategoricalCrossentropy()(target, model(data, training=True))
    tape = hvd.DistributedGradientTape(tape, compression=compression)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    if is_first:
        hvd.broadcast_variables(model.variables, root_rank=0)


def log(text):
    if hvd.rank() == 0:
        print(text)


benchmark_step(is_first=True)
timeit.timeit(lambda: benchmark_step(is_first=False), number=arguments.num_warmup_batches)
rates = []
for number in range(arguments.num_iters):
    seconds = timeit.timeit(lambda: benchmark_step(is_first=False), number=arguments.num_batches_per_iter)
    rates.append(arguments.batch_size * arguments.num_batches_per_iter / seconds)
    log(f"iteration {number}: {rates[-1]:.1f} images/s of each rank")
log(f"all {hvd.size()} ranks: {hvd.size() * np.mean(rates):.1f} +- {hvd.size() * 1.96 * np.std(rates):.1f} images/s")
