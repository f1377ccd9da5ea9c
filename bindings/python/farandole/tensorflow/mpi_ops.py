# SPDX-License-Identifier: Apache-2.0
"""The collectives as TensorFlow ops, under the names of Horovod's module `mpi_ops`.

    total = mpi_ops.allgather(tf.ones([hvd.rank() + 1, 3]))  # shape [1 + 2 + … + size, 3] on every rank

All functions work eagerly and in a `tf.function`, and have gradients unless they say otherwise. An eager call blocks
until the result is there. In a `tf.function` ops run as soon as their inputs are ready, in any order and concurrently.

Arguments of several functions:

- `tensor`: any value that TensorFlow converts to a tensor of bool, int8 to int64, uint8 to uint64, float16, bfloat16,
  float32 or float64.
- `name` matches the calls of the ranks. In a `tf.function` it becomes the name of the op; without a name, one is made
  from the tensor's name. Eager calls without a name are matched by their order, which must be the same on all ranks;
  calls from several threads need names. A name may be reused when its op has ended.
- `ignore_name_scope`: name scopes around the op are not part of the name.
- `process_set`: the ranks that take part, a `ProcessSet` or its number; None for all. Only members call.
- `about`: a text that must be equal on all ranks, for facts that the tensors do not show. Error messages contain the
  text.

Errors of eager calls are classes of `farandole.errors`, each of which is also a class of `tf.errors`:

- Mismatch (FailedPreconditionError) on all ranks if they disagree. InvalidArgument (InvalidArgumentError) for a call
  that cannot work; ranks that make the call correctly get Mismatch. DuplicateName (InvalidArgumentError) on this rank
  only. Unsupported (UnimplementedError). The job can go on after these.
- PeerLost, Timeout, TransportError (AbortedError): the job cannot go on.

A `tf.function` raises the classes of `tf.errors` only; see `converted_errors`.

Gradients follow Horovod, which for some collectives does not differentiate the sum of all ranks' losses. In a function
that `MirroredStrategy.run` calls, every gradient is a derivative of that sum.
"""

from typing import Any, Dict, List, Optional, Sequence

import tensorflow as tf
from tensorflow.python.framework import ops
from tensorflow.python.ops import resource_variable_ops

from .. import _engine, _work
from .._horovod.basics import basics as _basics  # programs for Horovod look up the name here
from . import _errors, _graph_frames, _library, _running

Sum, Average, Min, Max, Product, Adasum = (
    _engine.Sum,
    _engine.Average,
    _engine.Min,
    _engine.Max,
    _engine.Product,
    _engine.Adasum,
)

_LIB = _library.load()


# ---- Helpers -------------------------------------------------------------------------------------------------------


def run_all(
    operation: Any,
    default_name: str,
    tensors: Sequence[Any],
    name: Optional[str],
    ignore_name_scope: bool,
    process_set: Any,
    about: str = "",
    **options: Any,
) -> List[tf.Tensor]:
    """Runs an op on several tensors together. Returns an empty
    list for an empty list. options: further attributes of the op."""
    tensors = _running.tensors_of(tensors)
    if not tensors:
        return []
    common = {"ignore_name_scope": ignore_name_scope, "process_set": _running.set_number(process_set), "about": about}
    return _running.run(operation, default_name, tensors, name, tensors=tensors, **common, **options)


def gather_all(
    default_name: str,
    tensors: Sequence[Any],
    name: Optional[str] = None,
    ignore_name_scope: bool = False,
    process_set: Any = None,
    about: str = "",
) -> List[tf.Tensor]:
    """Gathers several tensors together."""
    operation = _LIB.farandole_allgather
    return run_all(operation, default_name, tensors, name, ignore_name_scope, process_set, about)


def _reduction(op: Any, prescale_factor: float, postscale_factor: float) -> Dict[str, Any]:
    factors = {"prescale_factor": prescale_factor, "postscale_factor": postscale_factor}
    return {"reduce_op": int(op), **{key: _running.factor_text(value) for key, value in factors.items()}}


# ---- Allreduce -----------------------------------------------------------------------------------------------------


@_running.collective
def _allreduce(
    tensor,
    name: Optional[str] = None,
    op=Sum,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set=None,
    about: str = "",
) -> tf.Tensor:
    """Reduces a tensor over the ranks: `postscale_factor` · Σ `prescale_factor` · `tensor` for Sum, and likewise for
    any other `op`. The shape is equal on all ranks. Adasum takes floating-point types only; Average and factors take
    every type but bool. Integers that are scaled or averaged are truncated toward zero.

    The gradient is an allreduce with the same `op` and factors.
    """
    options = _reduction(op, prescale_factor, postscale_factor)
    of_ranks = (name, ignore_name_scope, process_set, about)
    return run_all(_LIB.farandole_allreduce, "FarandoleAllreduce", [tensor], *of_ranks, **options)[0]


