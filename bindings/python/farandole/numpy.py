# SPDX-License-Identifier: Apache-2.0
"""Collectives of numpy arrays, without a framework.

    import farandole.numpy as collectives

    total = collectives.allreduce([1.0, 2.0], op=collectives.Sum)
    work = collectives.allgather_async(rows)
    ...                                                   # compute meanwhile
    everyone = work.wait()

Arguments may be anything that `numpy.asarray` accepts. Types: bool, integers of 8 to 64 bits, float16, float32,
float64, and bfloat16 of the package ml_dtypes.

Calls block, let other threads run meanwhile, and raise the same error on all ranks. Calls with `_async` return a
`Work`: do not touch the arrays until `work.wait()` has returned.

`name` matches the calls of the ranks, in any order. Without a name, the n-th call in a process set matches the n-th
call of every other rank. A call with invalid arguments raises InvalidArgument and counts as a call: peers raise
Mismatch, which names this rank and the reason.

`out` may be the input itself. Any other overlap of `out` with the input, or with another array of the call, raises
InvalidArgument. Arrays from `window` are reduced without a copy.
"""

import ctypes
import inspect
import math
import operator
import weakref
from typing import TYPE_CHECKING, Any, Callable, List, Optional, Sequence, Tuple, Type, TypeVar, Union

import numpy as np

from . import _engine, _waiting, _work, errors
from ._engine import Adasum, Average, BitAnd, BitOr, BitXor, Collective, Max, Min, Product, ReduceOp, Sum
from ._work import Call, Work
from .process_sets import ProcessSet, global_process_set, id_of

if TYPE_CHECKING:
    from typing_extensions import ParamSpec

    _P = ParamSpec("_P")
    _R = TypeVar("_R")

__all__ = [
    "Adasum",
    "Average",
    "BitAnd",
    "BitOr",
    "BitXor",
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


def _empty_group() -> Work:
    """The finished Work of a group without arrays, which involves no communication."""
    work = Work([], [], _all_outputs)
    work.finish(0, None)
    return work


def _blocking(begin: "Callable[_P, Work]", result: "Type[_R]", documentation: str) -> "Callable[_P, _R]":
    """Makes the blocking form of an `_async` function: the same arguments; returns the result of the work.

    Hides the argument `_caller_waits`, which only this function passes, in the signatures of both forms.
    """
    signature = inspect.signature(begin)
    shown = signature.replace(parameters=[each for each in signature.parameters.values() if each.name[0] != "_"])

    def call(*args: Any, **kwargs: Any) -> Any:
        with _waiting.in_library():  # for the submission and the wait
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
    """As `allreduce`, but non-blocking: `wait()` returns the array."""
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
    op: Average (the default), Sum, Min, Max, Product, Adasum, which takes floating-point types only, or BitAnd, BitOr
        or BitXor, which take integers and bool. `average=False` is Horovod's older form of op=Sum.
    prescale_factor, postscale_factor: factors of the inputs and of the result. Integers that are scaled or averaged are
        truncated toward zero. Factors and Average do not support bool; bitwise operations have no factors.
    out: array for the result, which may be `tensor`. None: a new array.

    Collective over the process set. Blocks. A rank sends about 2 · (size - 1) / size times the bytes of a large array.
    Raises Mismatch if the ranks disagree (`out` stays unchanged), PeerLost and Timeout when the job has failed.
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
    """As `grouped_allreduce`, but non-blocking: `wait()` returns the list."""
    if not len(tensors):
        return _empty_group()
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
    """Reduces each of `tensors` over the ranks in one collective, once all arrays are ready on all ranks. Small arrays
    together are much faster than in separate calls.

    Arguments and errors as for `allreduce`. Returns an empty list for an empty list.
    """,
)


def allgather_async(
    tensor: Any,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
    *,
    _caller_waits: bool = False,
) -> Work:
    """As `allgather`, but non-blocking: `wait()` returns the array."""
    with Call(process_set, name) as call:
        work = Work([_input(tensor)], [None], _first_output)
        return call.submit(work, Collective.Allgather, caller_waits=_caller_waits)


allgather = _blocking(
    allgather_async,
    np.ndarray,
    """Concatenates the arrays of all ranks along the first dimension, which may differ between ranks. Every rank gets
    the result.

    A rank sends and receives about (size - 1) / size times the bytes of a large result. Raises Mismatch if the ranks
    disagree on any other dimension or on the type, otherwise the errors of `allreduce`.
    """,
)


