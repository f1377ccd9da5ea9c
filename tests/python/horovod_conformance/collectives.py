# SPDX-License-Identifier: Apache-2.0
"""Results of collectives, for every type and in every mode."""

import numpy as np
import tensorflow as tf
from conformance import EAGER, FLOATS, FUNCTION, INTEGERS, case, mine, own

import horovod.tensorflow as hvd

NUMBERS = INTEGERS + FLOATS
ALL = NUMBERS + ("bool",)


@case(NUMBERS, ("Sum", "Average", "Min", "Max", "Product"))
def allreduce(dtype, op):
    return hvd.allreduce(own(dtype), op=getattr(hvd, op))


@case(("bool",), ("Sum", "Average", "Min", "Max", "Product"))
def allreduce_of(dtype, op):
    return hvd.allreduce(own(dtype), op=getattr(hvd, op))


@case(("Sum", "Average"))
def grouped_allreduce(op):
    return hvd.grouped_allreduce([own(), own("float32", (2,)), own("float32", ())], op=getattr(hvd, op))


@case()
def grouped_allreduce_of_integers():
    return hvd.grouped_allreduce([own("int32"), own("int32", (2,))], op=hvd.Sum)


@case(("allreduce", "allgather", "reducescatter"))
def group_of_several_types(collective):
    options = {} if collective == "allgather" else {"op": hvd.Sum}
    return getattr(hvd, f"grouped_{collective}")([own("float32", (4,)), own("float64", (2, 2))], **options)


@case()
def grouped_allreduce_of_nothing():
    return hvd.grouped_allreduce([], op=hvd.Sum)


@case(FLOATS[2:])
def allreduce_of_a_scalar(dtype):
    return hvd.allreduce(own(dtype, ()))


@case()
def allreduce_of_no_elements():
    return hvd.allreduce(own("float32", (0, 2)))


@case(ALL)
def allgather(dtype):
    return hvd.allgather(own(dtype))


@case()
def allgather_of_different_lengths():
    return hvd.allgather(own("float32", (hvd.rank() + 1, 2)))


@case()
def allgather_where_one_has_nothing():
    return hvd.allgather(own("float32", (hvd.rank() * 2, 2)))


@case()
def grouped_allgather():
    return hvd.grouped_allgather([own(), own("float32", (hvd.rank() + 1,))])


@case(ALL, (0, 1))
def broadcast(dtype, root):
    return hvd.broadcast(own(dtype), root_rank=root)


@case(FLOATS[2:] + INTEGERS[4:])
def broadcast_of_a_scalar(dtype):
    return hvd.broadcast(own(dtype, ()), root_rank=1)


@case(ALL)
def alltoall(dtype):
    return hvd.alltoall(own(dtype, (4, 2)))


@case(("int32", "int64"))
def alltoall_with_splits_of(dtype):
    splits = tf.constant(mine([1, 2], [0, 3]), tf.as_dtype(dtype))
    return hvd.alltoall(own("float32", (3, 2)), splits=splits)


@case()
def alltoall_of_nothing():
    return hvd.alltoall(own("float32", (0, 2)))


@case(INTEGERS + FLOATS)
def reducescatter(dtype):
    return hvd.reducescatter(own(dtype, (4, 2)), op=hvd.Sum)


@case(("Sum", "Average"), ((3,), (1, 2), (5, 2)))
def reducescatter_of_shape(op, shape):
    return hvd.reducescatter(own("float32", shape), op=getattr(hvd, op))


@case()
def grouped_reducescatter():
    return hvd.grouped_reducescatter([own("float32", (4,)), own("float32", (2, 2))], op=hvd.Average)


@case(modes=(EAGER, FUNCTION))
def variables_broadcast():
    with tf.init_scope():
        variable = tf.Variable(own("float32"))
    hvd.broadcast_variables([variable], root_rank=1)
    return variable.read_value()


@case(modes=(EAGER,))
def object_broadcast():
    return repr(hvd.broadcast_object(mine({"a": 1}, ["other", None]), root_rank=1))


@case(modes=(EAGER,))
def objects_gathered():
    return repr(hvd.allgather_object(mine((1, "x"), {"b": 2.5})))


@case(("rank_op", "size_op", "local_rank_op", "local_size_op"))
def place(name):
    return getattr(hvd, name)()


@case(modes=(EAGER,))
def place_as_numbers():
    return [hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size(), hvd.is_homogeneous()]


@case(modes=(EAGER,))
def arrays_and_lists():
    return [hvd.allreduce(np.array([1.0, 2.0]), op=hvd.Sum), hvd.allgather(np.array([hvd.rank()])), hvd.allreduce(3.0, op=hvd.Sum)]
