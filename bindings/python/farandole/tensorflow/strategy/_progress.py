# SPDX-License-Identifier: Apache-2.0
"""What each rank is about to do next, compared over the ranks.

Ranks of a strategy run the same program: together they begin to fit, take the next batch, find the data at its end, or
read a value that is aggregated over all of them. Where one does something else than the others, they would wait for
each other forever, or combine numbers that do not belong together. So before each of these steps the ranks tell each
other, under one name, which of them it is and where in the program. The same message says whether the ranks read the
same data, how many samples each has of the batch, and whether one of them wants to stop training.
"""

import contextlib
import functools
from typing import Any, Callable, Dict, Iterator, List

import numpy as np
import tensorflow as tf

from ... import _lifecycle
from .. import _running, mpi_ops
from .._differences import ranks_in_words

# Columns of the message, which has one row for each rank; progress_kernel.cpp has them too. From _CALL on they are the
# rank's place in the program.
_KIND, _DIGEST, _SAMPLES, _CALL, _STOP, _EPOCH, _BATCH = range(7)
_PLACE = ("call", "stop", "epoch", "batch", "stop_agreed")
BEGIN, BATCH, END, READ, EPOCH_END, FIT_END = range(6)
# Of how many batches it is kept how many rows each rank has. Of two datasets that are taken side by side, each one
# ahead.
KEPT_BATCHES = 4
# Functions of Keras in which a rank can be; the first is none of them.
CALLS = ("", "fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "predict_on_batch")

_OTHER_PROGRAM = (
    "all ranks must run the same program: fit, evaluate, predict, save and read metrics alike, with as many epochs and "
    "batches. Leave only printing and writing files to one rank"
)
_OTHER_NUMBER = "give all ranks the same number of rows or set {steps}"
_OTHER_DATA = (
    "The ranks read different data: every rank makes the whole batch and takes its own part of it, so that their "
    "datasets must be equal, in the same order. Shuffle with a seed; make layers with random numbers that are called in "
    "map() outside of scope(), or put them into the model; for datasets that hold only one rank's data use "
    "distribute_datasets_from_function(), or AutoShardPolicy.OFF"
)


# ---- What is wrong with the rows of all ranks, in words -------------------------------------------------------------


def _ordinal(number: int) -> str:
    teens = number // 10 % 10 == 1
    return f"{number}{'th' if teens else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


def _of(row: Any) -> str:
    """Where a rank counts batches; empty if it does not."""
    if row[_EPOCH] > 0:
        return f" of epoch {row[_EPOCH]}"
    return f" of {CALLS[row[_CALL]]}()" if CALLS[row[_CALL]] else ""


def _action(row: Any) -> str:
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
        return f"{_by_ranks([_action(row) for row in rows])}: {_OTHER_PROGRAM}"
    return _OTHER_DATA if kinds != {BEGIN} and len(set(rows[:, _DIGEST])) > 1 else ""


def refuse(text: str) -> None:
    """Raises Mismatch, on all ranks, which have found the same. Some may be in a function."""
    _running.run_eagerly(mpi_ops._LIB.farandole_mismatch, text=text)


def _refuse_in_graph(rows: tf.Tensor, then: Callable[[], Any]) -> Any:
    """The same in a graph, in the place of what `then` gives."""
    text = tf.numpy_function(_complaint, [rows], tf.string)
    with tf.control_dependencies([mpi_ops._LIB.farandole_mismatch(text=text)]):
        return tf.nest.map_structure(tf.identity, then(), expand_composites=True)


# ---- The messages ---------------------------------------------------------------------------------------------------


class Progress:
    """The messages, and what came out of the last one. There is one in a process, see `progress()`."""

    def __init__(self) -> None:
        # Made outside of the strategy: each rank has its own.
        with tf.init_scope():
            self._place = tf.Variable([0] * len(_PLACE), dtype=tf.int64, trainable=False, name="farandole_place")
            self._share = tf.Variable(1.0, dtype=tf.float64, trainable=False, name="farandole_share")
            none = [[-1] * _lifecycle.size()] * KEPT_BATCHES
            self._batches = tf.Variable(none, dtype=tf.int64, trainable=False, name="farandole_batches")

    def agree(self, kind: int, digest: Any = 0, samples: Any = 0) -> bool:
        """Tells the other ranks that this one takes a step of this kind, and waits for theirs. Eagerly.

        kind: BATCH and the like. digest: of what the ranks must have alike, an int64. samples: how many this rank has
        of the batch, for BATCH.

        Raises Mismatch, on all ranks, if they do not do the same. Only for BEGIN digests may differ: whether they are
        equal is the result.
        """
        if _lifecycle.size() == 1:
            return True
        rows = _running.run_eagerly(mpi_ops._LIB.farandole_progress, **self._message(kind, digest, samples))[0].numpy()
        complaint = _complaint(rows)
        if complaint:
            refuse(complaint)
        return len(set(rows[:, _DIGEST])) == 1

    def agree_then(self, kind: int, then: Callable[[], Any], digest: Any = 0, samples: Any = 0) -> Any:
        """The same in a graph: what `then` gives, once all ranks agree. Where they do not, the graph raises the
        tf.errors.FailedPreconditionError that stands for Mismatch."""
        if _lifecycle.size() == 1:
            return then()
        # The op comes in order with what reads the variables: a step uses its share of the samples of its own batch.
        rows, is_same = mpi_ops._LIB.farandole_progress(**self._message(kind, digest, samples))
        # A choice by a value: TensorFlow may start what only comes after a failed check.
        return tf.cond(is_same, then, lambda: _refuse_in_graph(rows, then))

    def _message(self, kind: int, digest: Any, samples: Any) -> Dict[str, Any]:
        told = {"kind": kind, "digest": digest, "samples": samples}
        variables = {"place": self._place.handle, "share": self._share.handle, "batches": self._batches.handle}
        return {**variables, **{name: tf.cast(value, tf.int64) for name, value in told.items()}}

    def share(self) -> tf.Tensor:
        """This rank's part of the samples of the batch that the ranks last agreed on, a float64 scalar."""
        return self._share.read_value()

    def batches(self) -> tf.Tensor:
        """The numbers of rows of the batches that were last taken, the newest first, int64: of each (row) on each rank
        (column). -1 where none was taken. The same on all ranks."""
        return self._batches.read_value()

    @contextlib.contextmanager
    def within(self, call: str) -> Iterator[None]:
        """For as long as this rank is in a function of Keras, one of CALLS. They may be nested."""
        before = {name: self._get(name) for name in ("call", "epoch", "batch")}
        self._set(call=CALLS.index(call), epoch=0, batch=0)
        try:
            yield
        finally:
            self._set(**before)

    def begin_epoch(self, number: int) -> None:
        """Batches count from here on. number: from 1."""
        self._set(epoch=number, batch=0)

    def want_stop(self) -> None:
        """From the next batch on, `stop_was_agreed` says yes on all ranks."""
        self._set(stop=1)

    def stop_was_agreed(self) -> bool:
        """Whether a rank wanted to stop when the last batch was taken."""
        return bool(self._get("stop_agreed"))

    def any_wants_stop(self, wants: bool) -> bool:
        """At the end of an epoch: whether this or another rank wants to stop. Collective; starts from the beginning."""
        wants = bool(wants or self._get("stop"))
        self._set(stop=int(wants), stop_agreed=int(wants))
        self.agree(EPOCH_END)
        result = self.stop_was_agreed()
        self._set(stop=0, stop_agreed=0)
        return result

    def _get(self, name: str) -> int:
        return int(self._place.numpy()[_PLACE.index(name)])

    def _set(self, **values: int) -> None:
        place = self._place.numpy()
        for name, value in values.items():
            place[_PLACE.index(name)] = value
        self._place.assign(place)


@functools.lru_cache(maxsize=None)
def progress() -> Progress:
    """That of this process."""
    return Progress()