def grouped_allgather_async(
    tensors: Sequence[Any],
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
    *,
    _caller_waits: bool = False,
) -> Work:
    """As `grouped_allgather`, but non-blocking: `wait()` returns the list."""
    if not len(tensors):
        return _empty_group()
    with Call(process_set, name) as call:
        work = Work([_input(tensor) for tensor in tensors], [None] * len(tensors), _all_outputs)
        return call.submit(work, Collective.Allgather, caller_waits=_caller_waits)


grouped_allgather = _blocking(
    grouped_allgather_async,
    List[np.ndarray],
    """Gathers each of `tensors` as `allgather` does, in one collective. Returns an empty list for an empty list.""",
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
    """As `broadcast`, but non-blocking: `wait()` returns the array."""
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
    """Returns the array of rank `root_rank` on every rank. The root is a rank of the job, even if `process_set` is
    given.

    tensor: of the same shape and type on all ranks. Only the root's values are used.

    Every rank but the root receives the array once. Raises Mismatch if the ranks disagree, for example on the root
    (`out` stays unchanged), InvalidArgument if the root is not a member of the process set.
    """,
)


def broadcast_(
    tensor: np.ndarray, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> np.ndarray:
    """Overwrites `tensor` with the array of rank `root_rank`, and returns `tensor`. Errors as for `broadcast`."""
    return broadcast_async(tensor, root_rank, name, process_set, _caller_waits=True, _in_place=True).wait()


def alltoall_async(
    tensor: Any,
    splits: Optional[Sequence[int]] = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
    *,
    _caller_waits: bool = False,
) -> Work:
    """As `alltoall`, but non-blocking: `wait()` returns the result of `alltoall`."""

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
    """Sends a slice of the first dimension to each rank, and concatenates the received slices in the order of the
    ranks.

    splits: number of rows for each rank of the process set; None: equal slices. If given, the result is a pair of the
        rows and the number of rows from each rank.

    A rank sends each row that is not its own once. Raises Mismatch if the ranks disagree on any other dimension or on the
    type, InvalidArgument if `splits` does not fit `tensor`.
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
    """As `reducescatter`, but non-blocking: `wait()` returns the array."""
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
    """Reduces `tensor` over the ranks and scatters the rows of the result: each rank gets a part of the first
    dimension, each of the first ranks an extra row if the rows do not divide evenly.

    Arguments and errors as for `allreduce`, without Adasum. A rank sends about (size - 1) / size times the bytes of a
    large array, half as much as `allreduce`.
    """,
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
    """As `grouped_reducescatter`, but non-blocking: `wait()` returns the list."""
    if not len(tensors):
        return _empty_group()
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
    """Reduces and scatters each of `tensors` as `reducescatter` does, in one collective. Returns an empty list for an
    empty list.""",
)


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Blocks until all ranks of the process set have called `barrier`."""
    with Call(process_set) as call:
        work = call.submit(Work([], [], _nothing), Collective.Barrier, caller_waits=True)
    work.wait()


def join(process_set: ProcessSet = global_process_set) -> int:
    """Declares that this rank has no more data. Blocks until all ranks have joined; meanwhile this rank takes part in
    the allreduces of its peers without changing their results (in an average it counts as zeros). Returns the rank that
    joined last. Restarts the count of calls without a name."""
    number = id_of(process_set)
    last_rank = _work.submit_join(Work([], [], lambda work: work.last_rank), number).wait()
    _work.names.restart(number)
    return last_rank


def poll(work: Work) -> bool:
    """True if `synchronize(work)` would return immediately. Non-blocking."""
    return work.done()


def synchronize(work: Work) -> Any:
    """Blocks until an asynchronous call has finished, and returns its result, like `work.wait()`."""
    return work.wait()


def window(shape: Union[int, Sequence[int]], dtype: Any = np.float32) -> np.ndarray:
    """Allocates an uninitialised array in memory that the ranks of this host share. Collectives on the array need no
    copies.

    Returns an ordinary array if there is no such memory: before `init`, and with FARANDOLE_SHARED_MEMORY=off. The
    memory is freed with the last reference to the array, and stays valid after `shutdown`.
    """
    dimensions = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    dtype = np.dtype(dtype)
    payload_bytes = math.prod(dimensions) * dtype.itemsize
    memory = _engine.lib.farandole_window_allocate(payload_bytes) if payload_bytes > 0 else None
    if not memory:
        return np.empty(dimensions, dtype)
    buffer = (ctypes.c_char * payload_bytes).from_address(memory)
    # Not at the end of the interpreter: arrays that are still in use keep their memory.
    weakref.finalize(buffer, _engine.lib.farandole_window_free, memory).atexit = False
    return np.ndarray(dimensions, dtype, buffer=buffer)
