# SPDX-License-Identifier: Apache-2.0
"""Collectives of numpy arrays, without any framework.

Ranks that use the same `name` mean the same tensor, in whatever order they come to it. Without a name, the n-th call of
a kind in a process set is the same on all its ranks. A call with arguments that can not work raises InvalidArgument and
counts as a call: the other ranks raise Mismatch, with this rank and the reason.

Whatever `numpy.asarray` accepts may be passed; the types are bool, 8 to 64 bit integers, float16,
float32, float64, and bfloat16 of the package ml_dtypes. Calls without `_async` block, let other threads run meanwhile,
and raise what went wrong, the same on all ranks. Those with `_async` return a `Work`; the arrays belong to the library until it is waited for.

`out` may be the input itself, but must not overlap it, or another array of the call, otherwise: InvalidArgument. Arrays made by
`window` are reduced without a copy.
"""

import ctypes
import inspect
import math
import operator
import weakref
from typing import TYPE_CHECKING, Any, Callable, List, Optional, Sequence, Tuple, Type, TypeVar, Union

import numpy as np

from . import _engine, _waiting, _work, errors
from ._engine import Adasum, Average, Collective, Max, Min, Product, ReduceOp, Sum
from ._work import Call, Work
from .process_sets import ProcessSet, global_process_set, id_of

if TYPE_CHECKING:
    from typing_extensions import ParamSpec

    _P = ParamSpec("_P")
    _R = TypeVar("_R")

__all__ = [
    "Adasum",
    "Average",
    "Max",
    "Min",
    "Product",
    "ReduceOp",
    "Sum",
    "Work",
    "allgather",
    "allgather_async",
    "allreduce",
    "allreduce_async",
    "alltoall",
    "alltoall_async",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_async",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "join",
    "poll",
    "reducescatter",
    "reducescatter_async",
    "synchronize",
    "window",
]


def _input(tensor: Any) -> np.ndarray:
    if isinstance(tensor, np.ma.MaskedArray):
        raise errors.InvalidArgument(
            "a masked array would travel without its mask: pass tensor.filled(value), or tensor.data and the mask apart"
        )
    return np.asarray(tensor, order="C")


def _checked_splits(splits: Sequence[int]) -> List[int]:
    try:
        return [operator.index(each) for each in splits]
    except TypeError:
        raise errors.InvalidArgument(f"splits must be integers, not {splits!r}") from None


def _output(out: Optional[np.ndarray], like: np.ndarray) -> np.ndarray:
    if out is None:
        return np.empty(like.shape, like.dtype)
    fits = isinstance(out, np.ndarray) and out.shape == like.shape and out.dtype == like.dtype
    if not fits or not out.flags.c_contiguous or not out.flags.writeable:
        raise errors.InvalidArgument(
            f"out must be a contiguous, writeable array of shape {like.shape} and type {like.dtype}"
        )
    return out


def _first_output(work: Work) -> np.ndarray:
    return work.outputs[0]


def _all_outputs(work: Work) -> List[np.ndarray]:
    return list(work.outputs)


def _nothing(work: Work) -> None:
    return None


def _of_no_arrays() -> Work:
    """A group of no arrays, which no rank hears of."""
    work = Work([], [], _all_outputs)
    work.finish(0, None)
    return work


def _blocking(begin: "Callable[_P, Work]", result: "Type[_R]", documentation: str) -> "Callable[_P, _R]":
    """The blocking form of an `_async` function: its arguments, and the result of its work.

    `_caller_waits`, which only this passes, is no argument for users, and help() shows neither form with it.
    """
    signature = inspect.signature(begin)
    shown = signature.replace(parameters=[each for each in signature.parameters.values() if each.name[0] != "_"])

    def call(*args: Any, **kwargs: Any) -> Any:
        with _waiting.in_library():  # once for both
            return begin(*args, **kwargs, _caller_waits=True).wait()

    call.__name__ = call.__qualname__ = begin.__name__[: -len("_async")]
    call.__doc__ = documentation
    call.__signature__ = shown.replace(return_annotation=result)
    begin.__signature__ = shown
    return call


def allreduce_async(
    tensor: Any,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    out: Optional[np.ndarray] = None,
    *,
    _caller_waits: bool = False,
) -> Work:
    """As `allreduce`; `wait()` gives the array."""
    with Call(process_set, name) as call:
        array = _input(tensor)
        return call.submit(
            Work([array], [_output(out, array)], _first_output),
            Collective.Allreduce,
            op=_engine.choose_op(average, op),
            prescale=prescale_factor,
            postscale=postscale_factor,
            caller_waits=_caller_waits,
        )


