# SPDX-License-Identifier: Apache-2.0
"""Batch normalisation with statistics over all ranks."""

import inspect
from typing import Any, Tuple

import tensorflow as tf

from .. import _lifecycle, errors
from .._engine import Sum
from . import mpi_ops

# tf-keras, which TF_USE_LEGACY_KERAS selects, has a fused implementation and a different signature.
_IS_LEGACY = "keep_dims" in inspect.signature(tf.keras.layers.BatchNormalization._moments).parameters


class SyncBatchNormalization(tf.keras.layers.BatchNormalization):
    """`tf.keras.layers.BatchNormalization` that computes mean and variance over the batches of all ranks in training.

    Ranks are weighted by their numbers of samples, so batches may differ in size or be empty. Arguments are those of
    the base class. Raises InvalidArgument for fused=True and synchronized=True. Does not support `renorm` and
    `virtual_batch_size`.

    Collective in training: one small allreduce per call of the layer.
    """

    def __init__(self, fused: bool = False, **kwargs: Any):
        if fused or fused is None:
            raise errors.InvalidArgument("SyncBatchNormalization has no fused form; leave fused at False")
        if kwargs.get("synchronized"):
            raise errors.InvalidArgument("SyncBatchNormalization synchronises by itself; leave out synchronized=True")
        if kwargs.get("name") is None:
            kwargs["name"] = "sync_batch_normalization"
        if _IS_LEGACY:
            kwargs["fused"] = False
        super().__init__(**kwargs)

    def _moments(self, inputs: tf.Tensor, *args: Any, **kwargs: Any) -> Tuple[tf.Tensor, tf.Tensor]:
        mean, variance = super()._moments(inputs, *args, **kwargs)
        if _lifecycle.size() == 1:
            return mean, variance
        position = 2 if _IS_LEGACY else 0
        mask = args[position] if len(args) > position else kwargs.get("mask")
        samples = tf.cast(tf.size(inputs) / tf.size(mean), mean.dtype)
        if mask is not None:
            samples *= tf.reduce_mean(tf.cast(mask, mean.dtype))
        # Mean and variance of an empty batch are NaN. The batch has weight zero.
        sums = [
            tf.reshape(tf.math.multiply_no_nan(part, samples), [-1]) for part in (mean, variance + tf.math.square(mean))
        ]
        total = mpi_ops._allreduce(tf.concat([*sums, [samples]], axis=0), op=Sum)
        count = tf.size(mean)
        all_mean = tf.reshape(total[:count] / total[-1], tf.shape(mean))
        all_square = tf.reshape(total[count:-1] / total[-1], tf.shape(mean))
        return all_mean, tf.maximum(all_square - tf.math.square(all_mean), 0)
