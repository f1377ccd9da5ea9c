# SPDX-License-Identifier: Apache-2.0
"""Process sets that are made and removed while the job runs. Horovod needs HOROVOD_DYNAMIC_PROCESS_SETS=1."""

import tensorflow as tf
from conformance import EAGER, case, own, process_set

import horovod.tensorflow as hvd


def of_size_one(collective):
    """Each rank in a process set of its own."""
    with process_set(0) as first, process_set(1) as second:
        return collective((first, second)[hvd.rank()])


CALLS = {
    "allreduce": lambda ranks: hvd.allreduce(own(), process_set=ranks),
    "grouped allreduce": lambda ranks: hvd.grouped_allreduce([own(), own("float32", (2,))], op=hvd.Sum, process_set=ranks),
    "allgather": lambda ranks: hvd.allgather(own(), process_set=ranks),
    "alltoall": lambda ranks: hvd.alltoall(own("float32", (2, 2)), process_set=ranks),
    "reducescatter": lambda ranks: hvd.reducescatter(own("float32", (2, 2)), op=hvd.Sum, process_set=ranks),
    "broadcast": lambda ranks: hvd.broadcast(own(), root_rank=hvd.rank(), process_set=ranks),
    "size op": lambda ranks: hvd.size_op(ranks.process_set_id),
    "included op": lambda ranks: hvd.process_set_included_op(ranks.process_set_id),
}


@case(tuple(CALLS), modes=(EAGER,))
def alone(name):
    return of_size_one(CALLS[name])


@case(tuple(CALLS), modes=(EAGER,))
def alone_in_a_function(name):
    return of_size_one(lambda ranks: tf.function(lambda: CALLS[name](ranks))())


@case(tuple(CALLS), modes=(EAGER,))
def everybody(name):
    if name == "broadcast":
        return hvd.broadcast(own(), root_rank=1, process_set=hvd.global_process_set)
    return CALLS[name](hvd.global_process_set)


@case(tuple(name for name in CALLS if name not in ("size op", "included op")), modes=(EAGER,))
def of_the_other(name):
    """In the process set of the other rank."""
    with process_set(0) as first, process_set(1) as second:
        return CALLS[name]((first, second)[1 - hvd.rank()])


@case(modes=(EAGER,))
def facts():
    with process_set(1) as one:
        return [
            one.included(),
            one.rank() if one.included() else None,
            one.size(),
            one.ranks,
            hvd.global_process_set.included(),
            hvd.global_process_set.size(),
            hvd.global_process_set.process_set_id,
            str(hvd.global_process_set.ranks),
        ]


@case(modes=(EAGER,))
def of_no_ranks():
    with process_set() as nobody:
        return [nobody.size(), nobody.included()]


@case(modes=(EAGER,))
def rank_in_one_of_others():
    with process_set(0) as first, process_set(1) as second:
        return (first, second)[1 - hvd.rank()].rank()


@case(modes=(EAGER,))
def one_that_exists():
    with process_set(0):
        hvd.add_process_set([0])


@case(modes=(EAGER,))
def one_of_everybody():
    hvd.add_process_set([0, 1])


@case(modes=(EAGER,))
def removed():
    made = hvd.add_process_set([0])
    return [hvd.remove_process_set(made), made.process_set_id, hvd.remove_process_set(made)]


@case(modes=(EAGER,))
def everybody_removed():
    return hvd.remove_process_set(hvd.global_process_set)


@case(modes=(EAGER,))
def used_after_it_was_removed():
    made = hvd.add_process_set([0])
    hvd.remove_process_set(made)
    return hvd.allreduce(own(), process_set=made)


@case(modes=(EAGER,))
def used_before_it_was_added():
    return hvd.allreduce(own(), process_set=hvd.ProcessSet([0]))


@case(modes=(EAGER,))
def tape_over_one():
    variable = tf.Variable([1.0, 2.0])
    with process_set(0) as first, process_set(1) as second:
        with tf.GradientTape() as tape:
            loss = variable * (hvd.rank() + 1.0)
        return hvd.DistributedGradientTape(tape, process_set=(first, second)[hvd.rank()]).gradient(loss, variable)
