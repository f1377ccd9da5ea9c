# SPDX-License-Identifier: Apache-2.0
"""Concatenates the tensors of all ranks. Any type can be gathered, because nothing is computed."""

from typing import Any, Callable, Tuple

import tensorflow as tf

from ... import _lifecycle, errors
from .. import mpi_ops
from .._gradients import can_be_reduced
from ._names import named

# The string of each byte.
_BYTES = [bytes([number]) for number in range(256)]
# Types that the ops do not support. tf.bitcast converts them to bytes.
_AS_BITS = (tf.complex64, tf.complex128, tf.uint32, tf.uint64)


def gathered(value: Any, axis: int) -> Any:
    """Concatenates the values of all ranks along the axis. RaggedTensors are concatenated by rows. Raises Unsupported
    for SparseTensors and types that do not travel, InvalidArgument for scalars. Collective."""
    if isinstance(value, tf.SparseTensor):
        raise errors.Unsupported("gather() and predict() do not move SparseTensors between ranks: use tf.sparse.to_dense()")
    if isinstance(value, tf.RaggedTensor):
        return _gather_ragged(value, axis)
    value = tf.convert_to_tensor(value)
    if value.shape.rank is None or value.shape.rank == 0:
        raise errors.InvalidArgument(f"gather() needs a tensor of known rank of at least 1, got shape {value.shape}")
    if not (can_be_reduced(value.dtype) or value.dtype in _AS_BITS or value.dtype == tf.string):
        raise errors.Unsupported(
            f"gather() and predict() do not move {value.dtype.name} between ranks, but text, complex numbers and numbers of "
            "8 to 64 bits: cast it, for example to float16"
        )
    if _lifecycle.size() == 1:
        return value
    axis %= value.shape.rank
    order = [axis, *(i for i in range(value.shape.rank) if i != axis)]
    back = [order.index(i) for i in range(value.shape.rank)]
    transposed = value if axis == 0 else tf.transpose(value, order)
    result = _gatherer_of(value.dtype)(transposed, _about(value, axis))
    return result if axis == 0 else tf.transpose(result, back)


def _about(value: tf.Tensor, axis: int) -> str:
    """Text that must be equal on all ranks. An error about different
    shapes shows the text, which says how to avoid them."""
    kind = "" if can_be_reduced(value.dtype) else f" of {value.dtype.name}"
    others = "" if value.shape.rank == 1 else "; the other dimensions must be as long on all ranks: pad to a fixed length"
    return f"along axis {axis}{kind}{others}"


def _gatherer_of(dtype: tf.DType) -> Callable[[tf.Tensor, str], tf.Tensor]:
    if can_be_reduced(dtype):
        return _gather_numbers
    return _gather_text if dtype == tf.string else _gather_bits


def _gather(tensors: Tuple[tf.Tensor, ...], about: str) -> Tuple[tf.Tensor, ...]:
    return mpi_ops.gather_all("FarandoleAllgather", tensors, **named("gather"), about=about)


def _gather_ragged(value: tf.RaggedTensor, axis: int) -> tf.RaggedTensor:
    if axis != 0:
        raise errors.Unsupported(f"gather() of a RaggedTensor moves whole rows, along axis 0, not {axis}")
    if _lifecycle.size() == 1:
        return value
    lengths = [gathered(each, 0) for each in value.nested_row_lengths()]
    return tf.RaggedTensor.from_nested_row_lengths(gathered(value.flat_values, 0), lengths, validate=False)


def _gather_numbers(value: tf.Tensor, about: str) -> tf.Tensor:
    return _gather((value,), about)[0]


def _gather_bits(value: tf.Tensor, about: str) -> tf.Tensor:
    """Gathers numbers of a type that the ops do not support, as bytes."""
    return tf.bitcast(_gather_numbers(tf.bitcast(value, tf.uint8), about), value.dtype)


def _gather_text(value: tf.Tensor, about: str) -> tf.Tensor:
    """Gathers the lengths of the strings and, in a second tensor, the bytes of all strings."""
    length = tf.cast(tf.strings.length(value), tf.int64)
    payload = tf.io.decode_raw(tf.strings.reduce_join(tf.reshape(value, [-1])), tf.uint8)
    lengths, payloads = _gather((length, payload), about)
    joined = tf.strings.reduce_join(tf.gather(_BYTES, tf.cast(payloads, tf.int32)))
    flat = tf.reshape(lengths, [-1])
    texts = tf.strings.substr(joined, tf.cumsum(flat, exclusive=True), flat)
    return tf.ensure_shape(tf.reshape(texts, tf.shape(lengths)), lengths.shape)
