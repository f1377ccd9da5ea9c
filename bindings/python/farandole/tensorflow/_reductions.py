# SPDX-License-Identifier: Apache-2.0
"""Reductions of tensors and of IndexedSlices, with Horovod's arguments."""

import contextlib
from typing import Any, Callable, List, Optional, Sequence, Union

import tensorflow as tf

from .. import errors
from .._engine import Adasum, Average, Sum, choose_op
from ..process_sets import ProcessSet, global_process_set
from . import mpi_ops
from ._running import collective, name_from
from .compression import Compression

Reducible = Union[tf.Tensor, tf.Variable, tf.IndexedSlices]


def on_device(name: str) -> Any:
    """The scope of a device. An empty name leaves the choice to TensorFlow."""
    return tf.device(name) if name else contextlib.nullcontext()


def divided(value: Any, by: int) -> Any:
    """Divides as op=Average does: integers are truncated toward zero."""
    if isinstance(value, tf.IndexedSlices):
        return tf.IndexedSlices(divided(value.values, by), value.indices, value.dense_shape)
    if value.dtype.is_integer:
        return tf.truncatediv(value, tf.cast(by, value.dtype))
    return value / tf.cast(by, value.dtype)


def _compressed(
    reduce: Callable[..., Sequence[tf.Tensor]],
    default_name: str,
    tensors: Sequence[Any],
    compression: Any,
    name: Optional[str],
    **options: Any,
) -> List[tf.Tensor]:
    """Compresses the tensors, calls `reduce(sent, name=…, **options)`, and decompresses the results."""
    given = [tf.convert_to_tensor(tensor) for tensor in tensors]
    sent, contexts = zip(*[compression.compress(tensor) for tensor in given])
    # The name comes from the uncompressed tensors, so that ranks with different compressions match and raise Mismatch.
    reduced = reduce(sent, name=name or name_from(default_name, given), **options)
    return [compression.decompress(tensor, context) for tensor, context in zip(reduced, contexts)]


def _of_one(reduce: Callable[..., tf.Tensor]) -> Callable[..., List[tf.Tensor]]:
    return lambda tensors, **options: [reduce(tensors[0], **options)]


def _check_sparse(op: int, prescale_factor: float, postscale_factor: float) -> None:
    if op not in (Sum, Average):
        hint = "; pass sparse_as_dense=True" if op == Adasum else ""
        raise errors.Unsupported(f"IndexedSlices are reduced by Sum and Average only{hint}")
    if prescale_factor != 1.0 or postscale_factor != 1.0:
        raise errors.Unsupported("IndexedSlices are not scaled: leave prescale_factor and postscale_factor at 1.0")


def _sparse_text(op: int, about: str) -> str:
    """Text that the ranks compare, because to the engine a reduction of slices is an allgather without an operation."""
    text = f"{choose_op(None, op).name} of IndexedSlices"
    return f"{text}, {about}" if about else text


def _slices(given: tf.IndexedSlices, values: tf.Tensor, indices: tf.Tensor, op: int, size: int) -> tf.IndexedSlices:
    """Slices gathered from all ranks. An index of several ranks occurs several times, and its values add up. An average
    of integers therefore has floating-point values, as in Horovod: truncated values would not add up to the average."""
    return tf.IndexedSlices(values / tf.cast(size, values.dtype) if op == Average else values, indices, given.dense_shape)


@collective
def allreduce(
    tensor: Reducible,
    average: Optional[bool] = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
) -> Union[tf.Tensor, tf.IndexedSlices]:
    """Reduces a tensor over the ranks; every rank gets the result.

        mean = hvd.allreduce(loss)                  # the average over all ranks
        total = hvd.allreduce(count, op=hvd.Sum)

    tensor: of the same shape and type on all ranks. IndexedSlices are gathered instead: the values and indices of all
        ranks are concatenated, which represents the same reduced tensor.
    average: older form of `op`: True means Average, False means Sum. Not together with `op`.
    device_dense, device_sparse: devices for the op; "" lets TensorFlow choose.
    compression: `Compression.none`, `.fp16` or `.bf16`: the type in which the tensor travels.
    op: Average (if None), Sum, Min, Max, Product or Adasum; Sum and Average for IndexedSlices.
    prescale_factor, postscale_factor: factors of the inputs and of the result. Integers that are scaled or averaged are
        truncated toward zero.
    name: matches the calls of the ranks. None: made from names in the graph; in eager mode, calls are matched by their
        order.
    ignore_name_scope: the name does not include the name scopes around the call.

    Blocks in eager mode. Differentiable. A rank sends about 2 · (size - 1) / size times the bytes of a large tensor.
    Raises Mismatch on all ranks if they disagree, PeerLost and Timeout when the job has failed.
    """
    op = choose_op(average, op)
    if isinstance(tensor, tf.IndexedSlices):
        _check_sparse(op, prescale_factor, postscale_factor)
        with on_device(device_sparse):
            return _gather_slices([tensor], op, name, process_set)[0]
    with on_device(device_dense):
        return _compressed(
            _of_one(mpi_ops._allreduce),
            "FarandoleAllreduce",
            [tensor],
            compression,
            name,
            op=op,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            process_set=process_set,
            ignore_name_scope=ignore_name_scope,
        )[0]


