# SPDX-License-Identifier: Apache-2.0
"""Small helpers that packages written for Horovod take from its module `horovod.tensorflow.util`."""

import functools
from typing import Any, Callable

import tensorflow as tf


def _executing_eagerly() -> bool:
    """Whether ops run at once: not within a graph or a `tf.function`."""
    return tf.executing_eagerly()


def _make_subgraph(f: Callable[..., Any]) -> Callable[..., Any]:
    """`tf.function(f)`."""
    return tf.function(f)


def _cache(f: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: a call with the same arguments, in eager mode or in a graph again, gives the first one's result."""
    results: dict = {}

    @functools.wraps(f)
    def wrapper(*args: Any) -> Any:
        key = args, _executing_eagerly()
        if key not in results:
            results[key] = f(*args)
        return results[key]

    return wrapper


def vars_to_refs(vars: Any) -> Any:  # noqa: A002  pylint: disable=redefined-builtin
    """Variables as what can be hashed: lists become tuples, at every depth."""
    return tuple(vars_to_refs(each) for each in vars) if isinstance(vars, list) else vars.ref()


def refs_to_vars(refs: Any) -> Any:
    """The variables that were given to `vars_to_refs`."""
    return [refs_to_vars(each) for each in refs] if isinstance(refs, tuple) else refs.deref()
