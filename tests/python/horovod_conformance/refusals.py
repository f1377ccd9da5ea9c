# SPDX-License-Identifier: Apache-2.0
"""Invalid calls, and the class of the error that they raise. All ranks make the same invalid call, so the job goes on."""

import tensorflow as tf
from conformance import EAGER, FUNCTION, GRAPH, case, mine, own

import horovod.tensorflow as hvd

# ---- Ranks that disagree


def shapes():
    return mine(lambda: own("float32", (3, 2)), lambda: own("float32", (2, 2)))


def types():
    return mine(lambda: own("float32"), lambda: own("float64"))


@case()
def allreduce_of_other_shapes():
    return hvd.allreduce(shapes(), name="other_shapes")


@case()
def allreduce_of_other_numbers_of_dimensions():
    return hvd.allreduce(own("float32", mine((4,), (2, 2))), name="other_dimensions")


@case()
def allreduce_of_other_types():
    return hvd.allreduce(types(), name="other_types")


@case()
def allreduce_by_other_operations():
    return hvd.allreduce(own(), op=mine(hvd.Sum, hvd.Max), name="other_operations")


@case()
def allreduce_with_other_factors():
    return hvd.allreduce(own(), op=hvd.Sum, prescale_factor=mine(1.0, 2.0), name="other_factors")


@case()
def allgather_of_other_shapes():
    return hvd.allgather(own("float32", mine((2, 3), (2, 4))), name="other_gathered_shapes")


@case()
def allgather_of_other_types():
    return hvd.allgather(types(), name="other_gathered_types")


@case()
def broadcast_of_other_shapes():
    return hvd.broadcast(shapes(), root_rank=0, name="other_sent_shapes")


@case()
def broadcast_of_other_types():
    return hvd.broadcast(types(), root_rank=0, name="other_sent_types")


@case()
def broadcast_from_other_roots():
    return hvd.broadcast(own(), root_rank=hvd.rank(), name="other_roots")


@case()
def alltoall_of_other_shapes():
    return hvd.alltoall(own("float32", mine((2, 3), (2, 4))), name="other_exchanged_shapes")


@case()
def alltoall_of_other_types():
    return hvd.alltoall(types_of_even_length(), name="other_exchanged_types")


def types_of_even_length():
    return mine(lambda: own("float32", (2, 2)), lambda: own("float64", (2, 2)))


@case()
def reducescatter_of_other_shapes():
    return hvd.reducescatter(shapes(), op=hvd.Sum, name="other_scattered_shapes")


@case()
def reducescatter_of_other_types():
    return hvd.reducescatter(types(), op=hvd.Sum, name="other_scattered_types")


# ---- Arguments that cannot work


@case()
def alltoall_with_too_few_splits():
    return hvd.alltoall(own("float32", (3, 2)), splits=tf.constant([3]))


@case()
def alltoall_with_splits_that_are_too_large():
    return hvd.alltoall(own("float32", (3, 2)), splits=tf.constant([2, 2]))


@case()
def alltoall_with_splits_that_are_too_small():
    return hvd.alltoall(own("float32", (3, 2)), splits=tf.constant([1, 1]))


@case(modes=(EAGER, FUNCTION))
def alltoall_with_splits_of_floats():
    return hvd.alltoall(own("float32", (3, 2)), splits=tf.constant([1.0, 2.0]))


@case()
def alltoall_that_can_not_be_split():
    return hvd.alltoall(own("float32", (3, 2)))


@case()
def allgather_of_a_scalar():
    return hvd.allgather(own("float32", ()))


@case()
def reducescatter_of_a_scalar():
    return hvd.reducescatter(own("float32", ()), op=hvd.Sum)


@case(("Min", "Adasum"))
def reducescatter_by(op):
    return hvd.reducescatter(own("float32", (4,)), op=getattr(hvd, op))


@case()
def broadcast_from_nobody():
    return hvd.broadcast(own(), root_rank=2, name="from_nobody")


@case()
def both_average_and_operation():
    return hvd.allreduce(own(), average=True, op=hvd.Sum)


@case()
def an_operation_that_is_none():
    return hvd.allreduce(own(), op=77)


@case(("Min", "Product"))
def tape_by(op):
    return [] if hvd.DistributedGradientTape(tf.GradientTape(), op=getattr(hvd, op)) else None


@case()
def tape_predivided_with_a_sum():
    return [] if hvd.DistributedGradientTape(tf.GradientTape(), op=hvd.Sum, gradient_predivide_factor=2.0) else None


@case(modes=(GRAPH,))
def optimizer_of_another_kind():
    return [] if hvd.DistributedOptimizer("sgd") else None


@case(modes=(EAGER,))
def a_process_set_of_nobody():
    return [] if hvd.ProcessSet([]) else None


@case(modes=(EAGER,))
def the_job_goes_on():
    return hvd.allreduce(own(), op=hvd.Sum)
