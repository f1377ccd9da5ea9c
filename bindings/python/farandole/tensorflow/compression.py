# SPDX-License-Identifier: Apache-2.0
"""Compression of gradients: sends them in 16 bits, and converts the result back to their type."""

from typing import Any, Tuple

import tensorflow as tf


class Compressor:
    """Interface. `compress` returns (tensor to send, context); `decompress` restores the type with the context."""

    @staticmethod
    def compress(tensor: tf.Tensor) -> Tuple[tf.Tensor, Any]:
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: tf.Tensor, ctx: Any) -> tf.Tensor:
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Sends tensors unchanged."""

    @staticmethod
    def compress(tensor: tf.Tensor) -> Tuple[tf.Tensor, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: tf.Tensor, ctx: Any) -> tf.Tensor:
        return tensor


class _CastCompressor(Compressor):
    """Sends 32- and 64-bit floating-point tensors in a shorter type, other tensors unchanged."""

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
    """IEEE half precision: 11 significant bits; overflows above 65504."""

    sent_as = tf.float16


class BF16Compressor(_CastCompressor):
    """bfloat16: 8 significant bits with the range of float32. Not in Horovod."""

    sent_as = tf.bfloat16


class Compression:
    """Values of the argument `compression`."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
