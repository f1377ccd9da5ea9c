# SPDX-License-Identifier: Apache-2.0
"""Callbacks with the names of `horovod.keras.callbacks`, imported from farandole.tensorflow.keras.callbacks."""

from typing import Any

from ..tensorflow.keras import callbacks as _callbacks
from ..tensorflow.keras.callbacks import *  # noqa: F401, F403
from ..tensorflow.keras.callbacks import __all__  # noqa: F401


class BestModelCheckpoint(_callbacks.BestModelCheckpoint):
    """farandole.tensorflow.keras.callbacks.BestModelCheckpoint without `save_weights_only`, as in Horovod."""

    def __init__(self, monitor: str = "val_loss", verbose: int = 0, mode: str = "auto", save_freq: Any = "epoch"):
        super().__init__(monitor, verbose, False, mode, save_freq)
