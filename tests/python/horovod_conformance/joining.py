# SPDX-License-Identifier: Apache-2.0
"""join(): ranks that have no more data. Horovod supports join() only without HOROVOD_DYNAMIC_PROCESS_SETS."""

from conformance import EAGER, case, own

import horovod.tensorflow as hvd


@case(modes=(EAGER,))
def everybody_joins():
    hvd.join()
    return hvd.allreduce(own(), op=hvd.Sum)


@case((0, 1), ("Sum", "Average", "Min"), modes=(EAGER,))
def allreduce_while_one_has_joined(joins, op):
    reduced = hvd.allreduce(own(), op=getattr(hvd, op), name=f"{op}_while_{joins}_has_joined") if hvd.rank() != joins else None
    hvd.join()
    return reduced


@case((0, 1), modes=(EAGER,))
def last_to_join(first):
    for step in range(2):
        if hvd.rank() != first:
            hvd.allreduce(own(), op=hvd.Sum, name=f"step_{step}")
    return int(hvd.join()) in (0, 1)


@case(modes=(EAGER,))
def the_job_goes_on():
    return hvd.allreduce(own(), op=hvd.Sum)
