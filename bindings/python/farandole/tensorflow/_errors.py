# SPDX-License-Identifier: Apache-2.0
"""Errors of the ops as exceptions of the package.

An op that fails gives TensorFlow the status that programs written for Horovod expect: FAILED_PRECONDITION where the
ranks disagree, INVALID_ARGUMENT for what can not work, UNIMPLEMENTED for what there is not, else ABORTED. The kind and
the text of the engine's error are its payload, and stand in its message. Eager calls of `farandole.tensorflow` raise
the class of that kind, which is TensorFlow's class for the status too. Where TensorFlow raises by itself, from a
`tf.function` or from Keras' `fit`, it is TensorFlow's class alone; `converted_errors` makes it the same class.
"""

import contextlib
import functools
import re
from typing import Any, Callable, Iterator, Optional, Tuple

import tensorflow as tf

from .. import errors

_PAYLOAD = b"type.farandole/error"

# Sessions, and Keras where it adds to a message, make another exception, without the payload. What follows our text is
# TensorFlow's: the node, the op, where it was made.
_MESSAGE = re.compile(r"farandole\.errors\.(\w+): (.*?)\s*(?=\[\[\{\{|\[\[node |\[Op:|Original stack trace|\Z)", re.DOTALL)


@functools.lru_cache(maxsize=None)
def _class_of(kind: str, of_status: type) -> type:
    """The package's class for the kind, that is the class of TensorFlow for the status too."""
    base = errors.class_of(kind)

    def initialize(self, node_def, op, message, *payloads):  # AutoGraph keeps the class of errors with such arguments
        of_status.__init__(self, node_def, op, message, *payloads)

    return type(
        base.__name__,
        (base, of_status),
        {"__init__": initialize, "__doc__": base.__doc__, "__module__": base.__module__},
    )


def mismatch(text: str) -> errors.Mismatch:
    """A Mismatch to raise, on all ranks; it is a FailedPreconditionError as those of the ops are."""
    error = _class_of("Mismatch", tf.errors.FailedPreconditionError)(None, None, text, {})
    return known_to_all(error)


def invalid_argument(text: str) -> errors.InvalidArgument:
    """An InvalidArgument to raise, that is an InvalidArgumentError as those of the ops are."""
    return _class_of("InvalidArgument", tf.errors.InvalidArgumentError)(None, None, text, {})


def known_to_all(error: Any) -> Any:
    """Marks an error of which no other rank has to be told any more: the engine has told them, or all raise it."""
    error._farandole_is_known_to_all = True
    return error


def is_known_to_all(error: BaseException) -> bool:
    return hasattr(error, "_farandole_is_known_to_all")


def converted(error: BaseException) -> Optional[errors.Error]:
    """The exception of the package for an error of our ops. None if `error` is not from them, or is one already."""
    if not isinstance(error, tf.errors.OpError) or isinstance(error, errors.Error):
        return None
    found = _kind_and_text(error)
    if found is None:
        return None
    kind, text = found
    return known_to_all(_class_of(kind, type(error))(error.node_def, error.op, text, _payloads(error)))


def _payloads(error: tf.errors.OpError) -> dict:
    payloads = error.experimental_payloads
    return payloads if isinstance(payloads, dict) else {}  # Keras passes the code of the error in its place


def _kind_and_text(error: tf.errors.OpError) -> Optional[Tuple[str, str]]:
    for key, value in _payloads(error).items():
        if _bytes(key) == _PAYLOAD:
            kind, _, text = _bytes(value).decode(errors="replace").partition("\n")
            return kind, text
    stated = _MESSAGE.search(error.message or "")
    return (stated[1], stated[2]) if stated else None


def _bytes(value) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


@contextlib.contextmanager
def converted_errors() -> Iterator[None]:
    """Within it, errors of our ops are raised as classes of `farandole.errors`, which are those of `tf.errors` too.

        with farandole.tensorflow.converted_errors():
            model.fit(…)

    It is a decorator as well.
    """
    try:
        yield
    except tf.errors.OpError as error:
        ours = converted(error)
        if ours is None:
            raise
        raise ours from error


def with_own_errors(base: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
    """Takes the place of a method of a Keras model, such as fit. What its error says is what the op has said, without
    the traceback of the graph."""
    try:
        return base(self, *args, **kwargs)
    except tf.errors.OpError as error:
        ours = converted(error) or _with_advice(error)
        if ours is None:
            raise
        raise ours from None


def _with_advice(error: tf.errors.OpError) -> Optional[tf.errors.OpError]:
    """What TensorFlow says of one process, with what to do in a job; None for other errors."""
    if not isinstance(error, tf.errors.AlreadyExistsError) or "caching iterator" not in (error.message or ""):
        return None
    advice = (
        "two ranks write the same file of dataset.cache(path): give each rank a path of its own, "
        'cache(f"{path}-{farandole.rank()}"), and remove what is left of the old ones'
    )
    return tf.errors.AlreadyExistsError(error.node_def, error.op, f"{advice}. {error.message}")
