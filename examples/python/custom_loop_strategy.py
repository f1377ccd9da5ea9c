# SPDX-License-Identifier: Apache-2.0
"""A training loop of TensorFlow with tf.distribute on Fashion-MNIST, on any number of ranks.

    farandole-run -np 2 python custom_loop_strategy.py                   about four minutes on two cores
    farandole-run -np 2 python custom_loop_strategy.py --steps 20        a quick look

This is the loop of TensorFlow's guide to distributed training; only the strategy is Farandole's.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import tensorflow as tf

from farandole.tensorflow import MirroredStrategy
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
            layers.Dense(128, activation="relu"),
            layers.Dense(10),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=0, help="training steps of an epoch; 0 for all images")
    parser.add_argument("--batch-size", type=int, default=128, help="images of all ranks together")
    parser.add_argument("--data-dir", type=Path, default=DATA)
    options = parser.parse_args()

    strategy = MirroredStrategy()
    tf.keras.utils.set_random_seed(1)
    images, labels = load(options.data_dir, "train")
    dataset = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(len(images))
    dataset = dataset.batch(options.batch_size, drop_remainder=True).take(options.steps or -1).prefetch(2)
    test = tf.data.Dataset.from_tensor_slices(load(options.data_dir, "t10k")).batch(500)
    with strategy.scope():
        model = make_model()
        optimizer = tf.keras.optimizers.Adam(0.001)
        optimizer.build(model.trainable_variables)
        accuracy = tf.keras.metrics.SparseCategoricalAccuracy()
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=None)

    def replica_step(batch, expected):
        with tf.GradientTape() as tape:
            losses = loss_of(expected, model(batch, training=True))
            # Gradients are summed over the ranks, so each rank divides by the size of the global batch.
            loss = tf.nn.compute_average_loss(losses, global_batch_size=options.batch_size)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    @tf.function
    def train(batch):
        return strategy.reduce("SUM", strategy.run(replica_step, args=batch), axis=None)

    @tf.function
    def evaluate(batch):
        def replica_test(images, expected):
            accuracy.update_state(expected, model(images, training=False))

        strategy.run(replica_test, args=batch)

    for epoch in range(options.epochs):
        began = time.perf_counter()
        losses = [train(batch) for batch in strategy.experimental_distribute_dataset(dataset)]
        seconds = time.perf_counter() - began
        accuracy.reset_state()
        for batch in strategy.experimental_distribute_dataset(test):
            evaluate(batch)
        tested = float(accuracy.result())  # over the images of all ranks
        if strategy.cluster_resolver.task_id == 0:
            rate = len(losses) * options.batch_size / seconds
            loss = np.mean([value.numpy() for value in losses])
            print(f"epoch {epoch + 1}: loss {loss:.4f}, test accuracy {100 * tested:.2f} %, {rate:.0f} images/s")


if __name__ == "__main__":
    main()
