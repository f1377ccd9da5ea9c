# SPDX-License-Identifier: Apache-2.0
"""A training loop of TensorFlow on Fashion-MNIST, on any number of ranks.

    farandole-run -np 2 python tf2_custom_loop.py                  about two minutes on two cores
    farandole-run -np 2 python tf2_custom_loop.py --steps 20       a quick look

The four numbered lines make the program parallel; without them one process trains.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import tensorflow as tf

import farandole.tensorflow as hvd  # 1: before TensorFlow creates its first tensor
from fashion_mnist import DATA, load


def make_model() -> tf.keras.Model:
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            layers.Dense(10),
        ]
    )
    model.build((None, 28, 28, 1))
    return model


def accuracy(model: tf.keras.Model, images: np.ndarray, labels: np.ndarray) -> float:
    """Return the share of correctly classified images over all ranks; each rank classifies its part."""
    mine = slice(hvd.rank(), None, hvd.size())
    predict = tf.function(lambda batch: tf.argmax(model(batch, training=False), axis=1))
    right = sum(
        int(np.sum(predict(tf.constant(batch)).numpy() == expected))
        for batch, expected in zip(np.array_split(images[mine], 20), np.array_split(labels[mine], 20))
    )
    return hvd.allreduce(tf.constant(float(right)), op=hvd.Sum).numpy() / len(images)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=0, help="training steps of an epoch; 0 for all images")
    parser.add_argument("--global-batch", type=int, default=128, help="images of all ranks together")
    parser.add_argument("--data-dir", type=Path, default=DATA)
    options = parser.parse_args()

    hvd.init()  # 2
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:  # each process sees its own
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
    tf.keras.utils.set_random_seed(1)
    images, labels = load(options.data_dir, "train")
    test = load(options.data_dir, "t10k")
    model = make_model()
    optimizer = tf.keras.optimizers.Adam(0.001)
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    hvd.broadcast_variables(model.variables, root_rank=0)  # 3: the same initial values on all ranks

    @tf.function
    def train(batch, expected):
        with tf.GradientTape() as tape:
            loss = loss_of(expected, model(batch, training=True))
        tape = hvd.DistributedGradientTape(tape)  # 4: gradients are averages over the ranks
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    per_rank = options.global_batch // hvd.size()
    steps = options.steps or len(images) // options.global_batch
    for epoch in range(options.epochs):
        order = np.random.default_rng(epoch).permutation(len(images))  # the same on all ranks
        began, total = time.perf_counter(), 0.0
        for step in range(steps):
            begin = step * options.global_batch + hvd.rank() * per_rank
            chosen = order[begin : begin + per_rank]
            total += train(tf.constant(images[chosen]), tf.constant(labels[chosen])).numpy()
        seconds = time.perf_counter() - began
        loss = hvd.allreduce(tf.constant(total / steps)).numpy()
        tested = accuracy(model, *test)
        if hvd.rank() == 0:
            rate = steps * per_rank * hvd.size() / seconds
            print(f"epoch {epoch + 1}: loss {loss:.4f}, test accuracy {100 * tested:.2f} %, {rate:.0f} images/s")


if __name__ == "__main__":
    main()
