# SPDX-License-Identifier: Apache-2.0
"""Helpers that packages written for Horovod import from its module `horovod.tensorflow.util`."""

import functools
from typing import Any, Callable

import tensorflow as tf


def _executing_eagerly() -> bool:
    """True if ops run immediately, and not in a graph or a `tf.function`."""
    return tf.executing_eagerly()


def _make_subgraph(f: Callable[..., Any]) -> Callable[..., Any]:
    """`tf.function(f)`."""
    return tf.function(f)


def _cache(f: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: caches results by arguments, separately for eager mode and graphs."""
    results: dict = {}

    @functools.wraps(f)
    def wrapper(*args: Any) -> Any:
        key = args, _executing_eagerly()
        if key not in results:
            results[key] = f(*args)
        return results[key]

    return wrapper


def vars_to_refs(vars: Any) -> Any:  # noqa: A002  pylint: disable=redefined-builtin
    """Variables as hashable references. Lists become tuples, at every depth."""
    return tuple(vars_to_refs(each) for each in vars) if isinstance(vars, list) else vars.ref()


def refs_to_vars(refs: Any) -> Any:
    """The inverse of `vars_to_refs`."""
    return [refs_to_vars(each) for each in refs] if isinstance(refs, tuple) else refs.deref()
