# SPDX-License-Identifier: Apache-2.0
"""Broadcasts and gathers Python objects.

    config = farandole.objects.broadcast_object(config)             # rank 0's, on every rank
    results = farandole.objects.allgather_object({"loss": loss})    # a list with one object per rank

Objects travel as JSON, followed by the bytes of numpy arrays. Supported: None, bool, int, float, complex, str, bytes,
list, tuple, dict, set, frozenset, numpy arrays and scalars, and combinations of these. Reading such a message runs no
code of the sender. Other objects need pickle=True on every rank; a pickle does run the sender's code.
"""

import io
import json
import pickle as pickle_module
import struct
from typing import Any, Callable, Dict, List, Optional

import numpy as np

from . import _code_pickle, _engine, errors
from ._engine import Collective
from ._work import Call, Work
from .process_sets import ProcessSet, global_process_set

_PLAIN = b"J"
_PICKLE = b"P"
_ERROR = b"E"
_HEADER = struct.Struct("<cq")  # one of the kinds above, and the length of the JSON
_ALIGNMENT = 64  # in bytes, of arrays within a message


class _Encoder:
    """Converts an object to a tree that JSON can write, and collects the bytes of arrays."""

    def __init__(self):
        self.blobs = io.BytesIO()

    def encode(self, value: Any) -> Any:
        if value is None or type(value) in (bool, int, float, str):
            return value
        if type(value) in (list, tuple, set, frozenset):
            return {type(value).__name__: [self.encode(each) for each in value]}
        if type(value) is dict:
            return {"dict": [[self.encode(key), self.encode(each)] for key, each in value.items()]}
        if type(value) is complex:
            return {"complex": [value.real, value.imag]}
        if type(value) in (bytes, bytearray):
            return {type(value).__name__: self._put(value)}
        if isinstance(value, (np.ndarray, np.generic)) and not isinstance(value, np.ma.MaskedArray):
            return {"array" if isinstance(value, np.ndarray) else "scalar": self._array(np.asarray(value, order="C"))}
        raise errors.InvalidArgument(
            f"an object of type {type(value).__module__}.{type(value).__qualname__} does not travel in the safe format "
            "(JSON and numpy); send its parts, or pass pickle=True on all ranks, which runs the sender's code on them"
        )

    def _array(self, array: np.ndarray) -> Dict[str, Any]:
        if array.dtype.hasobject or array.dtype.type is np.void:
            raise errors.InvalidArgument(
                f"an array of {array.dtype} does not travel in the safe format; use an array of numbers or text, or "
                "pass pickle=True on all ranks, which runs the sender's code on them"
            )
        # The `str` of numpy's own types contains the byte order.
        # Types of ml_dtypes, such as bfloat16, only have a name.
        dtype = array.dtype.name if array.dtype.kind == "V" else array.dtype.str
        return {"dtype": dtype, "shape": list(array.shape), "at": self._put(array.tobytes())}

    def _put(self, payload: Any) -> List[int]:
        self.blobs.write(b"\0" * (-self.blobs.tell() % _ALIGNMENT))
        begin = self.blobs.tell()
        self.blobs.write(payload)
        return [begin, len(payload)]


def _dtype(name: str) -> np.dtype:
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))


def _decode(node: Any, blobs: memoryview) -> Any:
    if not isinstance(node, dict):
        return node
    ((kind, content),) = node.items()
    if kind in ("list", "tuple", "set", "frozenset"):
        make: Callable[[Any], Any] = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}[kind]
        return make([_decode(each, blobs) for each in content])
    if kind == "dict":
        return {_decode(key, blobs): _decode(each, blobs) for key, each in content}
    if kind == "complex":
        return complex(*content)
    if kind in ("bytes", "bytearray"):
        begin, length = content
        payload = bytes(blobs[begin : begin + length])
        return payload if kind == "bytes" else bytearray(payload)
    if kind in ("array", "scalar"):
        begin, length = content["at"]
        array = np.frombuffer(blobs[begin : begin + length], _dtype(content["dtype"])).reshape(content["shape"]).copy()
        return array if kind == "array" else array[()]
    raise errors.DataError(f"an object came with a part of unknown kind {kind!r}: do all ranks run the same version?")


def dumps(obj: Any, pickle: bool = False) -> bytes:
    """Converts an object to a message. Raises InvalidArgument for objects that the safe format does not support."""
    if pickle:
        try:
            pickled = _code_pickle.dumps(obj)  # supports functions and classes of the main program, too
        except ImportError:  # cloudpickle is optional
            pickled = pickle_module.dumps(obj)
        return _HEADER.pack(_PICKLE, 0) + pickled
    encoder = _Encoder()
    text = json.dumps(encoder.encode(obj)).encode()
    return _HEADER.pack(_PLAIN, len(text)) + text + encoder.blobs.getvalue()


def loads(message: Any, pickle: bool = False) -> Any:
    """Converts a message to an object. Raises the sender's error, and Unsupported for an unexpected pickle."""
    view = memoryview(message)
    kind, length = _HEADER.unpack_from(view)
    body = view[_HEADER.size :]
    if kind == _ERROR:
        raise errors.InvalidArgument(bytes(body).decode())
    if kind == _PICKLE:
        if not pickle:
            raise errors.Unsupported(
                "the sender has pickled the object, which would run its code here; pass pickle=True on all ranks if "
                "that is meant"
            )
        return pickle_module.loads(body)
    return _decode(json.loads(bytes(body[:length])), body[length:])


def _message(obj: Any, pickle: bool, who: str) -> np.ndarray:
    """The message as an array. If the object cannot be sent, a
    message with the error: the other ranks wait for a message."""
    try:
        message = dumps(obj, pickle)
    except Exception as error:
        message = _HEADER.pack(_ERROR, 0) + f"{who}: {error}".encode()
    return np.frombuffer(message, np.uint8)


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
    pickle: bool = False,
) -> Any:
    """Returns the object of rank `root_rank` on every rank; other ranks get a copy, and the object that they pass is
    ignored.

    pickle: sends the object as a pickle, see the top of this module. The same on all ranks.

    Collective over the process set. Blocks. Raises InvalidArgument on all ranks if the object cannot be sent, Mismatch
    on all ranks if they disagree on the root or on `pickle`.
    """
    with Call(process_set, name or None) as call:
        root = _engine.checked_root(root_rank, call.process_set)
        is_root = root == _engine.place().rank
        message = _message(obj, pickle, f"rank {root}") if is_root else np.empty(0, np.uint8)
        # Other ranks do not know the length. An allgather in which only the root sends data needs no length.
        work = call.submit(
            Work([message], [None], lambda work: work.outputs[0]),
            Collective.Allgather,
            about=f"object of root {root}, pickle={bool(pickle)}",
            caller_waits=True,
        )
    copy = loads(work.wait(), pickle)
    return obj if is_root else copy


def allgather_object(
    obj: Any, name: Optional[str] = None, process_set: ProcessSet = global_process_set, pickle: bool = False
) -> List[Any]:
    """The objects of all ranks of the process set, in their order. Arguments and errors as for `broadcast_object`."""
    with Call(process_set, name or None) as call:
        message = _message(obj, pickle, f"rank {_engine.place().rank}")
        work = call.submit(
            Work([np.array([message.size], np.int64), message], [None, None], lambda work: work.outputs),
            Collective.Allgather,
            about=f"objects of all ranks, pickle={bool(pickle)}",
            caller_waits=True,
        )
    lengths, messages = work.wait()
    ends = np.cumsum(lengths)
    return [loads(messages[end - length : end], pickle) for end, length in zip(ends, lengths)]
