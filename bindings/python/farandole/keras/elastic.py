# SPDX-License-Identifier: Apache-2.0
"""Horovod's elastic names for Keras: those of farandole.tensorflow.keras.elastic."""

from ..tensorflow.keras.elastic import (
    CommitStateCallback,
    KerasState,
    UpdateBatchStateCallback,
    UpdateEpochStateCallback,
    run,
)

__all__ = ["CommitStateCallback", "KerasState", "UpdateBatchStateCallback", "UpdateEpochStateCallback", "run"]
