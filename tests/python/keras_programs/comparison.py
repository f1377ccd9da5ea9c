# SPDX-License-Identifier: Apache-2.0
"""Runs programs once in one process alone, and once on all ranks together; both must give the same numbers.

A program is a function with the decorator `program()`. Its argument is `scope`, in which the program makes its model, as a
user would: `with scope():` does nothing in one process, and enters the strategy's scope on all ranks. The result, which is
compared, is a structure of dicts, lists and tuples that contains numbers, arrays, tensors, texts and None.
"""

import contextlib
import dataclasses
import faulthandler
import shutil
import sys
import tempfile
import time
import traceback
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence

import keras
import numpy as np
import support
import tensorflow as tf
from keras_support import strategy

import farandole.tensorflow as hvd

SEED = 11
PATIENCE_SECONDS = 30.0  # for the other ranks, once this one has raised
PROGRAMS: Dict[str, "Program"] = {}  # by name, in the order in which their modules are imported


@dataclasses.dataclass(frozen=True)
class Program:
    """function: takes `scope`, returns what is compared.
    rtol, atol: how far a number may be from that of one process, as for numpy.testing.assert_allclose; atol is for
    arrays of numbers up to 1, and grows with the largest of them: what is near 0 then is a difference of larger ones.
    full_only: whether it is left out unless all programs are asked for.
    ranks: the numbers of ranks with which it runs.
    may_be_nan: whether one process may give NaN. A NaN that nobody expects would be equal to any other.
    """

    function: Callable[[Callable[[], Any]], Any]
    topic: str
    rtol: float
    atol: float
    full_only: bool
    ranks: Sequence[int]
    may_be_nan: bool

    @property
    def name(self) -> str:
        return self.function.__name__


