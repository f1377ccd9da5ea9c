# SPDX-License-Identifier: Apache-2.0
"""IndexedSlices of all ranks, as an optimizer of one process would see them.

The rows of words that are in a batch come once for each place where the word is, and Keras' optimizers square each of
them: those of all ranks are put one behind the other. But rows that do not come from the data, as those of positions
do, come once for a batch: there each rank has a part of every row, and they are summed up.
"""

from typing import Any, Optional

import tensorflow as tf

from ... import _lifecycle
from .. import mpi_ops
from ._graph import depends_on_data


def marked(gradient: Any) -> Optional[tf.IndexedSlices]:
    """The slices, with indices that say at what place of the slices each row is; None if they need not be summed up.

    Collective in eager mode.
    """
    if not isinstance(gradient, tf.IndexedSlices) or gradient.dense_shape is None or _differ(gradient.indices):
        return None
    places = tf.range(tf.size(gradient.indices, out_type=tf.int64))
    indices = places * _rows_of_variable(gradient) + tf.cast(gradient.indices, tf.int64)
    return tf.IndexedSlices(gradient.values, indices, gradient.dense_shape)


def summed(gathered: tf.IndexedSlices, like: tf.IndexedSlices) -> tf.IndexedSlices:
    """What `marked` gave, gathered from all ranks: one row for each place and index, the sum of the ranks' rows."""
    keys, numbers = tf.unique(gathered.indices)
    values = tf.math.unsorted_segment_sum(gathered.values, numbers, tf.size(keys))
    return tf.IndexedSlices(values, tf.cast(keys % _rows_of_variable(like), like.indices.dtype), like.dense_shape)


def _rows_of_variable(gradient: tf.IndexedSlices) -> tf.Tensor:
    return tf.cast(gradient.dense_shape[0], tf.int64)


def _differ(indices: tf.Tensor) -> bool:
    """Whether the indices are those of each rank's own data."""
    if not tf.executing_eagerly():
        return depends_on_data(indices)
    everyone = mpi_ops.gather_all("FarandoleAllgather", [indices])[0].numpy()
    if len(everyone) % _lifecycle.size():
        return True
    each = everyone.reshape(_lifecycle.size(), -1)
    return bool((each != each[0]).any())