def _suffixed(name: Optional[str], part: str) -> Optional[str]:
    return f"{name}.{part}" if name and part else name


@collective
def grouped_allreduce(
    tensors: Sequence[Reducible],
    average: Optional[bool] = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    name: Optional[str] = None,
    _about: str = "",
) -> List[Union[tf.Tensor, tf.IndexedSlices]]:
    """Reduces each of `tensors` as `allreduce` does, in one collective: nothing is reduced before all tensors are ready
    on all ranks. Small tensors together are much faster than in separate calls.

    Types may be mixed. Returns an empty list for an empty list.
    """
    op = choose_op(average, op)
    results: List[Any] = [None] * len(tensors)
    sparse = [i for i, tensor in enumerate(tensors) if isinstance(tensor, tf.IndexedSlices)]
    dense = [i for i in range(len(tensors)) if i not in set(sparse)]
    if sparse:
        _check_sparse(op, prescale_factor, postscale_factor)
        with on_device(device_sparse):
            given = [tensors[i] for i in sparse]
            gathered = _gather_slices(given, op, name, process_set, _about, ignore_name_scope)
        for i, slices in zip(sparse, gathered):
            results[i] = slices
    if dense:
        with on_device(device_dense):
            reduced = _compressed(
                mpi_ops._grouped_allreduce,
                "FarandoleGroupedAllreduce",
                [tensors[i] for i in dense],
                compression,
                name,
                op=op,
                prescale_factor=prescale_factor,
                postscale_factor=postscale_factor,
                process_set=process_set,
                ignore_name_scope=ignore_name_scope,
                about=_about,
            )
        for i, tensor in zip(dense, reduced):
            results[i] = tensor
    return results


def _gather_slices(
    slices: Sequence[tf.IndexedSlices],
    op: int,
    name: Optional[str],
    process_set: ProcessSet,
    about: str = "",
    ignore_name_scope: bool = False,
) -> List[tf.IndexedSlices]:
    """Gathers the values and indices of all slices in one op."""
    parts = [each.values for each in slices] + [each.indices for each in slices]
    of_ranks = (_suffixed(name, "slices"), ignore_name_scope, process_set, _sparse_text(op, about))
    gathered = mpi_ops.gather_all("FarandoleGroupedAllgather", parts, *of_ranks)
    return [
        _slices(given, values, indices, op, process_set.size())
        for given, values, indices in zip(slices, gathered, gathered[len(slices) :])
    ]


@collective
def reducescatter(
    tensor: Union[tf.Tensor, tf.Variable],
    device_dense: str = "",
    compression: Any = Compression.none,
    op: int = Average,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> tf.Tensor:
    """Reduces a tensor over the ranks and scatters the rows of the result: each
    rank gets a part of the first dimension, each of the first ranks an extra row
    if the rows do not divide evenly. Arguments and errors as for `allreduce`."""
    with on_device(device_dense):
        return _compressed(
            _of_one(mpi_ops._reducescatter),
            "FarandoleReducescatter",
            [tensor],
            compression,
            name,
            op=op,
            process_set=process_set,
            ignore_name_scope=ignore_name_scope,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
        )[0]


@collective
def grouped_reducescatter(
    tensors: Sequence[Union[tf.Tensor, tf.Variable]],
    device_dense: str = "",
    compression: Any = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> List[tf.Tensor]:
    """Reduces and scatters each of `tensors` as `reducescatter` does,
    in one collective. Returns an empty list for an empty list."""
    if not tensors:
        return []
    with on_device(device_dense):
        return _compressed(
            mpi_ops._grouped_reducescatter,
            "FarandoleGroupedReducescatter",
            tensors,
            compression,
            None,
            op=op,
            process_set=process_set,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
        )