@_running.collective
def _grouped_allreduce(
    tensors: Sequence[Any],
    name: Optional[str] = None,
    op=Sum,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set=None,
    about: str = "",
) -> List[tf.Tensor]:
    """Reduces several tensors of any types and shapes. No tensor
    is reduced before all tensors are ready on all ranks."""
    options = _reduction(op, prescale_factor, postscale_factor)
    of_ranks = (name, ignore_name_scope, process_set, about)
    return run_all(_LIB.farandole_allreduce, "FarandoleGroupedAllreduce", tensors, *of_ranks, **options)


@ops.RegisterGradient("FarandoleAllreduce")
def _allreduce_gradient(op, *gradients):
    _running.need_sum_or_average(op, "allreduce")
    return _grouped_allreduce(
        _running.dense(gradients, op.inputs),
        op=op.get_attr("reduce_op"),
        prescale_factor=float(op.get_attr("prescale_factor")),
        postscale_factor=float(op.get_attr("postscale_factor")),
        **_running.of_gradient(op),
    )


# ---- Allgather -----------------------------------------------------------------------------------------------------


@_running.collective
def allgather(tensor, name: Optional[str] = None, ignore_name_scope: bool = False, process_set=None) -> tf.Tensor:
    """Concatenates the tensors of all ranks along the first dimension, which may differ between ranks.

    Every rank receives the tensors of all other ranks. The gradient is this rank's slice of the result's gradient,
    averaged over the ranks, as Horovod defines it.
    """
    return gather_all("FarandoleAllgather", [tensor], name, ignore_name_scope, process_set)[0]


@_running.collective
def grouped_allgather(
    tensors: Sequence[Any], name: Optional[str] = None, ignore_name_scope: bool = False, process_set=None
) -> List[tf.Tensor]:
    """Gathers several tensors as `allgather` does, once all of them are ready on all ranks."""
    return gather_all("FarandoleGroupedAllgather", tensors, name, ignore_name_scope, process_set)


@ops.RegisterGradient("FarandoleAllgather")
def _allgather_gradient(op, *gradients):
    over_ranks = Sum if _running.is_in_strategy() else Average
    reduced = _grouped_allreduce(_running.dense(gradients, op.outputs), op=over_ranks, **_running.of_gradient(op))
    shapes = [tf.shape(tensor, out_type=tf.int64) for tensor in op.inputs]
    with tf.device("/device:CPU:0"):  # the host needs these numbers, wherever the tensors are
        rows = tf.stack([shape[0] for shape in shapes])
        all_rows = allgather(rows[tf.newaxis], **_running.of_gradient(op, "rows"))
        own = rank_op(process_set=op.get_attr("process_set"))
        first = tf.reduce_sum(all_rows[:own], axis=0)
        last = first + rows
    return [each[first[i] : last[i]] for i, each in enumerate(reduced)]


# ---- Broadcast -----------------------------------------------------------------------------------------------------


@_running.collective
def broadcast(
    tensor, root_rank: int, name: Optional[str] = None, ignore_name_scope: bool = False, process_set=None
) -> tf.Tensor:
    """Returns the tensor of rank `root_rank`, counted in the whole job even if `process_set` is given. All ranks pass a
    tensor of the same type and shape.

    The gradient on the root is the result's gradient, averaged over the ranks, as Horovod defines it. On other ranks
    the gradient is zero.
    """
    tensors = [tf.convert_to_tensor(tensor)]
    return _running.run(
        _LIB.farandole_broadcast,
        "FarandoleBroadcast",
        tensors,
        name,
        tensors=tensors,
        root_rank=_running.root_number(root_rank),
        ignore_name_scope=ignore_name_scope,
        process_set=_running.set_number(process_set),
    )[0]


@ops.RegisterGradient("FarandoleBroadcast")
def _broadcast_gradient(op, *gradients):
    over_ranks = Sum if _running.is_in_strategy() else Average
    reduced = _grouped_allreduce(_running.dense(gradients, op.inputs), op=over_ranks, **_running.of_gradient(op))
    is_root = tf.equal(rank_op(), op.get_attr("root_rank"))
    return [tf.where(is_root, each, tf.zeros_like(each)) for each in reduced]


