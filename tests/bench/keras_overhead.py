#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: mpirun -np 2 keras_overhead.py

The share of a training step of Keras that is not this rank's computing: keras.applications.ResNet50 on random images of
64 x 64, 32 of all ranks together. The same step is taken with MirroredStrategy and by each rank for itself, by turns,
in the same processes. Rank 0 prints the medians and the share.
"""
import argparse
import os
import statistics
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

import farandole.tensorflow as fd  # noqa: E402


def make_model():
    model = keras.applications.ResNet50(weights=None, input_shape=(64, 64, 3), classes=1000)
    model.compile(keras.optimizers.SGD(0.01), keras.losses.SparseCategoricalCrossentropy())
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch-size", type=int, default=32, help="images of all ranks together")
    parser.add_argument("--rounds", type=int, default=8, help="turns of each")
    parser.add_argument("--steps", type=int, default=3, help="training steps of a turn")
    options = parser.parse_args()

    fd.init()
    # Each rank takes its share of the cores: more threads than cores would wait for each other.
    tf.config.threading.set_intra_op_parallelism_threads(max(1, len(os.sched_getaffinity(0)) // fd.local_size()))
    with fd.MirroredStrategy().scope():
        together = make_model()
    alone = make_model()
    random = np.random.default_rng(fd.rank())
    rows = options.batch_size // fd.size()
    x, y = random.random((rows, 64, 64, 3), np.float32), random.integers(0, 1000, rows)

    def seconds_per_step(model, steps):
        fd.barrier()
        began = time.perf_counter()
        for _ in range(steps):
            model.train_on_batch(x, y)
        return (time.perf_counter() - began) / steps

    times = {together: [], alone: []}
    for turn in range(options.rounds + 1):
        for model, samples in times.items():
            seconds = seconds_per_step(model, options.steps)
            if turn > 0:  # the first one traces
                samples.append(seconds)
    # Times of all ranks, because a rank that computes slowly keeps its peers waiting.
    own = [statistics.median(times[model]) for model in (together, alone)]
    everyone = np.array(fd.allgather_object(own))
    if fd.rank() == 0:
        with_averaging, without = everyone.mean(axis=0)
        print(f"training step, averaged  {with_averaging * 1e3:.1f} ms")
        print(f"training step, each rank alone  {without * 1e3:.1f} ms, by rank {np.round(everyone[:, 1] * 1e3, 1)}")
        print(f"share that is not computing  {100 * (1 - without / with_averaging):.1f} %", flush=True)


if __name__ == "__main__":
    main()
