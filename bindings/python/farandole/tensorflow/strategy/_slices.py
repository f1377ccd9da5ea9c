# SPDX-License-Identifier: Apache-2.0
"""Combines IndexedSlices of all ranks as the optimizer of a single process would see them.

A gradient of an embedding has one row per occurrence of a word in the batch, and Keras' optimizers square each row. The
rows of all ranks are therefore concatenated. Rows that do not depend on the data, such as those of position embeddings,
occur once per batch: each rank holds a part of every row, and the parts are summed.
"""

from typing import Any, Optional

import tensorflow as tf

from ... import _lifecycle
from .. import mpi_ops
from ._graph import depends_on_data


def marked(gradient: Any) -> Optional[tf.IndexedSlices]:
    """Returns the slices with new indices that encode (place of the row in the slices, old index). None if the rows
    depend on the data, and so need no sum.

    Collective in eager mode.
    """
    if not isinstance(gradient, tf.IndexedSlices) or gradient.dense_shape is None or _differ(gradient.indices):
        return None
    places = tf.range(tf.size(gradient.indices, out_type=tf.int64))
    indices = places * _rows_of_variable(gradient) + tf.cast(gradient.indices, tf.int64)
    return tf.IndexedSlices(gradient.values, indices, gradient.dense_shape)


def summed(gathered: tf.IndexedSlices, like: tf.IndexedSlices) -> tf.IndexedSlices:
    """Sums the results of `marked`, gathered from all ranks: one row for each pair of place and index."""
    keys, numbers = tf.unique(gathered.indices)
    values = tf.math.unsorted_segment_sum(gathered.values, numbers, tf.size(keys))
    return tf.IndexedSlices(values, tf.cast(keys % _rows_of_variable(like), like.indices.dtype), like.dense_shape)


def _rows_of_variable(gradient: tf.IndexedSlices) -> tf.Tensor:
    return tf.cast(gradient.dense_shape[0], tf.int64)


def _differ(indices: tf.Tensor) -> bool:
    """True if the indices come from each rank's own data."""
    if not tf.executing_eagerly():
        return depends_on_data(indices)
    everyone = mpi_ops.gather_all("FarandoleAllgather", [indices])[0].numpy()
    if len(everyone) % _lifecycle.size():
        return True
    each = everyone.reshape(_lifecycle.size(), -1)
    return bool((each != each[0]).any())
