# SPDX-License-Identifier: Apache-2.0
"""Converts errors of the ops to exceptions of the package.

An op that fails reports the status that programs written for Horovod expect: FAILED_PRECONDITION if the ranks disagree,
INVALID_ARGUMENT for a call that cannot work, UNIMPLEMENTED for an unsupported call, otherwise ABORTED. The kind and the
text of the engine's error are in the payload of the status and in its message. Eager calls of `farandole.tensorflow`
raise a class that is both the package's class for the kind and TensorFlow's class for the status. If TensorFlow raises
the error itself, from a `tf.function` or from Keras' `fit`, the exception is of TensorFlow's class only;
`converted_errors` converts it.
"""

import contextlib
import functools
import re
from typing import Any, Callable, Iterator, Optional, Tuple

import tensorflow as tf

from .. import errors

_PAYLOAD = b"type.farandole/error"

# Finds kind and text in a message. Needed for exceptions without the payload: sessions, and Keras where it extends a
# message, create such exceptions. The lookahead ends the text where TensorFlow appends the node, the op, and the place
# in the program where the op was made.
_MESSAGE = re.compile(r"farandole\.errors\.(\w+): (.*?)\s*(?=\[\[\{\{|\[\[node |\[Op:|Original stack trace|\Z)", re.DOTALL)


@functools.lru_cache(maxsize=None)
def _class_of(kind: str, of_status: type) -> type:
    """A class that is derived from the package's class for the kind and from TensorFlow's class for the status."""
    base = errors.class_of(kind)

    # AutoGraph re-creates an OpError in its own class only if __init__ has these arguments, by these names.
    def initialize(self, node_def, op, message, *payloads):
        of_status.__init__(self, node_def, op, message, *payloads)

    return type(
        base.__name__,
        (base, of_status),
        {"__init__": initialize, "__doc__": base.__doc__, "__module__": base.__module__},
    )


def mismatch(text: str) -> errors.Mismatch:
    """A Mismatch that all ranks raise. Like the error of an op, it is also a FailedPreconditionError."""
    error = _class_of("Mismatch", tf.errors.FailedPreconditionError)(None, None, text, {})
    return known_to_all(error)


def invalid_argument(text: str) -> errors.InvalidArgument:
    """An InvalidArgument to raise. Like the error of an op, it is also an InvalidArgumentError."""
    return _class_of("InvalidArgument", tf.errors.InvalidArgumentError)(None, None, text, {})


def known_to_all(error: Any) -> Any:
    """Marks an error that the engine has reported to all ranks, or that all ranks raise, so that this rank does not
    report the error to the other ranks again."""
    error._farandole_is_known_to_all = True
    return error


def is_known_to_all(error: BaseException) -> bool:
    return hasattr(error, "_farandole_is_known_to_all")


def converted(error: BaseException) -> Optional[errors.Error]:
    """The package's exception for an error of the ops. None for an error of other origin or a converted error."""
    if not isinstance(error, tf.errors.OpError) or isinstance(error, errors.Error):
        return None
    found = _kind_and_text(error)
    if found is None:
        return None
    kind, text = found
    return known_to_all(_class_of(kind, type(error))(error.node_def, error.op, text, _payloads(error)))


def _payloads(error: tf.errors.OpError) -> dict:
    payloads = error.experimental_payloads
    # Keras re-creates exceptions with an error code in the place of the payloads.
    return payloads if isinstance(payloads, dict) else {}


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
    """Context manager and decorator. Within it, errors of the ops are raised as classes of `farandole.errors`, which
    are also classes of `tf.errors`.

        with farandole.tensorflow.converted_errors():
            model.fit(…)
    """
    try:
        yield
    except tf.errors.OpError as error:
        ours = converted(error)
        if ours is None:
            raise
        raise ours from error


def with_own_errors(base: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
    """Replaces a method of a Keras model, such as fit: raises errors of the ops as classes of `farandole.errors`, with
    the op's text and without the traceback of the graph."""
    try:
        return base(self, *args, **kwargs)
    except tf.errors.OpError as error:
        ours = converted(error) or _with_advice(error)
        if ours is None:
            raise
        raise ours from None


def _with_advice(error: tf.errors.OpError) -> Optional[tf.errors.OpError]:
    """A copy of TensorFlow's error with advice, if the error says that two ranks write one cache file; else None."""
    if not isinstance(error, tf.errors.AlreadyExistsError) or "caching iterator" not in (error.message or ""):
        return None
    advice = (
        "two ranks write the same file of dataset.cache(path): give each rank a path of its own, "
        'cache(f"{path}-{farandole.rank()}"), and remove what is left of the old ones'
    )
    return tf.errors.AlreadyExistsError(error.node_def, error.op, f"{advice}. {error.message}")
