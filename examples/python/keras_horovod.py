# SPDX-License-Identifier: Apache-2.0
"""Keras' fit with Horovod's API on Fashion-MNIST, on any number of ranks.

    farandole-run -np 2 python keras_horovod.py                          about five minutes on two cores
    farandole-run -np 2 python keras_horovod.py --epochs 1 --steps 20    a quick look
    TF_USE_LEGACY_KERAS=1 farandole-run -np 2 python keras_horovod.py    the same on tf-keras

The program is written for Horovod; only the import differs.
"""

import argparse
from pathlib import Path

import numpy as np
import tensorflow as tf

import farandole.tensorflow.keras as hvd
from fashion_mnist import DATA, load


def make_model() -> tf.keras.Model:
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            tf.keras.Input((28, 28, 1)),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dropout(0.25),
            layers.Dense(128, activation="relu"),
            layers.Dense(10),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=0, help="training steps of an epoch; 0 for all images")
    parser.add_argument("--batch-size", type=int, default=64, help="images of each rank")
    parser.add_argument("--samples", type=int, default=0, help="images to train and test with; 0 for all")
    parser.add_argument("--data-dir", type=Path, default=DATA)
    options = parser.parse_args()

    hvd.init()
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:  # each process sees its own
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
    images, labels = load(options.data_dir, "train", options.samples)
    # Each rank trains with its own part of the data, of the same size on all ranks, and shuffles this part itself.
    rows = len(images) // hvd.size()
    if options.steps:
        rows = min(rows, options.steps * options.batch_size)
    mine = slice(hvd.rank(), rows * hvd.size(), hvd.size())
    test = load(options.data_dir, "t10k", options.samples)

    model = make_model()
    rate = 0.001 * hvd.size() ** 0.5
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.Adam(rate))
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=optimizer, loss=loss, metrics=["accuracy"])
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        hvd.callbacks.LearningRateWarmupCallback(initial_lr=rate, warmup_epochs=1),
    ]
    model.fit(
        images[mine],
        labels[mine],
        batch_size=options.batch_size,
        epochs=options.epochs,
        callbacks=callbacks,
        verbose=2 if hvd.rank() == 0 else 0,
    )
    # Accuracy over a part of the test images on each rank, and then over all test images.
    part = slice(hvd.rank(), None, hvd.size())
    _, accuracy = model.evaluate(test[0][part], test[1][part], verbose=0)
    count = len(test[0][part])
    right, total = hvd.allreduce(np.array([accuracy * count, count]), op=hvd.Sum)
    if hvd.rank() == 0:
        print(f"test accuracy {100 * right / total:.2f} %")


if __name__ == "__main__":
    main()
