# SPDX-License-Identifier: Apache-2.0
"""Gradients of collectives, and gradient tapes that reduce."""

import tensorflow as tf
from conformance import EAGER, FUNCTION, case, mine, own

import horovod.tensorflow as hvd


def gradient_of(collective, shape=(4, 2)):
    """The gradient of the sum of the collective's results, weighted by the rank, by its input."""
    inputs = own("float32", shape)
    if tf.executing_eagerly() or tf.inside_function():
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            loss = tf.reduce_sum(collective(inputs)) * (hvd.rank() + 1)
        return tape.gradient(loss, inputs)
    return tf.gradients(tf.reduce_sum(collective(inputs)) * (hvd.rank() + 1), inputs)[0]


@case(("Sum", "Average"))
def of_allreduce(op):
    return gradient_of(lambda tensor: hvd.allreduce(tensor, op=getattr(hvd, op)))


@case()
def of_allreduce_with_factors():
    return gradient_of(lambda tensor: hvd.allreduce(tensor, op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.25))


@case(("Min", "Max", "Product"))
def of_allreduce_by(op):
    return gradient_of(lambda tensor: hvd.allreduce(tensor, op=getattr(hvd, op)))


@case()
def of_grouped_allreduce():
    return gradient_of(lambda tensor: hvd.grouped_allreduce([tensor, 2 * tensor], op=hvd.Sum)[1])


@case()
def of_allgather():
    return gradient_of(hvd.allgather)


@case()
def of_grouped_allgather():
    return gradient_of(lambda tensor: hvd.grouped_allgather([tensor, 3 * tensor])[1])


@case((0, 1))
def of_broadcast(root):
    return gradient_of(lambda tensor: hvd.broadcast(tensor, root_rank=root))


@case()
def of_alltoall():
    return gradient_of(hvd.alltoall)


@case()
def of_alltoall_with_splits():
    return gradient_of(lambda tensor: hvd.alltoall(tensor, splits=tf.constant(mine([1, 3], [4, 0])))[0])


@case(("Sum", "Average"))
def of_reducescatter(op):
    return gradient_of(lambda tensor: hvd.reducescatter(tensor, op=getattr(hvd, op)))


@case()
def of_grouped_reducescatter():
    return gradient_of(lambda tensor: hvd.grouped_reducescatter([tensor, tensor * 2], op=hvd.Sum)[1])


WEIGHTS = []


def weights():
    """Two variables and a table for lookups, made once."""
    if not WEIGHTS:
        WEIGHTS.extend([tf.Variable([[1.0, 2.0], [3.0, 4.0]]), tf.Variable([1.0, -1.0]), tf.Variable(tf.ones([4, 2]))])
    return WEIGHTS


def taped(make=hvd.DistributedGradientTape, **options):
    matrix, bias, table = weights()
    with tf.GradientTape() as tape:
        rows = tf.nn.embedding_lookup(table, mine([0, 1, 1], [3]))
        loss = tf.reduce_sum((own("float32", (3, 2)) @ matrix + bias) ** 2) + tf.reduce_sum(rows) * (hvd.rank() + 1.0)
    tape = make(tape, **options)
    return tape.gradient(loss, [matrix, bias, table])


TAPES = {
    "plain": {},
    "sums": {"op": hvd.Sum},
    "dense": {"sparse_as_dense": True},
    "predivided": {"gradient_predivide_factor": 2.0, "sparse_as_dense": True},
    "groups": {"num_groups": 1, "sparse_as_dense": True},
    "compressed": {"compression": hvd.Compression.fp16, "sparse_as_dense": True},
}


@case(tuple(TAPES), modes=(EAGER, FUNCTION))
def tape(kind):
    return taped(**TAPES[kind])


@case(modes=(EAGER,))
def tape_with_a_source_that_is_not_used():
    unused = tf.Variable(1.0)
    with tf.GradientTape() as inner:
        loss = weights()[1] * (hvd.rank() + 1.0)
    return hvd.DistributedGradientTape(inner).gradient(loss, [weights()[1], unused])


@case(modes=(EAGER, FUNCTION))
def tape_with_one_source():
    with tf.GradientTape() as inner:
        loss = weights()[1] * (hvd.rank() + 1.0)
    return hvd.DistributedGradientTape(inner).gradient(loss, weights()[1])


@case((True, False), modes=(EAGER, FUNCTION))
def tape_with_local_sources(scaled):
    matrix, bias, _ = weights()
    with tf.GradientTape() as inner:
        loss = tf.reduce_sum((own("float32", (3, 2)) @ matrix + bias) ** 2)
    inner = hvd.DistributedGradientTape(inner, scale_local_gradients=scaled)
    inner.register_local_source(bias)
    return inner.gradient(loss, [matrix, bias])