def program(
    rtol: float = 1e-5,
    atol: float = 1e-6,
    full_only: bool = False,
    ranks: Sequence[int] = (2, 3),
    may_be_nan: bool = False,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a function as a program. Arguments: see `Program`."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        if function.__name__ in PROGRAMS:
            raise ValueError(f"there are two programs of the name {function.__name__}")
        if not function.__doc__:
            raise ValueError(f"{function.__name__} does not say what it stands for")
        topic = function.__module__.rpartition(".")[2]
        PROGRAMS[function.__name__] = Program(function, topic, rtol, atol, full_only, ranks, may_be_nan)
        return function

    return register


# ---- Where a program writes


_directory: Optional[str] = None  # that of the running program


def directory() -> str:
    """An empty directory for the running program: of this rank alone, or of all ranks together."""
    assert _directory is not None, "a program is running"
    return _directory


@contextlib.contextmanager
def _own_directory(is_together: bool) -> Iterator[None]:
    global _directory
    makes = not is_together or hvd.rank() == 0
    made = tempfile.mkdtemp(prefix="keras_programs") if makes else None
    _directory = hvd.broadcast_object(made) if is_together else made
    try:
        yield
    finally:
        _directory = None
        if made is not None:
            shutil.rmtree(made, ignore_errors=True)


# ---- What programs are made of


def over_parts(loss: Callable[..., Any]) -> Callable[..., Any]:
    """A loss of the whole batch that is no mean over its samples, such as Dice: together it is the mean of the ranks'
    parts, by their samples. Returns the loss, or, in one process, this mean of the parts that ranks would have."""
    if tf.distribute.has_strategy():
        return loss

    def mean_of_parts(y_true: Any, y_pred: Any) -> Any:
        rows, ranks, begin, mean = tf.shape(y_pred)[0], hvd.size(), 0, 0.0
        for rank in range(ranks):
            count = rows // ranks + tf.cast(rank < rows % ranks, tf.int32)  # the first ranks have one more
            value = loss(y_true[begin : begin + count], y_pred[begin : begin + count])
            mean += tf.math.multiply_no_nan(value, tf.cast(count / rows, value.dtype))
            begin += count
        return mean

    return mean_of_parts


# ---- What programs return


def trained(model: Any, history: Any, inputs: Any) -> Dict[str, Any]:
    """The usual result of a program: the history of fit, the weights, and the predictions for the inputs."""
    return {
        "history": history.history,
        "weights": model.get_weights(),
        "predictions": model.predict(inputs, batch_size=8, verbose=0),
    }


def flat(value: Any, path: str = "") -> Dict[str, Any]:
    """The leaves of a structure by their paths: "history['loss'][1]". Arrays of numbers, text, or None."""
    if isinstance(value, dict):
        children = [(f"{path}[{key!r}]" if path else str(key), each) for key, each in value.items()]
    elif isinstance(value, (list, tuple)):
        children = [(f"{path}[{index}]", each) for index, each in enumerate(value)]
    elif value is None or isinstance(value, str):
        return {path: value}
    else:
        array = np.asarray(value)
        if array.dtype.kind in "OSU":
            return flat(array.tolist(), path)
        # bfloat16 and the like are no kinds of numpy's.
        return {path: array.astype(np.float32) if array.dtype.kind == "V" else array}
    return {where: leaf for child_path, child in children for where, leaf in flat(child, child_path).items()}


def _shown(value: Any) -> str:
    return f"{value:.8g}" if isinstance(value, (float, np.floating)) else repr(value)


def _place(path: str, index: Sequence[int]) -> str:
    return path + (f"[{', '.join(map(str, index))}]" if index else "")


def _difference(path: str, expected: Any, got: Any, rtol: float, atol: float) -> str:
    """Describes the error of one leaf; empty if there is none."""
    if not isinstance(expected, np.ndarray) or not isinstance(got, np.ndarray):
        alike = type(expected) is type(got) and expected == got
        return "" if alike else f"{path}: expected {_shown(expected)}, got {_shown(got)}"
    if expected.shape != got.shape:
        return f"{path}: expected the shape {expected.shape}, got {got.shape}"
    wide_expected, wide_got = expected.astype(np.float64), got.astype(np.float64)
    magnitudes = np.abs(wide_expected[np.isfinite(wide_expected)])
    scale = max(1.0, magnitudes.max(initial=0.0)) if expected.ndim else 1.0
    wrong = ~np.isclose(wide_got, wide_expected, rtol=rtol, atol=atol * scale, equal_nan=True)
    if not wrong.any():
        return ""
    distance = np.where(wrong, np.abs(wide_got - wide_expected), -1)
    worst = np.unravel_index(np.argmax(np.nan_to_num(distance, nan=np.inf, posinf=np.inf)), expected.shape)
    off = distance[worst]
    count = f", {wrong.sum()} of {wrong.size} differ" if wrong.size > 1 else ""
    relative = off / abs(wide_expected[worst]) if wide_expected[worst] else np.inf
    return (
        f"{_place(path, worst)}: expected {_shown(expected[worst])}, got {_shown(got[worst])} "
        f"(off by {off:.3g}, relative {relative:.3g}{count})"
    )


def differences(expected: Dict[str, Any], got: Dict[str, Any], rtol: float, atol: float) -> List[str]:
    """How two flat structures differ beyond the tolerance, a line for each leaf."""
    lines = [f"{path}: is missing" for path in expected if path not in got]
    lines += [f"{path}: is not there in one process" for path in got if path not in expected]
    both = [path for path in expected if path in got]
    return lines + [line for path in both if (line := _difference(path, expected[path], got[path], rtol, atol))]


def _bits(leaf: Any) -> Any:
    return (leaf.dtype.str, leaf.shape, leaf.tobytes()) if isinstance(leaf, np.ndarray) else leaf


def unequal_bits(first: Dict[str, Any], other: Dict[str, Any], rank: int) -> List[str]:
    """Describes how a rank's result differs from rank 0's, in any bit."""
    lines = [f"{path}: is on one of the ranks 0 and {rank} only" for path in first.keys() ^ other.keys()]
    for path in first:
        if path in other and _bits(first[path]) != _bits(other[path]):
            difference = _difference(path, first[path], other[path], 0.0, 0.0) or f"{path}: same value, other bits"
            lines.append(f"rank {rank} has not the bits of rank 0: {difference}")
    return lines


# ---- Running


@dataclasses.dataclass
class _Outcome:
    leaves: Optional[Dict[str, Any]] = None
    error: Optional[str] = None


def _run_once(function: Callable[..., Any], scope: Callable[[], Any], how: str) -> _Outcome:
    policy, floatx = keras.config.dtype_policy(), keras.config.floatx()
    keras.backend.clear_session()
    keras.utils.set_random_seed(SEED)
    try:
        return _Outcome(leaves=flat(function(scope)))
    except Exception as error:
        # At once: if the other ranks do not hear of it, the job ends after a while.
        faulthandler.dump_traceback_later(PATIENCE_SECONDS, exit=True)
        text = f"[rank {hvd.rank()}] {function.__name__} raised {how}\n{traceback.format_exc()}"
        print(text, file=sys.stderr, flush=True)
        return _Outcome(error=f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}")
    finally:
        keras.config.set_dtype_policy(policy)
        keras.config.set_floatx(floatx)


def _gathered(value: Any) -> List[Any]:
    """The values of all ranks. Those that are still in the program have the first tries fail."""
    for _ in range(3):
        try:
            return hvd.allgather_object(value)
        except hvd.errors.Mismatch:
            pass
    return hvd.allgather_object(value)


def _verdict(each: Program) -> List[str]:
    with _own_directory(is_together=False):
        alone = _run_once(each.function, contextlib.nullcontext, "alone")
    failed_alone = [outcome for outcome in _gathered(alone.error) if outcome]
    if failed_alone:
        return [f"fails in one process: {failed_alone[0]}"]
    with _own_directory(is_together=True):
        together = _run_once(each.function, strategy().scope, "together")
        # Then all have done with the directory.
        results = _gathered({"expected": alone.leaves, "got": together.leaves, "error": together.error})
    raised = [f"rank {rank} raised {it['error']}" for rank, it in enumerate(results) if it["error"]]
    if raised:
        return raised
    expected, got = results[0]["expected"], results[0]["got"]
    lines = []
    if not expected:
        lines.append("returns nothing to compare")
    if not each.may_be_nan:
        numbers = {path: leaf for path, leaf in expected.items() if isinstance(leaf, np.ndarray)}
        lines += [f"{path}: one process gives NaN" for path, leaf in numbers.items() if np.isnan(leaf).any()]
    lines += differences(expected, got, each.rtol, each.atol)
    for rank, it in enumerate(results[1:], start=1):
        lines += unequal_bits(got, it["got"], rank)
    return lines


def check(each: Program) -> List[str]:
    """Runs a program alone and together. Returns the errors, the same on all ranks. Collective."""
    faulthandler.dump_traceback_later(support.WATCHDOG_SECONDS, exit=True)
    try:
        return _verdict(each)
    finally:
        faulthandler.cancel_dump_traceback_later()


SHOWN = 12  # lines of one program


def run(programs: Sequence[Program]) -> bool:
    """Runs the programs and prints the results on rank 0. Returns True if all were right. Collective."""
    first = hvd.rank() == 0

    def say(text: str, end: str = "\n") -> None:
        if first:
            print(text, end=end, flush=True)

    begin = time.monotonic()
    failed = []
    chosen = [each for each in programs if hvd.size() in each.ranks or hvd.size() == 1]
    for each in chosen:
        say(f"{each.topic}.{each.name} ", end="")
        start = time.monotonic()
        lines = check(each)
        say(f"{'FAILED' if lines else 'ok'} {time.monotonic() - start:.1f} s")
        for line in lines[:SHOWN]:
            say(f"    {line}")
        if len(lines) > SHOWN:
            say(f"    and {len(lines) - SHOWN} more")
        if lines:
            failed.append(each.name)
    say(
        f"{len(chosen) - len(failed)} of {len(chosen)} programs give on {hvd.size()} ranks what one process gives, "
        f"{time.monotonic() - begin:.0f} s" + (f"; failed: {' '.join(failed)}" if failed else "")
    )
    return not failed
