# SPDX-License-Identifier: Apache-2.0
"""Factors, averages, compression and sparse tensors."""

import tensorflow as tf
from conformance import FLOATS, INTEGERS, case, mine, own

import horovod.tensorflow as hvd

NUMBERS = INTEGERS + FLOATS
FACTORS = ((0.5, 1.0), (1.0, 0.4), (1.5, 0.5), (3.0, 1.0))


@case(NUMBERS, FACTORS, ("Sum", "Average"))
def scaled_allreduce(dtype, factors, op):
    return hvd.allreduce(own(dtype, (6,)), op=getattr(hvd, op), prescale_factor=factors[0], postscale_factor=factors[1])


@case(NUMBERS)
def scaled_group(dtype):
    return hvd.grouped_allreduce([own(dtype), own(dtype, (5,), 2)], op=hvd.Sum, prescale_factor=0.75, postscale_factor=1.5)


@case(NUMBERS, ("Sum", "Average"))
def scaled_reducescatter(dtype, op):
    return hvd.reducescatter(own(dtype, (4, 2)), op=getattr(hvd, op), prescale_factor=0.75, postscale_factor=1.5)


@case(("int32", "int64"))
def negative_averages(dtype):
    return hvd.allreduce(tf.constant([-3, -5, -6, 7], tf.as_dtype(dtype)) + hvd.rank(), op=hvd.Average)


@case((True, False))
def average_argument(average):
    return hvd.allreduce(own(), average=average)


@case((hvd.Compression.none, hvd.Compression.fp16), ("float32", "float64", "float16"))
def compressed(compression, dtype):
    return hvd.allreduce(own(dtype) * tf.cast(1.0009765, tf.as_dtype(dtype)), compression=compression)


def slices():
    rows = mine([0, 2], [2, 3, 1])
    return tf.IndexedSlices(own("float32", (len(rows), 2)), tf.constant(rows, tf.int64), tf.constant([4, 2], tf.int64))


@case(("Sum", "Average"))
def slices_reduced(op):
    reduced = hvd.allreduce(slices(), op=getattr(hvd, op))
    return [reduced.values, reduced.indices]


@case(("Min", "Adasum"))
def slices_reduced_by(op):
    reduced = hvd.allreduce(slices(), op=getattr(hvd, op))
    return [reduced.values, reduced.indices]


@case()
def group_with_slices():
    return hvd.grouped_allreduce([own(), slices()], op=hvd.Sum)[0]


@case(FLOATS)
def adasum(dtype):
    return hvd.allreduce(own(dtype, (4,), 1), op=hvd.Adasum)
