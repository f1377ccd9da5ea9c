# SPDX-License-Identifier: Apache-2.0
"""This rank's share of a batch: its rows divided by the rows of all ranks.

A function that `strategy.run` calls may be passed tensors besides the batch, such as a vector of priors, whose rows
have another meaning. Each rank sends the numbers of rows of all passed tensors. All ranks then choose the batch by the
same rule, from this table and from the rows of the batches that were last taken from distributed datasets. See
docs/decisions/0038-where-a-rank-s-share-enters.md.
"""

import contextlib
import contextvars
from typing import Any, Iterator, List, Optional

import numpy as np
import tensorflow as tf

from ... import _lifecycle
from .. import _errors, mpi_ops
from .._gradients import variable_of
from . import _input
from ._names import named
from ._private_names import DistributedVariable
from ._progress import progress

_ADVICE = (
    "so that the ranks cannot be weighted by their rows. Pass the batch to run(), and name it: strategy.run(step, "
    "args=(priors, x, y), batch=(x, y)); batch=() lets all ranks count alike"
)
_named: contextvars.ContextVar = contextvars.ContextVar("farandole_batch", default=None)


@contextlib.contextmanager
def pass_batch(batch: Any) -> Iterator[None]:
    """Hands the argument `batch` of `run` to the replica context
    that is created within the `with` block. None: not given."""
    token = _named.set(batch)
    try:
        yield
    finally:
        _named.reset(token)


def take_passed_batch() -> Any:
    """Returns the batch that `run` was given. A second call returns
    None, so nested calls of `run` do not inherit the batch."""
    batch = _named.get()
    _named.set(None)
    return batch


def with_rows(structure: Any) -> List[Any]:
    """The tensors and arrays of the structure that have rows."""
    return [leaf for leaf in tf.nest.flatten(structure) if _has_rows(leaf)]


def _has_rows(leaf: Any) -> bool:
    if isinstance(leaf, np.ndarray):
        return leaf.ndim > 0
    return _input._is_batched(leaf) and not isinstance(variable_of(leaf), (tf.Variable, DistributedVariable))


def rows_of(leaf: Any) -> Any:
    """Number of rows: an int if static, otherwise an int64 tensor."""
    return leaf.shape[0] if isinstance(leaf, np.ndarray) else _input.rows_of(leaf)


def without_nan(gradients: Any, leaves: List[Any]) -> Any:
    """Replaces values that are not finite by zeros if one of the leaves has no rows:
    a gradient without rows may be NaN. Finite values stay, because they may come
    from regularisers or from rows of other ranks. `gradients`: any structure."""
    counts = [rows_of(leaf) for leaf in leaves]
    unknown = [count == 0 for count in counts if not isinstance(count, int)]
    is_empty = any(isinstance(count, int) and count == 0 for count in counts)
    if not is_empty and not unknown:
        return gradients
    flat = tf.nest.flatten(gradients)
    # None stays None. Indices do not pass through tf.cond, because _slices.py inspects the ops that compute them.
    given = [_values_of(each) for each in flat if isinstance(each, (tf.Tensor, tf.IndexedSlices))]
    if is_empty:
        results = iter(_finite(given))
    else:
        results = iter(tf.cond(tf.reduce_any(unknown), lambda: _finite(given), lambda: given))
    return tf.nest.pack_sequence_as(gradients, [_with_values(each, results) for each in flat])


def _finite(tensors: List[tf.Tensor]) -> List[tf.Tensor]:
    # is_finite has no kernel for complex numbers
    return [tf.where(tf.math.is_finite(tf.abs(each)), each, tf.zeros_like(each)) for each in tensors]


def _values_of(gradient: Any) -> tf.Tensor:
    return gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient


def _with_values(gradient: Any, results: Iterator[tf.Tensor]) -> Any:
    """Puts the next result in the place of the gradient's values. A gradient without values is returned unchanged."""
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(next(results), gradient.indices, gradient.dense_shape)
    return next(results) if isinstance(gradient, tf.Tensor) else gradient


def share_of_rows(leaves: List[Any]) -> tf.Tensor:
    """This rank's share of the rows of the batch, a float64 scalar. The batch is among the leaves.

    Collective: all ranks call this function, even if the number of rows is static on some of them.

    Raises InvalidArgument, on all ranks, if the batch cannot be told from the other leaves.
    """
    if not leaves:
        last = progress().batches()[0]
        return _if_clear(tf.reduce_all(last == last[0]), tf.constant(1 / _lifecycle.size(), tf.float64), None)
    # The collective must wait for the leaves even if their sizes are static: only then do all ranks have a batch.
    before = [] if tf.executing_eagerly() else tf.nest.flatten(leaves, expand_composites=True)
    with tf.control_dependencies(before):
        own = tf.stack([tf.cast(rows_of(leaf), tf.int64) for leaf in leaves])
    rows = mpi_ops.gather_all("FarandoleAllgather", [own[tf.newaxis]], **named("samples"))[0]
    shares = tf.cast(rows, tf.float64)
    shares = tf.math.divide_no_nan(shares, tf.reduce_sum(shares, axis=0))
    if len(leaves) == 1:
        return shares[_lifecycle.rank(), 0]
    chosen, is_clear = _chosen(rows, shares, progress().batches())
    return _if_clear(is_clear, chosen[_lifecycle.rank()], own)


def _chosen(rows: tf.Tensor, shares: tf.Tensor, batches: tf.Tensor) -> Any:
    """(Share of each rank, whether the choice of the batch is unambiguous).

    rows, shares: one row per rank, one column per tensor. batches: see Progress.batches.
    """
    are_same = tf.reduce_all(shares == shares[:, :1])
    is_batch = tf.reduce_any(tf.reduce_all(batches[:, :, tf.newaxis] == rows, axis=1), axis=0)
    chosen = shares[:, tf.argmax(is_batch)]
    # A tensor with the same rows on all ranks that is no known batch is extra data, such as priors. A tensor with
    # different rows may be another batch.
    is_extra = tf.reduce_all(rows == rows[:1], axis=0) & tf.logical_not(is_batch)
    fits = tf.reduce_all(shares == chosen[:, tf.newaxis], axis=0) | is_extra
    return chosen, are_same | (tf.reduce_any(is_batch) & tf.reduce_all(fits))


def _if_clear(is_clear: tf.Tensor, share: tf.Tensor, own: Optional[tf.Tensor]) -> tf.Tensor:
    """Returns the share, or raises InvalidArgument. own: this
    rank's rows of each tensor; None if there is no tensor."""
    function = getattr(tf.distribute.get_replica_context(), "function_name", "function")
    if tf.executing_eagerly():
        if not bool(is_clear):
            counts = np.zeros(0) if own is None else own.numpy()
            raise _errors.known_to_all(_errors.invalid_argument(_unclear(function, counts)))
        return share
    text = [_unclear(function, np.zeros(0))] if own is None else [_unclear(function, None), own]
    with tf.control_dependencies([tf.debugging.Assert(is_clear, text)]):
        return tf.identity(share)


def _unclear(function: str, rows: Optional[np.ndarray]) -> str:
    """The text of the error. rows: of each tensor; None if the caller appends them."""
    if rows is not None and not len(rows):
        return f"{function}(), which strategy.run() calls, is given no tensor, but the ranks have uneven batches, {_ADVICE}"
    text = f"{function}(), which strategy.run() calls, is given tensors with other numbers of rows"
    counts = "" if rows is None else f" ({', '.join(str(int(each)) for each in rows)})"
    return f"{text}{counts}, and nothing says which are the batch, {_ADVICE}{':' if rows is None else ''}"
