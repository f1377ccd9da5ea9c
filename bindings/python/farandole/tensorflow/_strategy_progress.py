"""What each rank is about to do next, compared over the ranks.

Ranks of a strategy run the same program: together they take the next batch, find the data at its end, or read a value
that is aggregated over all of them. Where one takes a batch while another has none left, they would wait for each other
forever, or combine numbers that do not belong together. So before each of these steps the ranks tell each other, under
one name, which of them it is. The same message says whether the ranks read the same data, and whether one of them wants
to stop training.
"""

import functools
from typing import Any

import numpy as np
import tensorflow as tf

from .. import _lifecycle
from .._engine import Sum
from . import _running, mpi_ops

_NAME = "farandole.strategy.progress"
# Columns of the message, which has one row for each rank.
_KIND, _DIGEST, _STOP, _COLUMNS = 0, 1, 2, 3
_KINDS = {  # what one rank does, and several
    1: ("has another batch", "have another batch"),
    2: ("has no more data", "have no more data"),
    3: ("reads a value that is aggregated over the ranks", "read a value that is aggregated over the ranks"),
}
BATCH, END, READ = _KINDS

_ADVICE = (
    "All ranks must be given the same number of batches: set steps_per_epoch (steps), use .repeat() or .take(n), and "
    "let all ranks evaluate, predict and save alike"
)
_OTHER_DATA = (
    "The ranks read different data: every rank makes the whole batch and takes its own part of it, so that their "
    "datasets must be equal, in the same order. Shuffle with a seed; for datasets that hold only one rank's data use "
    "distribute_datasets_from_function(), or AutoShardPolicy.OFF"
)


def _exchange(row: Any) -> tf.Tensor:
    """The rows of all ranks. `row`: int64 tensor of _COLUMNS numbers."""
    size = _lifecycle.size()
    mine = tf.one_hot(_lifecycle.rank(), size, dtype=tf.int64)[:, tf.newaxis] * row[tf.newaxis]
    arguments = {
        "tensors": [mine],
        "tensor_name": _NAME,  # the same in each function and in eager mode
        "reduce_op": int(Sum),
        "prescale_factor": "1.0",
        "postscale_factor": "1.0",
        "ignore_name_scope": False,
        "process_set": 0,
    }
    allreduce = mpi_ops._LIB.farandole_allreduce
    if tf.executing_eagerly():
        return _running.run_eagerly(allreduce, **arguments)[0]
    return _running.run(allreduce, "", [mine], "farandole_progress", **arguments)[0]


def _complaint(rows: np.ndarray) -> str:
    """What is wrong with the rows of all ranks; empty if nothing is."""
    kinds = rows[:, _KIND]
    if len(set(kinds)) > 1:
        each = []
        for kind, (does, do) in _KINDS.items():
            ranks = [str(rank) for rank in np.flatnonzero(kinds == kind)]
            if len(ranks) == 1:
                each.append(f"rank {ranks[0]} {does}")
            elif ranks:
                each.append(f"ranks {', '.join(ranks)} {do}")
        return f"{'; '.join(each)}. {_ADVICE}"
    return _OTHER_DATA if len(set(rows[:, _DIGEST])) > 1 else ""


def _refuse(rows: tf.Tensor) -> tf.Tensor:
    text = tf.numpy_function(_complaint, [rows], tf.string)
    return mpi_ops._LIB.farandole_mismatch(text=text)


class Progress:
    """The messages, and what came out of the last one. There is one in a process, see `progress()`."""

    def __init__(self) -> None:
        # Made outside of the strategy: each rank has its own.
        with tf.init_scope():
            self._wants_stop = tf.Variable(0, dtype=tf.int64, trainable=False, name="farandole_wants_stop")
            self._stop = tf.Variable(False, trainable=False, name="farandole_stop")

    def agree(self, kind: Any, digest: Any = 0) -> Any:
        """Tells the other ranks that this one takes a step of this kind, and waits for theirs.

        kind: BATCH, END or READ, an integer or a tensor. digest: of the data, for BATCH; an int64.

        True if they are the same. Eagerly it raises Mismatch, on all ranks, if they are not. In a graph the returned
        tensor has no value then, but raises the tf.errors.AbortedError that stands for it.
        """
        if _lifecycle.size() == 1:
            return True
        row = tf.stack([tf.cast(kind, tf.int64), tf.cast(digest, tf.int64), self._wants_stop.read_value()])
        rows = _exchange(row)
        stop = self._stop.assign(tf.reduce_any(rows[:, _STOP] > 0))
        if tf.executing_eagerly():
            complaint = _complaint(rows.numpy())
            if complaint:
                # Others may be in a function.
                _running.run_eagerly(mpi_ops._LIB.farandole_mismatch, text=complaint)
            return True
        equal = tf.reduce_all(rows[:, : _DIGEST + 1] == rows[:1, : _DIGEST + 1])
        # The result is needed as a value: TensorFlow may start what only comes after a failed check.
        is_fine = tf.cond(equal, lambda: True, lambda: _refuse(rows))
        with tf.control_dependencies([stop]):
            return tf.ensure_shape(is_fine, [])

    def want_stop(self) -> None:
        """From the next batch on, `stop_was_agreed` says yes on all ranks."""
        self._wants_stop.assign(1)

    def stop_was_agreed(self) -> bool:
        """Whether a rank wanted to stop when the last batch was taken."""
        return bool(self._stop.numpy())

    def any_wants_stop(self, wants: bool) -> bool:
        """Whether this or another rank wants to stop, here and now. Collective; starts from the beginning."""
        wants = bool(wants or self._wants_stop.numpy())
        self._wants_stop.assign(0)
        self._stop.assign(False)
        if _lifecycle.size() == 1:
            return wants
        total = mpi_ops._allreduce(tf.constant(int(wants), tf.int64), name=f"{_NAME}.stop", op=Sum)
        return bool(total.numpy() > 0)


@functools.lru_cache(maxsize=None)
def progress() -> Progress:
    """That of this process."""
    return Progress()
