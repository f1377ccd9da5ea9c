# SPDX-License-Identifier: Apache-2.0
"""Keras' fit on Fashion-MNIST, on any number of ranks.

    farandole-run -np 2 python keras_fit.py                         a minute or two on two cores
    farandole-run -np 2 python keras_fit.py --epochs 1 --steps 20    a quick look

The three numbered lines make the program parallel; without them one process trains.
"""

import argparse
import math
from pathlib import Path

import keras

import farandole.tensorflow as farandole  # 1
from fashion_mnist import DATA, load


def make_model(training_steps: int) -> keras.Model:
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
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
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    learning_rate = keras.optimizers.schedules.CosineDecay(0.003, training_steps)
    model.compile(optimizer=keras.optimizers.Adam(learning_rate), loss=loss, metrics=["accuracy"])
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=0, help="training steps of an epoch; 0 for all images")
    parser.add_argument("--batch-size", type=int, default=128, help="images of all ranks together")
    parser.add_argument("--samples", type=int, default=0, help="images to train and test with; 0 for all")
    parser.add_argument("--data-dir", type=Path, default=DATA)
    options = parser.parse_args()

    keras.utils.set_random_seed(1)
    images, labels = load(options.data_dir, "train", options.samples)
    if options.steps:
        images, labels = (array[: options.steps * options.batch_size] for array in (images, labels))
    test = load(options.data_dir, "t10k", options.samples)
    strategy = farandole.MirroredStrategy()  # 2
    with strategy.scope():  # 3
        model = make_model(options.epochs * math.ceil(len(images) / options.batch_size))
    model.fit(images, labels, batch_size=options.batch_size, epochs=options.epochs)
    loss, accuracy = model.evaluate(*test, batch_size=options.batch_size, verbose=0)
    print(f"test loss {loss:.4f}, test accuracy {100 * accuracy:.2f} %")


if __name__ == "__main__":
    main()
