"""Errors of the ops as exceptions of the package.

An op that fails gives TensorFlow the status ABORTED, with the kind and the text of the engine's error as a payload.
Eager calls of `farandole.tensorflow` raise the class of that kind. Where TensorFlow raises by itself, from a
`tf.function` or from Keras' `fit`, it is a plain `tf.errors.AbortedError`; `converted_errors` makes it the same class.
"""

import contextlib
import functools
from typing import Any, Callable, Iterator, Optional

import tensorflow as tf

from .. import errors

_PAYLOAD = b"type.farandole/error"

# Classes of TensorFlow that programs written for Horovod expect, besides AbortedError.
_ALSO = {
    "Mismatch": (tf.errors.FailedPreconditionError,),
    "InvalidArgument": (tf.errors.InvalidArgumentError,),
    "DuplicateName": (tf.errors.InvalidArgumentError,),
}


@functools.lru_cache(maxsize=None)
def _class_of(kind: str) -> type:
    """The package's class for the kind, that is an AbortedError of TensorFlow too."""
    base = errors.class_of(kind)

    def initialize(self, node_def, op, message, payloads):
        tf.errors.OpError.__init__(self, node_def, op, message, tf.errors.ABORTED, payloads)

    return type(
        base.__name__,
        (base, tf.errors.AbortedError, *_ALSO.get(kind, ())),
        {"__init__": initialize, "__doc__": base.__doc__, "__module__": base.__module__},
    )


def mismatch(text: str) -> errors.Mismatch:
    """A Mismatch to raise, on all ranks; it is an AbortedError as those of the ops are."""
    return _class_of("Mismatch")(None, None, text, {})


def converted(error: BaseException) -> Optional[errors.Error]:
    """The exception of the package for an error of our ops. None if `error` is not from them, or is one already."""
    if not isinstance(error, tf.errors.AbortedError) or isinstance(error, errors.Error):
        return None
    payloads = {_bytes(key): value for key, value in (error.experimental_payloads or {}).items()}
    if _PAYLOAD not in payloads:
        return None
    kind, _, text = _bytes(payloads[_PAYLOAD]).decode(errors="replace").partition("\n")
    return _class_of(kind)(error.node_def, error.op, text, error.experimental_payloads)


def _bytes(value) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


@contextlib.contextmanager
def converted_errors() -> Iterator[None]:
    """Within it, errors of our ops are raised as classes of `farandole.errors`, which are `tf.errors.AbortedError` too.

        with farandole.tensorflow.converted_errors():
            model.fit(…)

    It is a decorator as well.
    """
    try:
        yield
    except tf.errors.AbortedError as error:
        ours = converted(error)
        if ours is None:
            raise
        raise ours from error


def with_own_errors(base: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
    """Takes the place of a method of a Keras model, such as fit. What its error says is what the op has said, without the
    traceback of the graph."""
    try:
        return base(self, *args, **kwargs)
    except tf.errors.AbortedError as error:
        ours = converted(error)
        if ours is None:
            raise
        raise ours from None
