"""What each rank is about to do next, compared over the ranks.

Ranks of a strategy run the same program: together they begin to fit, take the next batch, find the data at its end, or read
a value that is aggregated over all of them. Where one does something else than the others, they would wait for each other
forever, or combine numbers that do not belong together. So before each of these steps the ranks tell each other, under one
name, which of them it is and where in the program. The same message says whether the ranks read the same data, how many
samples each has of the batch, and whether one of them wants to stop training.
"""

import contextlib
import functools
from typing import Any, Dict, Iterator, List

import numpy as np
import tensorflow as tf

from .. import _lifecycle
from .._engine import Sum
from . import _running, mpi_ops

_NAME = "farandole.strategy.progress"
# Columns of the message, which has one row for each rank. From _CALL on they are this rank's place in the program.
_KIND, _DIGEST, _ROWS, _CALL, _STOP, _EPOCH, _BATCH = range(7)
_COMPARED = [_KIND, _DIGEST, _CALL]
BEGIN, BATCH, END, READ, EPOCH_END, FIT_END = range(6)
# Functions of Keras in which a rank can be; the first is none of them.
CALLS = ("", "fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "predict_on_batch")

_OTHER_PROGRAM = (
    "all ranks must run the same program: fit, evaluate, predict, save and read metrics alike, with as many epochs and "
    "batches. Leave only printing and writing files to one rank"
)
_OTHER_NUMBER = "give all ranks the same number of rows or set {steps}"
_OTHER_DATA = (
    "The ranks read different data: every rank makes the whole batch and takes its own part of it, so that their "
    "datasets must be equal, in the same order. Shuffle with a seed; for datasets that hold only one rank's data use "
    "distribute_datasets_from_function(), or AutoShardPolicy.OFF"
)


def _exchange(row: Any) -> tf.Tensor:
    """The rows of all ranks. `row`: int64 tensor with a number for each column."""
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


# ---- What is wrong with the rows of all ranks, in words -------------------------------------------------------------


def ranks_in_words(ranks: Any) -> str:
    """"rank 1", "ranks 1, 2"."""
    ranks = [str(rank) for rank in ranks]
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(ranks)}"


def _ordinal(number: int) -> str:
    teens = number // 10 % 10 == 1
    return f"{number}{'th' if teens else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


def _of(row: Any) -> str:
    """Where a rank counts batches; empty if it does not."""
    if row[_EPOCH] > 0:
        return f" of epoch {row[_EPOCH]}"
    return f" of {CALLS[row[_CALL]]}()" if CALLS[row[_CALL]] else ""


def _deed(row: Any) -> str:
    """What a rank does."""
    call = CALLS[row[_CALL]]
    within = f" of {call}()" if call else ""
    if row[_KIND] == BATCH:
        return f"takes batch {row[_BATCH] + 1}{_of(row)}" + (within if row[_EPOCH] else "") if call else "takes a batch"
    return {
        BEGIN: f"calls {call}()",
        END: f"has no more batches{within}",
        READ: f"reads a value that is aggregated over the ranks{', in ' + call + '()' if call else ''}",
        EPOCH_END: f"ends epoch {row[_EPOCH]}{within}",
        FIT_END: f"ends {call}()",
    }[row[_KIND]]


def _acting(ranks: Any, deed: str) -> str:
    """"rank 1 has no more batches", "ranks 1, 2 have no more batches". `deed` begins with a verb in the singular."""
    verb, _, rest = deed.partition(" ")
    if len(ranks) > 1:
        verb = "have" if verb == "has" else verb[:-1]
    return f"{ranks_in_words(ranks)} {verb} {rest}"


def _by_ranks(deeds: List[str]) -> str:
    """What each rank does, those that do the same together."""
    ranks: Dict[str, List[int]] = {}
    for rank, deed in enumerate(deeds):
        ranks.setdefault(deed, []).append(rank)
    return "; ".join(_acting(who, deed) for deed, who in ranks.items())


def _other_number(rows: np.ndarray) -> str:
    """Some ranks have another batch and some have none."""
    ended = rows[:, _KIND] == END
    have, has_none = np.flatnonzero(~ended), np.flatnonzero(ended)
    last = rows[has_none[0]]
    call, number = CALLS[last[_CALL]], last[_BATCH]
    where = f" after {number}{_of(last)}" if call else ""
    another = f"a {_ordinal(number + 1)}" if call else "another"
    advice = _OTHER_NUMBER.format(steps={"fit": "steps_per_epoch", "": "them by .repeat() or .take(n)"}.get(call, "steps"))
    return f"{_acting(has_none, f'has no more batches{where}')}; {_acting(have, f'has {another}')}: {advice}"