allreduce = _blocking(
    allreduce_async,
    np.ndarray,
    """Reduces `tensor` over the ranks; every rank gets the result.

    tensor: of the same shape and type on all ranks.
    op: Average (the default), Sum, Min, Max, Product or Adasum, which takes floating-point types only. `average=False`
        is Horovod's older form of op=Sum.
    prescale_factor, postscale_factor: factors of the inputs and of the result. Products of integers, and their average,
        are cut off toward zero. Neither they nor Average take bool.
    out: array that takes the result; may be `tensor`, else apart from it. None makes one.

    Raises Mismatch if the ranks disagree; `out` is unchanged then. Collective: all ranks of the process set.
    """,
)


def grouped_allreduce_async(
    tensors: Sequence[Any],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    out: Optional[Sequence[np.ndarray]] = None,
    *,
    _caller_waits: bool = False,
) -> Work:
    """As `grouped_allreduce`; `wait()` gives the list."""
    if not len(tensors):
        return _of_no_arrays()
    with Call(process_set, name) as call:
        inputs = [_input(tensor) for tensor in tensors]
        outs: Sequence[Any] = [None] * len(inputs) if out is None else out
        if len(outs) != len(inputs):
            raise errors.InvalidArgument(f"{len(inputs)} arrays, but out has {len(outs)}")
        return call.submit(
            Work(inputs, [_output(each, array) for each, array in zip(outs, inputs)], _all_outputs),
            Collective.Allreduce,
            op=_engine.choose_op(average, op),
            prescale=prescale_factor,
            postscale=postscale_factor,
            caller_waits=_caller_waits,
        )


grouped_allreduce = _blocking(
    grouped_allreduce_async,
    List[np.ndarray],
    """Reduces each of `tensors` over the ranks, all together: none before all are ready on all ranks.

    Arguments are those of `allreduce`. An empty list gives an empty list.
    """,
)


def allgather_async(
    tensor: Any,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
    *,
    _caller_waits: bool = False,
) -> Work:
    """As `allgather`; `wait()` gives the array."""
    with Call(process_set, name) as call:
        work = Work([_input(tensor)], [None], _first_output)
        return call.submit(work, Collective.Allgather, caller_waits=_caller_waits)


allgather = _blocking(
    allgather_async,
    np.ndarray,
    """The arrays of all ranks, one after the other along the first dimension, which may differ from rank to rank.

    Raises Mismatch if the ranks disagree on the other dimensions or the type.
    """,
)


def grouped_allgather_async(
    tensors: Sequence[Any],
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
    *,
    _caller_waits: bool = False,
) -> Work:
    """As `grouped_allgather`; `wait()` gives the list."""
    if not len(tensors):
        return _of_no_arrays()
    with Call(process_set, name) as call:
        work = Work([_input(tensor) for tensor in tensors], [None] * len(tensors), _all_outputs)
        return call.submit(work, Collective.Allgather, caller_waits=_caller_waits)


grouped_allgather = _blocking(
    grouped_allgather_async,
    List[np.ndarray],
    """Gathers each of `tensors` as `allgather` does, all together. An empty list gives an empty list.""",
)


def broadcast_async(
    tensor: Any,
    root_rank: int,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
    out: Optional[np.ndarray] = None,
    *,
    _caller_waits: bool = False,
    _in_place: bool = False,
) -> Work:
    """As `broadcast`; `wait()` gives the array."""
    with Call(process_set, name) as call:
        if _in_place and not isinstance(tensor, np.ndarray):
            raise errors.InvalidArgument(f"broadcast_ overwrites a numpy array; got {type(tensor).__name__}")
        array = _input(tensor)
        return call.submit(
            Work([array], [_output(tensor if _in_place else out, array)], _first_output),
            Collective.Broadcast,
            root=_engine.checked_root(root_rank, call.process_set),
            caller_waits=_caller_waits,
        )


broadcast = _blocking(
    broadcast_async,
    np.ndarray,
    """The array of rank `root_rank` (a rank of the job, also in a process set), on every rank.

    tensor: of the same shape and type on all ranks; only the root's values matter.

    Raises Mismatch if the ranks disagree, also on the root; `out` is unchanged then.
    """,
)


