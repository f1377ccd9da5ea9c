# SPDX-License-Identifier: Apache-2.0
"""Fewer bits on the way: gradients are sent in 16 bits and come back in their own type."""

from typing import Any, Tuple

import tensorflow as tf


class Compressor:
    """`compress` gives what is sent and a context, from which `decompress` makes what came of the type it was."""

    @staticmethod
    def compress(tensor: tf.Tensor) -> Tuple[tf.Tensor, Any]:
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: tf.Tensor, ctx: Any) -> tf.Tensor:
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Sends tensors as they are."""

    @staticmethod
    def compress(tensor: tf.Tensor) -> Tuple[tf.Tensor, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: tf.Tensor, ctx: Any) -> tf.Tensor:
        return tensor


class _CastCompressor(Compressor):
    """Sends floating-point tensors of 32 and 64 bits in another type; other tensors as they are."""

    sent_as: tf.DType

    @classmethod
    def compress(cls, tensor: tf.Tensor) -> Tuple[tf.Tensor, Any]:
        tensor = tf.convert_to_tensor(tensor)
        if tensor.dtype not in (tf.float32, tf.float64):
            return tensor, tensor.dtype
        return tf.cast(tensor, cls.sent_as), tensor.dtype

    @classmethod
    def decompress(cls, tensor: tf.Tensor, ctx: Any) -> tf.Tensor:
        return tensor if tensor.dtype == ctx else tf.cast(tensor, ctx)


class FP16Compressor(_CastCompressor):
    """IEEE half precision: 11 bits of precision, overflows beyond 65504."""

    sent_as = tf.float16


class BF16Compressor(_CastCompressor):
    """bfloat16: the range of float32 with 8 bits of precision. Not in Horovod."""

    sent_as = tf.bfloat16


class Compression:
    """What to pass as `compression`."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