def _complaint(rows: np.ndarray) -> str:
    """What is wrong; empty if nothing is."""
    kinds, calls = set(rows[:, _KIND]), set(rows[:, _CALL])
    if len(calls) == 1 and kinds == {BATCH, END}:
        return _other_number(rows)
    if len(calls) > 1 or len(kinds) > 1:
        return f"{_by_ranks([_deed(row) for row in rows])}: {_OTHER_PROGRAM}"
    return _OTHER_DATA if kinds != {BEGIN} and len(set(rows[:, _DIGEST])) > 1 else ""


def refuse(text: str) -> None:
    """Raises Mismatch, on all ranks, which have found the same. Some may be in a function."""
    _running.run_eagerly(mpi_ops._LIB.farandole_mismatch, text=text)


def _refuse_in_graph(rows: tf.Tensor) -> tf.Tensor:
    text = tf.numpy_function(_complaint, [rows], tf.string)
    return mpi_ops._LIB.farandole_mismatch(text=text)


# ---- The messages ---------------------------------------------------------------------------------------------------


class Progress:
    """The messages, and what came out of the last one. There is one in a process, see `progress()`."""

    def __init__(self) -> None:
        # Made outside of the strategy: each rank has its own.
        with tf.init_scope():
            self._place = tf.Variable([0, 0, 0, 0], dtype=tf.int64, trainable=False, name="farandole_place")
            self._stop = tf.Variable(False, trainable=False, name="farandole_stop")
            self._share = tf.Variable(1.0, dtype=tf.float64, trainable=False, name="farandole_share")

    def agree(self, kind: Any, digest: Any = 0, samples: Any = 0) -> Any:
        """Tells the other ranks that this one takes a step of this kind, and waits for theirs.

        kind: BATCH and the like, an integer or a tensor. digest: of what the ranks must have alike, an int64. samples: how
        many this rank has of the batch, for BATCH.

        True if all do the same. Eagerly it raises Mismatch, on all ranks, if they do not; for BEGIN the result tells
        whether the digests are equal. In a graph the returned tensor has no value then, but raises the
        tf.errors.AbortedError that stands for it.
        """
        if _lifecycle.size() == 1:
            return True
        told = tf.stack([tf.cast(each, tf.int64) for each in (kind, digest, samples)])
        rows = _exchange(tf.concat([told, self._place.read_value()], axis=0))
        all_samples = tf.cast(rows[:, _ROWS], tf.float64)
        share = tf.math.divide_no_nan(all_samples[_lifecycle.rank()], tf.reduce_sum(all_samples))
        # What uses the share is a step on this batch: it comes afterwards.
        done = [
            self._share.assign(share),
            self._stop.assign(tf.reduce_any(rows[:, _STOP] > 0)),
            self._place.assign_add([0, 0, 0, tf.cast(told[_KIND] == BATCH, tf.int64)]),
        ]
        if tf.executing_eagerly():
            complaint = _complaint(rows.numpy())
            if complaint:
                refuse(complaint)
            return len(set(rows[:, _DIGEST].numpy())) == 1
        compared = tf.gather(rows, _COMPARED, axis=1)
        # The result is needed as a value: TensorFlow may start what only comes after a failed check.
        is_fine = tf.cond(tf.reduce_all(compared == compared[:1]), lambda: True, lambda: _refuse_in_graph(rows))
        with tf.control_dependencies(done):
            return tf.ensure_shape(is_fine, [])

    def share(self) -> tf.Tensor:
        """This rank's part of the samples of the batch that the ranks last agreed on, a float64 scalar."""
        return self._share.read_value()

    @contextlib.contextmanager
    def within(self, call: str) -> Iterator[None]:
        """For as long as this rank is in a function of Keras, one of CALLS. They may be nested."""
        before = self._place.numpy()
        self._set(call=CALLS.index(call), epoch=0, batch=0)
        try:
            yield
        finally:
            self._set(call=before[0], epoch=before[2], batch=before[3])

    def begin_epoch(self, number: int) -> None:
        """Batches count from here on. number: from 1."""
        self._set(epoch=number, batch=0)

    def want_stop(self) -> None:
        """From the next batch on, `stop_was_agreed` says yes on all ranks."""
        self._set(stop=1)

    def stop_was_agreed(self) -> bool:
        """Whether a rank wanted to stop when the last batch was taken."""
        return bool(self._stop.numpy())

    def any_wants_stop(self, wants: bool) -> bool:
        """At the end of an epoch: whether this or another rank wants to stop. Collective; starts from the beginning."""
        wants = bool(wants or self._place.numpy()[_STOP - _CALL])
        self._set(stop=int(wants))
        self.agree(EPOCH_END)
        result = wants if _lifecycle.size() == 1 else self.stop_was_agreed()
        self._set(stop=0)
        self._stop.assign(False)
        return result

    def _set(self, **values: int) -> None:
        place = self._place.numpy()
        for name, value in values.items():
            place[("call", "stop", "epoch", "batch").index(name)] = value
        self._place.assign(place)


@functools.lru_cache(maxsize=None)
def progress() -> Progress:
    """That of this process."""
    return Progress()
