# SPDX-License-Identifier: Apache-2.0
"""Broadcasts and gathers variables and Python objects."""

from typing import Any, Callable, List, Optional, Sequence

import tensorflow as tf

from .. import _engine, errors, objects
from ..process_sets import ProcessSet, global_process_set, process_set_by_id
from . import mpi_ops
from ._differences import difference
from ._gradients import variable_of
from ._reductions import on_device
from ._running import set_number


def broadcast_variables(
    variables: Sequence[Any],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
    inplace: bool = False,
) -> Optional[tf.Operation]:
    """Overwrites variables with their values on rank `root_rank`.

        hvd.broadcast_variables(model.variables, root_rank=0)

    variables: of TensorFlow or Keras; the same number, types and shapes on all ranks, in the same order.
    inplace: accepted for compatibility with Horovod. Variables are always overwritten in place.

    Collective over the process set. Blocks in eager mode. In a graph of TensorFlow 1, returns the op to run.

    Raises Mismatch on all ranks if they disagree, in eager mode also if the ranks have the same names in different
    orders. Other differences of names are accepted.
    """
    del inplace
    sent: List[Any] = []
    operations: List[Any] = []
    variables = [variable_of(variable) for variable in variables]
    if tf.executing_eagerly():
        _compare_order([variable.name for variable in variables], process_set)
    for variable in variables:
        if variable.dtype.base_dtype.name not in _engine.DTYPES:
            operations.append(_broadcast_bytes(variable, root_rank, process_set))
        else:
            sent.append(variable)
    operations += list(mpi_ops.broadcast_(sent, root_rank, process_set=process_set))
    return None if tf.executing_eagerly() else tf.group(*operations)


def _compare_order(names: List[str], process_set: Any) -> None:
    """Raises Mismatch, on all ranks, if numbers of variables differ, or the same names come in different orders."""
    members = process_set_by_id(set_number(process_set))
    if not members.included() or members.size() == 1:
        return
    of_ranks = dict(zip(members.ranks, objects.allgather_object(names, process_set=members)))
    first = of_ranks[members.ranks[0]]
    what = difference("the number of variables", {rank: len(each) for rank, each in of_ranks.items()})
    # Variables with different names may well correspond to each other, so only the order of equal names counts.
    alike = {rank: each for rank, each in of_ranks.items() if each != first and sorted(each) == sorted(first)}
    if alike and not what:
        place = next(i for i, name in enumerate(first) if any(each[i] != name for each in alike.values()))
        what = difference(f"variable {place}", {rank: f"'{each[place]}'" for rank, each in of_ranks.items()})
    if what:
        raise errors.Mismatch(f"ranks disagree on the variables to broadcast: {what}; no data was touched")


def _broadcast_bytes(variable: Any, root_rank: int, process_set: ProcessSet) -> Any:
    """Broadcasts a variable of a type that the ops do not support, such as complex numbers, as bytes."""
    dtype = variable.dtype.base_dtype
    if not (dtype.is_integer or dtype.is_complex):
        raise errors.InvalidArgument(f"variable {variable.name} of {dtype.name} cannot be sent")
    payload = tf.bitcast(variable, tf.uint8) if not dtype.is_complex else tf.bitcast(tf.math.real(variable), tf.uint8)
    if dtype.is_complex:
        payload = tf.stack([payload, tf.bitcast(tf.math.imag(variable), tf.uint8)])
    received = mpi_ops.broadcast(payload, root_rank, process_set=process_set)
    if dtype.is_complex:
        part = tf.float32 if dtype == tf.complex64 else tf.float64
        return variable.assign(tf.complex(tf.bitcast(received[0], part), tf.bitcast(received[1], part)))
    return variable.assign(tf.bitcast(received, dtype))


def broadcast_global_variables(root_rank: int) -> tf.Operation:
    """The op that overwrites all global variables of a graph of TensorFlow 1 with their values on rank `root_rank`.

    Raises Unsupported, which is a RuntimeError, in eager mode: use `broadcast_variables`.
    """
    if tf.executing_eagerly():
        raise errors.Unsupported(
            "broadcast_global_variables() needs a graph of TensorFlow 1; in eager mode use "
            "broadcast_variables(model.variables, root_rank)"
        )
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank)


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):
    """For sessions of TensorFlow 1: overwrites all global variables with their values on rank `root_rank` when a
    session is created, also if that rank has read them from a checkpoint."""

    def __init__(self, root_rank: int, device: str = ""):
        super().__init__()
        self._root_rank = root_rank
        self._device = device
        self._operation: Optional[tf.Operation] = None

    def begin(self) -> None:
        if self._operation is None or self._operation.graph is not tf.compat.v1.get_default_graph():
            with on_device(self._device):
                self._operation = broadcast_global_variables(self._root_rank)

    def after_create_session(self, session: Any, coord: Any) -> None:
        session.run(self._operation)


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    session: Any = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
    pickle: bool = False,
) -> Any:
    """Returns the object of rank `root_rank` on every rank; `farandole.objects` says which objects travel.

    session: accepted for compatibility with Horovod, without effect.
    pickle: sends the object as a pickle, which runs the sender's code on the other ranks. The same on all ranks.

    Collective over the process set. Blocks.
    """
    del session
    return objects.broadcast_object(obj, root_rank, name, process_set, pickle)


def broadcast_object_fn(
    root_rank: int = 0,
    session: Any = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
    pickle: bool = False,
) -> Callable[[Any], Any]:
    """Returns a function of the object that calls `broadcast_object` with these arguments."""
    return lambda obj: broadcast_object(obj, root_rank, session, name, process_set, pickle)


def allgather_object(
    obj: Any,
    session: Any = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
    pickle: bool = False,
) -> List[Any]:
    """The objects of all ranks of the process set, in their order.
    Arguments as for `broadcast_object`. Collective, blocks."""
    del session
    return objects.allgather_object(obj, name, process_set, pickle)
