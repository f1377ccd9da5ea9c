#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: [mpirun -np 2] keras_small_step.py [--epochs N]

Time of a training step of Keras's fit on a model that computes next to nothing, batches of 32 rows in all: what a step
costs besides computing. Rank 0 prints median and minimum over the epochs, with steps_per_execution 1 and 16.
"""
import argparse
import os
import statistics
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras  # noqa: E402
import numpy as np  # noqa: E402

import farandole.tensorflow as fd  # noqa: E402

STEPS, BATCH = 512, 32


class EpochTimes(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.milliseconds = []

    def on_epoch_begin(self, epoch, logs=None):
        self.begin = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        self.milliseconds.append((time.perf_counter() - self.begin) * 1e3 / STEPS)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=8)
    options = parser.parse_args()
    fd.init()
    strategy = fd.MirroredStrategy()
    inputs = np.random.default_rng(1).normal(size=(STEPS * BATCH, 8)).astype(np.float32)
    targets = inputs[:, :1]
    for per_execution in (1, 16):
        with strategy.scope():
            model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
            model.compile(keras.optimizers.SGD(0.01), "mse", steps_per_execution=per_execution)
        times = EpochTimes()
        model.fit(inputs, targets, batch_size=BATCH, epochs=options.epochs + 1, verbose=0, callbacks=[times])
        measured = times.milliseconds[1:]  # the first traces
        if fd.rank() == 0:
            for which, value in (("median", statistics.median(measured)), ("minimum", min(measured))):
                print(f"step, {fd.size()} ranks, steps_per_execution={per_execution}, {which}\t{value:.3f} ms", flush=True)


if __name__ == "__main__":
    main()
