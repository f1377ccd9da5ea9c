"""Requests of numpy arrays to the engine, and the wait for them."""

import collections
import ctypes
import itertools
import os
import threading
from ctypes import POINTER, byref, c_int32, c_int64
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np

from . import _engine, _waiting, errors
from ._engine import Collective

# What the engine holds, by the number that it is handed as context. Keeps arrays alive until their `done`.
_pending: Dict[int, Tuple[Any, int]] = {}
_contexts = itertools.count(1)


def dtype_of(array: np.ndarray) -> int:
    """farandole_dtype of an array. Raises InvalidArgument for types that no collective can move."""
    number = _engine.DTYPES.get(array.dtype.name)
    if number is None or not array.dtype.isnative:
        known = ", ".join(_engine.DTYPES)
        raise errors.InvalidArgument(
            f"arrays of {array.dtype.str} ({array.dtype}) can not be reduced or sent; convert to one of: {known}"
        )
    return number


def _integers(values: Sequence[int]) -> Any:
    return (c_int64 * len(values))(*values)


class Work:
    """A request that was handed over. `wait()` gives its result; it may be called again.

    The engine reads the inputs and writes the outputs until then: leave them alone.
    """

    def __init__(self, inputs: List[np.ndarray], outputs: List[Optional[np.ndarray]], result: Callable[["Work"], Any]):
        self.inputs = inputs
        self.outputs = outputs
        self.received_splits: Optional[List[int]] = None
        self.last_rank = -1
        self._result = result
        self._left = set(range(max(len(inputs), 1)))
        self._error: Optional[errors.Error] = None
        self._done_flag = c_int32(0)

    def done(self) -> bool:
        """Whether `wait` would return at once. Does not move the engine on."""
        return not self._left

    def wait(self) -> Any:
        """Blocks until the request is finished and returns its result.

        Raises what became of it: Mismatch, PeerLost, Timeout, … An exception of a signal handler (Ctrl-C) ends the
        wait, not the request.
        """
        if self._left:
            _waiting.wait(self._done_flag, self.done)
        if self._error is not None:
            raise self._error
        return self._result(self)

    def finish(self, index: int, error: Optional[errors.Error]) -> None:
        self._error = self._error or error
        self._left.discard(index)
        if not self._left:
            self._done_flag.value = 1


def _allocate(context: int, shape: Any, dimensions: int) -> Optional[int]:
    try:
        work, index = _pending[context]
        array = np.empty(tuple(shape[:dimensions]), work.inputs[index].dtype)
        work.outputs[index] = array
        return array.ctypes.data
    except MemoryError:
        return None


def _done(context: int, result: Any) -> None:
    work, index = _pending.pop(context)
    error = None
    try:
        what = result.contents
        if what.error:
            error = _engine.exception_of(what.error)
        elif what.received_splits_count > 0:
            work.received_splits = what.received_splits[: what.received_splits_count]
    finally:
        work.finish(index, error)


def _joined(context: int, error: Optional[int], last_rank: int) -> None:
    work, index = _pending.pop(context)
    work.last_rank = last_rank
    work.finish(index, _engine.exception_of(error) if error else None)


# C code calls these until the process ends.
_ALLOCATE = _engine.AllocateFunction(_allocate)
_DONE = _engine.DoneFunction(_done)
_JOINED = _engine.JoinedFunction(_joined)


class Names:
    """Names for requests without one: the n-th of each kind in a process set is the same on all of its ranks."""

    def __init__(self):
        self._lock = threading.Lock()
        self._counts: Dict[Tuple[str, int], int] = collections.defaultdict(int)

    def next(self, kind: str, process_set: int) -> str:
        with self._lock:
            number = self._counts[kind, process_set]
            self._counts[kind, process_set] += 1
        return f"{kind}.noname.{number}"

    def clear(self) -> None:
        with self._lock:
            self._counts.clear()


names = Names()


def _start_anew() -> None:
    """In a forked child: nobody there finishes what the parent has handed over, or unlocks what its threads hold."""
    global names
    names = Names()
    if not _pending:
        return
    try:
        _engine.call("farandole_check_not_forked")
    except errors.InvalidArgument as error:
        for work, index in _pending.values():
            work.finish(index, error)
    _pending.clear()


os.register_at_fork(after_in_child=_start_anew)


def _fill(tensor: Any, work: Work, index: int, context: int, splits: Optional[Sequence[int]]) -> None:
    tensor.struct_bytes = ctypes.sizeof(_engine.Tensor)
    tensor.context = context
    tensor.done = _DONE
    if not work.inputs:  # a barrier
        return
    array, output = work.inputs[index], work.outputs[index]
    tensor.dtype = dtype_of(array)
    tensor.dimensions = array.ndim
    tensor.shape = _integers(array.shape)
    tensor.input = array.ctypes.data if array.size else None
    if output is None:
        tensor.allocate = _ALLOCATE
    else:
        tensor.output = output.ctypes.data
    if splits is not None:
        tensor.splits = _integers(splits)
        tensor.splits_count = len(splits)


def submit(
    work: Work,
    kind: str,
    collective: Collective,
    process_set: int,
    name: Optional[str] = None,
    op: int = _engine.Sum,
    root: int = 0,
    prescale: float = 1.0,
    postscale: float = 1.0,
    splits: Optional[Sequence[int]] = None,
    caller_waits: bool = False,
) -> Work:
    """Hands `work` over; `name` is made up from `kind` if it is None. Raises what farandole_submit reports.

    caller_waits: whether this thread waits for it at once.
    """
    _engine.need_initialized()
    count = max(len(work.inputs), 1)
    tensors = (_engine.Tensor * count)()
    contexts = [next(_contexts) for _ in range(count)]
    for index, context in enumerate(contexts):
        _fill(tensors[index], work, index, context, splits)
    request = _engine.Request(
        name=(name if name is not None else names.next(kind, process_set)).encode(),
        collective=collective,
        op=op,
        root=root,
        process_set=process_set,
        prescale=prescale,
        postscale=postscale,
        tensors=ctypes.cast(tensors, POINTER(_engine.Tensor)),
        tensor_count=count,
        caller_waits=int(caller_waits and _waiting.caller_is_alone()),
    )
    for index, context in enumerate(contexts):
        _pending[context] = (work, index)
    try:
        _engine.call("farandole_submit", byref(request))
    except errors.Error:
        for context in contexts:
            _pending.pop(context, None)
        raise
    return work


def submit_join(work: Work, process_set: int) -> Work:
    _engine.need_initialized()
    context = next(_contexts)
    _pending[context] = (work, 0)
    try:
        _engine.call("farandole_join", process_set, context, _JOINED)
    except errors.Error:
        _pending.pop(context, None)
        raise
    return work
