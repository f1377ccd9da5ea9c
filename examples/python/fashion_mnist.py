# SPDX-License-Identifier: Apache-2.0
"""Fashion-MNIST for the examples, from the files of Debian's package dataset-fashion-mnist."""

import gzip
from pathlib import Path

import numpy as np

# The directory of the package's files.
DATA = Path("/usr/share/datasets/fashion-mnist")


def read_idx(path: Path) -> np.ndarray:
    """Read an array from a file in IDX format. Byte 3 is the type (8: bytes), byte 4 the number of dimensions."""
    if not path.exists():
        raise SystemExit(
            f"{path}: no such file. Install Fashion-MNIST with `apt-get install dataset-fashion-mnist`, or name the "
            "directory of its four IDX files with --data-dir"
        )
    with gzip.open(path) as file:
        content = file.read()
    dimensions = content[3]
    shape = np.frombuffer(content, ">i4", dimensions, offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def load(directory: Path, name: str, samples: int = 0):
    """Return images as floats of shape (n, 28, 28, 1) from 0 to 1, and labels.

    name: train or t10k; samples: number of samples, 0 for all.
    """
    images = read_idx(directory / f"{name}-images-idx3-ubyte.gz")[: samples or None]
    labels = read_idx(directory / f"{name}-labels-idx1-ubyte.gz")[: samples or None]
    return images[..., np.newaxis].astype(np.float32) / 255, labels.astype(np.int64)
