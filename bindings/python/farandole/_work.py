# SPDX-License-Identifier: Apache-2.0
"""Submits numpy arrays to the engine, and waits for results."""

import collections
import ctypes
import functools
import itertools
import os
import threading
from ctypes import POINTER, byref, c_int32, c_int64
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np

from . import _engine, _waiting, errors
from ._engine import Collective
from .process_sets import ProcessSet, id_of

# (Work, index of the array) by context, the number that the
# engine passes to callbacks. Keeps arrays alive until `done`.
_pending: Dict[int, Tuple[Any, int]] = {}
_contexts = itertools.count(1)


def dtype_of(array: np.ndarray) -> int:
    """farandole_dtype of an array. Raises InvalidArgument for types that collectives do not support."""
    return _number_of(array.dtype)


@functools.lru_cache(maxsize=64)  # numpy takes 4 µs to make the name of a type
def _number_of(dtype: np.dtype) -> int:
    number = _engine.DTYPES.get(dtype.name)
    if number is None or not dtype.isnative:
        known = ", ".join(_engine.DTYPES)
        raise errors.InvalidArgument(
            f"arrays of {dtype.str} ({dtype}) cannot be reduced or sent; convert to one of: {known}"
        )
    return number


def _integers(values: Sequence[int]) -> Any:
    return (c_int64 * len(values))(*values)


class Work:
    """A submitted request. `wait()` returns its result, and may be called again.

    The engine reads the inputs and writes the outputs until the request is finished: do not touch the arrays before.
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
        """True if `wait` would return immediately. Non-blocking; does not make progress."""
        return not self._left

    def wait(self) -> Any:
        """Blocks until the request is finished, and returns its result.

        Raises the request's error: Mismatch, PeerLost, Timeout, … An exception of a signal handler (Ctrl-C) ends the
        wait but not the request.
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


# C code calls these until the process ends, so they must stay alive.
_ALLOCATE = _engine.TensorAllocateFunction(_allocate)
_DONE = _engine.TensorDoneFunction(_done)
_JOINED = _engine.JoinDoneFunction(_joined)


class Names:
    """Names for requests without a name: the n-th request in a process set has the same name on all of its ranks.

    The name of a request depends only on the number of earlier requests, which is the same on all ranks. The name does
    not depend on which requests have ended, or in which order a rank waits, because both differ between ranks. Names
    are reused after COUNT requests, so that the ranks need not agree on new names forever. A request whose name is
    still pending, because more than COUNT requests were started without a wait or because another rank is late, stays
    in the engine's queue until the earlier request has ended on this rank. That cannot block a program that would end
    otherwise: the earlier request ends when all ranks have made it, and each rank makes the earlier request before the
    later request (see Inbox::acquire_name).

    If ranks make different requests at the same point, all raise Mismatch. The next requests match again.

    Ranks that have joined have made fewer requests than the others. When all have joined, the counts start at 0 again.
    """

    # Divisible by 1 to 8, 10, 12, …: in a loop that makes one of these numbers of requests per iteration, each name
    # always belongs to the same tensor, and ranks recognise the tensor. 840 names add no measurable cost to a
    # negotiation.
    COUNT = 840

    def __init__(self):
        self._lock = threading.Lock()
        self._counts: Dict[int, int] = collections.defaultdict(int)

    def next(self, process_set: int) -> str:
        with self._lock:
            number = self._counts[process_set]
            self._counts[process_set] = (number + 1) % self.COUNT
        return f"noname.{number}"

    def restart(self, process_set: int) -> None:
        """Restarts the count when all ranks of the set have joined."""
        with self._lock:
            self._counts.pop(process_set, None)

    def clear(self) -> None:
        with self._lock:
            self._counts.clear()


names = Names()


def _reset_after_fork() -> None:
    """In a forked child: fails the parent's pending requests, which would never finish in the child, and replaces the
    parent's locks."""
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


os.register_at_fork(after_in_child=_reset_after_fork)


class Call:
    """Context manager for a collective call. The block checks the arguments and submits the request.

        with Call(process_set, name) as call:
            …code that may raise…
            return call.submit(work, Collective.Allreduce)

    An exception within the context is reported to peers that make the same call. They raise Mismatch instead of
    waiting.
    """

    def __init__(self, process_set: ProcessSet, name: Optional[str] = None):
        _engine.need_initialized()
        self.process_set = id_of(process_set)
        self._by_order = name is None
        self._name = names.next(self.process_set) if name is None else str(name)
        self._is_known = False

    def __enter__(self) -> "Call":
        return self

    def __exit__(self, kind: Any, error: Optional[BaseException], trace: Any) -> None:
        if isinstance(error, Exception) and not self._is_known:
            _engine.refuse(self._name, self.process_set, error, self._by_order)

    def submit(
        self,
        work: Work,
        collective: Collective,
        op: int = _engine.Sum,
        root: int = 0,
        prescale: float = 1.0,
        postscale: float = 1.0,
        splits: Optional[Sequence[int]] = None,
        about: str = "",
        caller_waits: bool = False,
    ) -> Work:
        """Submits `work`. Raises the error of farandole_submit.

        about: a text that must be equal on all ranks, for error messages.
        caller_waits: True if this thread waits for the result immediately.
        """
        count = max(len(work.inputs), 1)
        tensors = (_engine.Tensor * count)()
        contexts = [next(_contexts) for _ in range(count)]
        for index, context in enumerate(contexts):
            _fill(tensors[index], work, index, context, splits)
        request = _engine.Request(
            name=self._name.encode(),
            collective=collective,
            op=op,
            root=root,
            process_set=self.process_set,
            prescale=prescale,
            postscale=postscale,
            tensors=ctypes.cast(tensors, POINTER(_engine.Tensor)),
            tensor_count=count,
            caller_waits=_waiting.waiting_of_caller() if caller_waits else _engine.Waiting.Nobody,
            about=about.encode(),
            by_order=int(self._by_order),
            has_factors=1,
        )
        for index, context in enumerate(contexts):
            _pending[context] = (work, index)
        self._is_known = True  # from here on the engine reports failures to the peers
        try:
            with _waiting.in_library():
                _engine.call("farandole_submit", byref(request))
        except errors.Error:
            for context in contexts:
                _pending.pop(context, None)
            raise
        return work


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