def _can_overwrite(variable: tf.Variable) -> bool:
    """True if the op that overwrites variables has a kernel for this variable."""
    is_on_host = "GPU" not in variable.device
    return resource_variable_ops.is_resource_variable(variable) and (is_on_host or _library.has_gpu_kernels())


@_running.collective
def broadcast_(variables: Sequence[tf.Variable], root_rank: int, name: Optional[str] = None, process_set=None):
    """Overwrites variables with their values on rank `root_rank`, in place and in one collective per device.

    All ranks pass the same number of variables, with equal types and shapes, in the same order. Returns the new values.
    In a `tf.function`, reads that follow see the new values. Not differentiable.

    Reference variables of TensorFlow 1 (`use_resource=False`), and variables on a GPU that Farandole does not use, are
    broadcast one at a time, after all other variables.
    """
    variables = list(variables)
    overwritten: Dict[str, List[int]] = {}
    assigned: List[int] = []
    for index, variable in enumerate(variables):
        (overwritten.setdefault(variable.device, []) if _can_overwrite(variable) else assigned).append(index)
    values: Dict[int, tf.Tensor] = {}
    for number, indices in enumerate(overwritten.values()):
        values.update(zip(indices, _overwrite([variables[i] for i in indices], number, root_rank, name, process_set)))
    for index in assigned:
        # The broadcast has the name of its variable.
        value = broadcast(variables[index].read_value(), root_rank, process_set=process_set)
        with tf.control_dependencies([variables[index].assign(value)]):
            values[index] = tf.identity(value)
    return [values[index] for index in range(len(variables))]


def _overwrite(
    variables: List[tf.Variable], number: int, root_rank: int, name: Optional[str], process_set: Any
) -> List[tf.Tensor]:
    """Overwrites variables of one device. number: index of the device among the devices of the call."""
    arguments = {
        "variables": [variable.handle for variable in variables],
        "root_rank": _running.root_number(root_rank),
        "process_set": _running.set_number(process_set),
    }
    if tf.executing_eagerly():
        _running.run_named(_LIB.farandole_broadcast_variables, name and f"{name}.{number}" if number else name, **arguments)
        return [variable.read_value() for variable in variables]
    name = name or "_".join(["FarandoleBroadcastVariables", variables[0].name, variables[-1].name])
    _running.refuse_xla("FarandoleBroadcastVariables")
    # Keeps automatic control dependencies: ops that read or write the variables stay in order.
    with _graph_frames.hidden():
        done = _LIB.farandole_broadcast_variables(
            name=_running.normalize_name(f"{name}_{number}" if number else name), **arguments
        )
    with tf.control_dependencies([done]):
        return [variable.read_value() for variable in variables]


# ---- Alltoall ------------------------------------------------------------------------------------------------------


@_running.collective
def alltoall(tensor, splits=None, name: Optional[str] = None, ignore_name_scope: bool = False, process_set=None):
    """Cuts `tensor` along the first dimension, sends a slice to each rank, and concatenates the received slices.

    splits: integers (int32 or int64), the number of rows for each rank of the set in order. None: equal slices.

    Returns the received tensor. If `splits` is given, returns (tensor, number of rows received from each rank), the
    latter with the type of `splits`.

    The gradient sends every row back to the rank that it came from.
    """
    tensor = tf.convert_to_tensor(tensor)
    given = tf.constant([], tf.int32) if splits is None else tf.convert_to_tensor(splits)
    if given.dtype not in (tf.int32, tf.int64):
        text = f"splits must be integers (int32 or int64), not {given.dtype.name}"
        raise _errors.invalid_argument(text) if tf.executing_eagerly() else TypeError(text)
    received, received_splits = _running.run(
        _LIB.farandole_alltoall,
        "FarandoleAlltoall",
        [tensor],
        name,
        tensor=tensor,
        splits=given,
        ignore_name_scope=ignore_name_scope,
        process_set=_running.set_number(process_set),
    )
    return received if splits is None else (received, received_splits)


@ops.RegisterGradient("FarandoleAlltoall")
def _alltoall_gradient(op, gradient, _):
    received, _ = alltoall(tf.convert_to_tensor(gradient), splits=op.outputs[1], **_running.of_gradient(op))
    return [received, None]


# ---- Reduce-scatter ------------------------------------------------------------------------------------------------


@_running.collective
def _reducescatter(
    tensor,
    name: Optional[str] = None,
    op=Sum,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set=None,
    about: str = "",
) -> tf.Tensor:
    """Reduces as `_allreduce` does and scatters the rows of the result: the same number to each rank, and an extra row
    to each of the first ranks if the rows do not divide evenly.

    The gradient is an allgather, multiplied by the number of ranks for Sum, as Horovod defines it.
    """
    options = _reduction(op, prescale_factor, postscale_factor)
    of_ranks = (name, ignore_name_scope, process_set, about)
    return run_all(_LIB.farandole_reducescatter, "FarandoleReducescatter", [tensor], *of_ranks, **options)[0]


