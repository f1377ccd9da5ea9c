# SPDX-License-Identifier: Apache-2.0
"""Patch of batch normalisation: statistics over the unmasked rows of all ranks.

Keras computes the statistics of unmasked rows from this replica's rows alone, even with synchronized=True.
"""

from typing import Any, Callable, Tuple

import tensorflow as tf

from ._context import own_context


def moments(base: Callable[..., Any], self: Any, inputs: Any, mask: Any) -> Tuple[Any, Any]:
    """BatchNormalization._moments: mean and variance, by Keras'
    formulas, of the rows that are not masked on any rank."""
    context = own_context()
    if context is None or mask is None or not self.synchronized:
        return base(self, inputs, mask)
    import keras

    axes, epsilon = self._reduction_axes, keras.config.epsilon()
    is_kept = tf.broadcast_to(tf.cast(tf.expand_dims(mask, -1), tf.bool), tf.shape(inputs))

    def own_sum(values: Any) -> Any:
        return tf.reduce_sum(tf.where(is_kept, values, 0), axes, keepdims=True)

    total, count = context.all_reduce("SUM", [own_sum(inputs), own_sum(tf.ones_like(inputs))])
    mean = total / (count + epsilon)
    variance = context.all_reduce("SUM", own_sum(tf.square(inputs - mean))) / (count + epsilon)
    return tf.squeeze(mean), tf.squeeze(variance)
