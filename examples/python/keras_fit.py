"""Keras' fit on Fashion-MNIST, on any number of ranks.

    mpirun -np 2 python keras_fit.py                         a minute or two on two cores
    mpirun -np 2 python keras_fit.py --epochs 1 --samples 2560    a quick look

The three numbered lines make it parallel; without them it trains alone.
"""

import argparse
import gzip
from pathlib import Path

import keras
import numpy as np

import farandole.tensorflow as farandole  # 1

# Where Debian's package dataset-fashion-mnist puts its files.
DATA = Path("/usr/share/datasets/fashion-mnist")


def read_idx(path: Path) -> np.ndarray:
    """An array from a file of the IDX format: its third byte says the type (8: bytes), its fourth the dimensions."""
    with gzip.open(path) as file:
        content = file.read()
    dimensions = content[3]
    shape = np.frombuffer(content, ">i4", dimensions, offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def load(directory: Path, name: str, samples: int):
    """Images as floats of shape (n, 28, 28, 1) from 0 to 1, and labels. samples: how many; 0 for all."""
    images = read_idx(directory / f"{name}-images-idx3-ubyte.gz")[: samples or None]
    labels = read_idx(directory / f"{name}-labels-idx1-ubyte.gz")[: samples or None]
    return images[..., np.newaxis].astype(np.float32) / 255, labels.astype(np.int64)


def make_model() -> keras.Model:
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
    model.compile(optimizer=keras.optimizers.Adam(0.002), loss=loss, metrics=["accuracy"])
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=128, help="images of all ranks together")
    parser.add_argument("--samples", type=int, default=0, help="images to train and test with; 0 for all")
    parser.add_argument("--data-dir", type=Path, default=DATA)
    options = parser.parse_args()

    keras.utils.set_random_seed(1)
    images, labels = load(options.data_dir, "train", options.samples)
    test = load(options.data_dir, "t10k", options.samples)
    strategy = farandole.MirroredStrategy()  # 2
    with strategy.scope():  # 3
        model = make_model()
    model.fit(images, labels, batch_size=options.batch_size, epochs=options.epochs, verbose=2)
    loss, accuracy = model.evaluate(*test, batch_size=options.batch_size, verbose=0)
    print(f"test loss {loss:.4f}, test accuracy {100 * accuracy:.2f} %")


if __name__ == "__main__":
    main()