@_running.collective
def _grouped_reducescatter(
    tensors: Sequence[Any],
    name: Optional[str] = None,
    op=Sum,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set=None,
    about: str = "",
) -> List[tf.Tensor]:
    """Reduces and scatters several tensors, once all of them are ready on all ranks."""
    options = _reduction(op, prescale_factor, postscale_factor)
    of_ranks = (name, ignore_name_scope, process_set, about)
    return run_all(_LIB.farandole_reducescatter, "FarandoleGroupedReducescatter", tensors, *of_ranks, **options)


@ops.RegisterGradient("FarandoleReducescatter")
def _reducescatter_gradient(op, *gradients):
    _running.need_sum_or_average(op, "reducescatter")
    gradients = _running.dense(gradients, op.outputs)
    size = size_op(op.get_attr("process_set"))
    is_sum = op.get_attr("reduce_op") == Sum
    if is_sum and not _running.is_in_strategy():
        gradients = [gradient * tf.cast(size, gradient.dtype) for gradient in gradients]
    elif not is_sum and _running.is_in_strategy():
        gradients = [gradient / tf.cast(size, gradient.dtype) for gradient in gradients]
    factor = float(op.get_attr("prescale_factor")) * float(op.get_attr("postscale_factor"))
    if factor != 1.0:
        gradients = [gradient * tf.cast(factor, gradient.dtype) for gradient in gradients]
    return grouped_allgather(gradients, **_running.of_gradient(op))


# ---- Joining and waiting -------------------------------------------------------------------------------------------


def join(process_set=None) -> tf.Tensor:
    """Declares that this rank has no more data. Blocks until all ranks have joined; meanwhile this rank takes part in
    the allreduces of its peers without changing their results (in an average it counts as zeros). Returns the rank that
    joined last, an int32 scalar. Not differentiable.

    While some ranks have joined, any collective other than allreduce and barrier raises Mismatch.
    """
    number = _running.set_number(process_set)
    if tf.executing_eagerly():
        last_rank = _running.run_eagerly(_LIB.farandole_join, process_set=number)
        _work.names.restart(number)
        return last_rank
    _running.refuse_xla("FarandoleJoin")
    return _LIB.farandole_join(process_set=number)


def barrier(process_set=None, name: Optional[str] = None) -> Optional[tf.Operation]:
    """Blocks until all ranks of the set have called `barrier`. In a graph, returns an op that blocks."""
    number = _running.set_number(process_set)
    if tf.executing_eagerly():
        return _running.run_named(_LIB.farandole_barrier, name, process_set=number)
    _running.refuse_xla("FarandoleBarrier")
    return _LIB.farandole_barrier(process_set=number, name=_running.normalize_name(name or "FarandoleBarrier"))


# ---- Rank and size -------------------------------------------------------------------------------------------------
# Ops that read the values when they run, so that a graph can be built in one job and run in another.


def size_op(process_set_id: int = 0, name: Optional[str] = None) -> tf.Tensor:
    """Number of ranks of a process set, an int32 scalar; -1 before init() and for a set that does not exist."""
    return _LIB.farandole_size(process_set=process_set_id, name=name)


def process_set_included_op(process_set_id: int = 0, name: Optional[str] = None) -> tf.Tensor:
    """1 if this process is in the process set, otherwise 0; -1 before init(), -2 for a set that does not exist."""
    return _LIB.farandole_process_set_included(process_set=process_set_id, name=name)


def local_size_op(name: Optional[str] = None) -> tf.Tensor:
    """Number of ranks on this host, an int32 scalar; -1 before init()."""
    return _LIB.farandole_local_size(name=name)


def rank_op(name: Optional[str] = None, process_set: int = 0) -> tf.Tensor:
    """Position of this process in a process set, an int32 scalar; -1 if it is not a member, and before init()."""
    return _LIB.farandole_rank(process_set=process_set, name=name)


def local_rank_op(name: Optional[str] = None) -> tf.Tensor:
    """Position of this process among the ranks of its host, an int32 scalar; -1 before init()."""
    return _LIB.farandole_local_rank(name=name)


for _op in ("Rank", "Size", "LocalRank", "LocalSize", "ProcessSetIncluded", "Join", "Barrier", "BroadcastVariables"):
    ops.NotDifferentiable(f"Farandole{_op}")
