# SPDX-License-Identifier: Apache-2.0
"""Compares the next operations of the ranks before they begin.

Ranks of a strategy run the same program: together they call fit, take the next batch, reach the end of the data, or
read a value that is aggregated over the ranks. A rank that does anything else would make its peers wait forever, or
combine unrelated numbers. Before each such operation the ranks therefore exchange a message: which operation, and where
in the program. The message also carries a digest of the batch, the rank's number of samples, and a request to stop
training.
"""

import contextlib
import functools
from typing import Any, Callable, Dict, Iterator, List

import numpy as np
import tensorflow as tf

from ... import _lifecycle
from .. import _running, mpi_ops
from .._differences import ranks_in_words

# Columns of the gathered messages, one row per rank. progress_kernel.cpp has the same columns. From _CALL on, the
# columns hold the rank's place in the program.
_KIND, _DIGEST, _SAMPLES, _CALL, _STOP, _EPOCH, _BATCH = range(7)
_PLACE = ("call", "stop", "epoch", "batch", "stop_agreed")
BEGIN, BATCH, END, READ, EPOCH_END, FIT_END = range(6)
# Number of recent batches whose rows per rank are remembered: enough
# for two datasets that are read in turns, each one batch ahead.
KEPT_BATCHES = 4
# Functions of Keras that a rank can be in; "" is none.
CALLS = ("", "fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "predict_on_batch")

_DIFFERENT_PROGRAM = (
    "all ranks must run the same program: fit, evaluate, predict, save and read metrics alike, with as many epochs and "
    "batches. Leave only printing and writing files to one rank"
)
_DIFFERENT_NUMBER = "give all ranks the same number of rows or set {steps}"
_DIFFERENT_DATA = (
    "The ranks read different data: every rank makes the whole batch and takes its own rows of it, so all ranks need equal "
    "data in the same order. Data that are random or shuffled: make them after MirroredStrategy(), or call "
    "keras.utils.set_random_seed(1) first; np.random.default_rng needs a seed. Layers with random numbers in map(): make "
    "them outside of scope(), or put them into the model. Datasets of one rank's rows: "
    "distribute_datasets_from_function(), or AutoShardPolicy.OFF"
)


# ---- Error texts from the messages of all ranks ---------------------------------------------------------------------


def _ordinal(number: int) -> str:
    teens = number // 10 % 10 == 1
    return f"{number}{'th' if teens else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


def _where(row: Any) -> str:
    """The epoch or function in which a rank counts batches; empty if it does not count."""
    if row[_EPOCH] > 0:
        return f" of epoch {row[_EPOCH]}"
    return f" of {CALLS[row[_CALL]]}()" if CALLS[row[_CALL]] else ""


def _action(row: Any) -> str:
    """The operation of a rank, in words."""
    call = CALLS[row[_CALL]]
    within = f" of {call}()" if call else ""
    if row[_KIND] == BATCH:
        return f"takes batch {row[_BATCH] + 1}{_where(row)}" + (within if row[_EPOCH] else "") if call else "takes a batch"
    return {
        BEGIN: f"calls {call}()",
        END: f"has no more batches{within}",
        READ: f"reads a value that is aggregated over the ranks{', in ' + call + '()' if call else ''}",
        EPOCH_END: f"ends epoch {row[_EPOCH]}{within}",
        FIT_END: f"ends {call}()",
    }[row[_KIND]]


def _acting(ranks: Any, action: str) -> str:
    """"rank 1 has no more batches", "ranks 1, 2 have no more batches". `action` begins with a verb in the singular."""
    verb, _, rest = action.partition(" ")
    if len(ranks) > 1:
        verb = "have" if verb == "has" else verb[:-1]
    return f"{ranks_in_words(ranks)} {verb} {rest}"


def _by_ranks(actions: List[str]) -> str:
    """The action of each rank; ranks with the same action are listed together."""
    ranks: Dict[str, List[int]] = {}
    for rank, action in enumerate(actions):
        ranks.setdefault(action, []).append(rank)
    return "; ".join(_acting(acting, action) for action, acting in ranks.items())


def _uneven_batches_text(rows: np.ndarray) -> str:
    """The text if some ranks have another batch and some have none."""
    ended = rows[:, _KIND] == END
    have, has_none = np.flatnonzero(~ended), np.flatnonzero(ended)
    last = rows[has_none[0]]
    call, number = CALLS[last[_CALL]], last[_BATCH]
    where = f" after {number}{_where(last)}" if call else ""
    another = f"a {_ordinal(number + 1)}" if call else "another"
    advice = _DIFFERENT_NUMBER.format(steps={"fit": "steps_per_epoch", "": "them by .repeat() or .take(n)"}.get(call, "steps"))
    return f"{_acting(has_none, f'has no more batches{where}')}; {_acting(have, f'has {another}')}: {advice}"


def _mismatch_text(rows: np.ndarray) -> str:
    """The text of the error; empty if the ranks agree."""
    kinds, calls = set(rows[:, _KIND]), set(rows[:, _CALL])
    if len(calls) == 1 and kinds == {BATCH, END}:
        return _uneven_batches_text(rows)
    if len(calls) > 1 or len(kinds) > 1:
        return f"{_by_ranks([_action(row) for row in rows])}: {_DIFFERENT_PROGRAM}"
    return _DIFFERENT_DATA if kinds != {BEGIN} and len(set(rows[:, _DIGEST])) > 1 else ""


def raise_mismatch(text: str) -> None:
    """Raises Mismatch. All ranks call this function, with the same text; also within a tf.function."""
    _running.run_eagerly(mpi_ops._LIB.farandole_mismatch, text=text)


def _raise_in_graph(rows: tf.Tensor, then: Callable[[], Any]) -> Any:
    """Raises Mismatch in a graph. Has the result structure of `then`, which never runs to its end."""
    text = tf.numpy_function(_mismatch_text, [rows], tf.string)
    with tf.control_dependencies([mpi_ops._LIB.farandole_mismatch(text=text)]):
        return tf.nest.map_structure(tf.identity, then(), expand_composites=True)


# ---- The messages ---------------------------------------------------------------------------------------------------


class Progress:
    """Sends the messages and keeps the results of the last one. A process has one instance, see `progress()`."""

    def __init__(self) -> None:
        # Created outside of the strategy, so that each rank has values of its own. The op reads and writes them on the CPU.
        with tf.init_scope(), tf.device("/device:CPU:0"):
            self._place = tf.Variable([0] * len(_PLACE), dtype=tf.int64, trainable=False, name="farandole_place")
            self._share = tf.Variable(1.0, dtype=tf.float64, trainable=False, name="farandole_share")
            none = [[-1] * _lifecycle.size()] * KEPT_BATCHES
            self._batches = tf.Variable(none, dtype=tf.int64, trainable=False, name="farandole_batches")

    def agree(self, kind: int, digest: Any = 0, samples: Any = 0) -> bool:
        """Announces this rank's next operation to the other ranks, and blocks until every rank has announced an
        operation. Eager.

        kind: BATCH, END, …
        digest: an int64 that must be equal on all ranks, for example of the batch.
        samples: for BATCH, this rank's number of rows.

        Returns True if all digests are equal. Raises Mismatch, on all ranks, if the operations differ, or, except for
        BEGIN, if the digests differ.
        """
        if _lifecycle.size() == 1:
            return True
        rows = _running.run_eagerly(mpi_ops._LIB.farandole_progress, **self._message(kind, digest, samples))[0].numpy()
        text = _mismatch_text(rows)
        if text:
            raise_mismatch(text)
        return len(set(rows[:, _DIGEST])) == 1

    def agree_then(self, kind: int, then: Callable[[], Any], digest: Any = 0, samples: Any = 0) -> Any:
        """`agree` in a graph: returns `then()` once all ranks agree. Otherwise the graph raises the
        tf.errors.FailedPreconditionError that stands for Mismatch."""
        if _lifecycle.size() == 1:
            return then()
        # Control dependencies order this op with reads of its variables, so a step uses the share of its own batch.
        rows, is_same = mpi_ops._LIB.farandole_progress(**self._message(kind, digest, samples))
        # tf.cond and not a control dependency: TensorFlow may start ops that merely come after a failed check.
        return tf.cond(is_same, then, lambda: _raise_in_graph(rows, then))

    def _message(self, kind: int, digest: Any, samples: Any) -> Dict[str, Any]:
        numbers = {"kind": kind, "digest": digest, "samples": samples}
        variables = {"place": self._place.handle, "share": self._share.handle, "batches": self._batches.handle}
        return {**variables, **{name: tf.cast(value, tf.int64) for name, value in numbers.items()}}

    def share(self) -> tf.Tensor:
        """This rank's part of the samples in the last batch that the ranks agreed on, a float64 scalar."""
        return self._share.read_value()

    def batches(self) -> tf.Tensor:
        """Numbers of rows of the last KEPT_BATCHES batches, newest first: int64, one row per batch, one column per
        rank. -1 for batches that were not taken yet. Equal on all ranks."""
        return self._batches.read_value()

    @contextlib.contextmanager
    def within(self, call: str) -> Iterator[None]:
        """Context in which this rank is in a function of Keras, one of CALLS. May be nested."""
        before = {name: self._get(name) for name in ("call", "epoch", "batch")}
        self._set(call=CALLS.index(call), epoch=0, batch=0)
        try:
            yield
        finally:
            self._set(**before)

    def begin_epoch(self, number: int) -> None:
        """Restarts the count of batches. number: the epoch, from 1."""
        self._set(epoch=number, batch=0)

    def want_stop(self) -> None:
        """Requests a stop. `stop_was_agreed` is true on all ranks from the next batch on."""
        self._set(stop=1)

    def stop_was_agreed(self) -> bool:
        """True if a rank had requested a stop when the last batch was taken."""
        return bool(self._get("stop_agreed"))

    def any_wants_stop(self, wants: bool) -> bool:
        """True if this or another rank wants to stop. Called at
        the end of an epoch; resets all requests. Collective."""
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
    """The instance of this process."""
    return Progress()