def broadcast_(
    tensor: np.ndarray, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> np.ndarray:
    """Overwrites `tensor` with that of rank `root_rank`, and returns it."""
    return broadcast_async(tensor, root_rank, name, process_set, _caller_waits=True, _in_place=True).wait()


def alltoall_async(
    tensor: Any,
    splits: Optional[Sequence[int]] = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
    *,
    _caller_waits: bool = False,
) -> Work:
    """As `alltoall`; `wait()` gives what that returns."""

    def result(work: Work) -> Any:
        output = work.outputs[0]
        return output if splits is None else (output, np.asarray(work.received_splits, np.int64))

    with Call(process_set, name) as call:
        return call.submit(
            Work([_input(tensor)], [None], result),
            Collective.Alltoall,
            splits=None if splits is None else _checked_splits(splits),
            caller_waits=_caller_waits,
        )


alltoall = _blocking(
    alltoall_async,
    Union[np.ndarray, Tuple[np.ndarray, np.ndarray]],
    """Sends rows of the first dimension to each rank and returns those that came, in the order of the ranks.

    splits: number of rows for each rank of the process set; None deals them out evenly. If given, the result is a pair
        of the rows and the number that came from each rank.
    """,
)


def reducescatter_async(
    tensor: Any,
    op: int = Average,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    *,
    _caller_waits: bool = False,
) -> Work:
    """As `reducescatter`; `wait()` gives the array."""
    with Call(process_set, name) as call:
        return call.submit(
            Work([_input(tensor)], [None], _first_output),
            Collective.ReduceScatter,
            op=_engine.choose_op(None, op),
            prescale=prescale_factor,
            postscale=postscale_factor,
            caller_waits=_caller_waits,
        )


reducescatter = _blocking(
    reducescatter_async,
    np.ndarray,
    """Reduces `tensor` over the ranks and deals out the rows of the result: each rank gets its part of the first
    dimension, the first ranks one row more if they do not divide evenly. `op` as for `allreduce`, but Adasum.""",
)


def grouped_reducescatter_async(
    tensors: Sequence[Any],
    op: int = Average,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    *,
    _caller_waits: bool = False,
) -> Work:
    """As `grouped_reducescatter`; `wait()` gives the list."""
    if not len(tensors):
        return _of_no_arrays()
    with Call(process_set, name) as call:
        return call.submit(
            Work([_input(tensor) for tensor in tensors], [None] * len(tensors), _all_outputs),
            Collective.ReduceScatter,
            op=_engine.choose_op(None, op),
            prescale=prescale_factor,
            postscale=postscale_factor,
            caller_waits=_caller_waits,
        )


grouped_reducescatter = _blocking(
    grouped_reducescatter_async,
    List[np.ndarray],
    """Reduces each of `tensors` as `reducescatter` does, all together. An empty list gives an empty list.""",
)


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Blocks until all ranks of the process set have called it."""
    with Call(process_set) as call:
        work = call.submit(Work([], [], _nothing), Collective.Barrier, caller_waits=True)
    work.wait()


def join(process_set: ProcessSet = global_process_set) -> int:
    """This rank has no more data: until all ranks have joined it takes part in the others' allreduces without changing
    their results (an average counts it as zeros). Blocks, and returns the rank that joined last. Calls without a name are
    counted anew from then on."""
    number = id_of(process_set)
    last_rank = _work.submit_join(Work([], [], lambda work: work.last_rank), number).wait()
    _work.names.restart(number)
    return last_rank


def poll(work: Work) -> bool:
    """Whether `synchronize(work)` would return at once."""
    return work.done()


def synchronize(work: Work) -> Any:
    """Waits for an asynchronous call and returns its result: `work.wait()`."""
    return work.wait()


def window(shape: Union[int, Sequence[int]], dtype: Any = np.float32) -> np.ndarray:
    """A new array, not filled, in memory that the ranks of this host share: collectives on it need no copies.

    An ordinary array where there is no such memory: before `init`, and where FARANDOLE_SHARED_MEMORY is off. The memory
    is given back when nothing refers to the array any more; it stays valid after `shutdown`.
    """
    dimensions = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    dtype = np.dtype(dtype)
    payload_bytes = math.prod(dimensions) * dtype.itemsize
    memory = _engine.lib.farandole_window_allocate(payload_bytes) if payload_bytes > 0 else None
    if not memory:
        return np.empty(dimensions, dtype)
    buffer = (ctypes.c_char * payload_bytes).from_address(memory)
    # Not at the end of the interpreter: arrays that are still in use then keep their memory.
    weakref.finalize(buffer, _engine.lib.farandole_window_free, memory).atexit = False
    return np.ndarray(dimensions, dtype, buffer=buffer)
