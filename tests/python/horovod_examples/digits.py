# SPDX-License-Identifier: Apache-2.0
"""Images for the examples of this folder: ten classes, each with a bright patch in a different place."""

import numpy as np

SIDE = 14


def load(count, seed):
    """Images of shape (count, 14, 14, 1), float32 from 0 to 1, and their classes, int64."""
    random = np.random.default_rng(seed)
    classes = random.integers(0, 10, count)
    images = random.uniform(0, 0.3, (count, SIDE, SIDE, 1)).astype(np.float32)
    for image, label in zip(images, classes):
        row, column = divmod(int(label), 4)
        image[1 + 4 * row : 4 + 4 * row, 1 + 3 * column : 4 + 3 * column] += 0.7
    return images, classes.astype(np.int64)
