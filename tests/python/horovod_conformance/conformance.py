# SPDX-License-Identifier: Apache-2.0
"""Runs cases under Horovod or under Farandole, and writes their outcomes as JSON.

A case is a function that calls hvd's collectives and returns tensors, or a structure of tensors. It runs in eager mode,
in a `tf.function`, and in a graph of TensorFlow 1. Its outcome is its result, or the class of the error that it raised.
"""

import contextlib
import itertools
import os
import sys
from dataclasses import dataclass
from typing import Any, Callable, Dict, Tuple

os.environ["TF_USE_LEGACY_KERAS"] = "1"  # the Keras that Horovod knows
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

import horovod.tensorflow as hvd  # noqa: E402

EAGER, FUNCTION, GRAPH = MODES = ("eager", "function", "graph")
INTEGERS = ("uint8", "int8", "uint16", "int16", "int32", "int64")
FLOATS = ("float16", "bfloat16", "float32", "float64")
DIGITS = {"float16": 3, "bfloat16": 2, "float32": 5, "float64": 10}


@dataclass(frozen=True)
class Case:
    name: str
    body: Callable[..., Any]
    arguments: Tuple[Any, ...]
    modes: Tuple[str, ...]


CASES: Dict[str, Dict[str, Case]] = {}  # by the name of their module


def case(*values: Tuple[Any, ...], modes: Tuple[str, ...] = MODES):
    """Registers a function as a case for each combination of the values of its arguments."""

    def register(body):
        cases = CASES.setdefault(body.__module__, {})
        for arguments in itertools.product(*values):
            name = " ".join([body.__name__.replace("_", " "), *(_word(each) for each in arguments)])
            if name in cases:
                raise ValueError(f"there are two cases '{name}'")
            cases[name] = Case(name, body, arguments, modes)
        return body

    return register


def _word(value) -> str:
    return getattr(value, "__name__", None) or str(value)


def own(dtype="float32", shape=(3, 2), offset=0):
    """A tensor of small numbers that every type has, others on each rank."""
    numbers = np.arange(int(np.prod(shape))).reshape(shape) % 4 + hvd.rank() + offset
    return tf.constant(numbers > 1 if dtype == "bool" else numbers, tf.as_dtype(dtype))


def mine(*of_ranks):
    """The one of these values, or functions that make them, which is this rank's."""
    value = of_ranks[hvd.rank()]
    return value() if callable(value) else value


def _run(case: Case, mode: str):
    body = lambda: case.body(*case.arguments)  # noqa: E731 traced under its name
    if mode == EAGER:
        return body()
    if mode == FUNCTION:
        return tf.function(body)()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        results = body()
        session.run(tf.compat.v1.global_variables_initializer())
        return _fetched(session, results)


def _fetched(session, results):
    """The structure with each tensor replaced by its value in the session; numbers and words stay."""
    is_symbolic = lambda each: tf.is_tensor(each) or isinstance(each, tf.Variable)  # noqa: E731
    flat = tf.nest.flatten(results)
    values = iter(session.run([each for each in flat if is_symbolic(each)]))
    return tf.nest.pack_sequence_as(results, [next(values) if is_symbolic(each) else each for each in flat])


def _json(result):
    """The result as JSON: numbers rounded to what their type holds."""
    if isinstance(result, dict):
        return {str(key): _json(value) for key, value in result.items()}
    if isinstance(result, tf.IndexedSlices) or type(result).__name__ == "IndexedSlicesValue":
        return {"indices": _json(result.indices), "values": _json(result.values)}
    if isinstance(result, (list, tuple)):
        return [_json(each) for each in result]
    if isinstance(result, (str, bool, type(None))):
        return result
    array = np.asarray(result)
    name = array.dtype.name
    if name in DIGITS:
        wide = array.astype(np.float64)
        array = np.vectorize(lambda number: float(f"{number:.{DIGITS[name]}g}"), otypes=[np.float64])(wide)
    return {"type": name, "shape": list(array.shape), "values": array.tolist()}


def _error(error: BaseException):
    """The class, and all others by which a program catches it."""
    return {"error": type(error).__name__, "caught_as": [each.__name__ for each in type(error).__mro__]}


def is_same(expected, found) -> bool:
    """Whether a program sees the same: of errors, whether it catches this one by the class that it knows."""
    if isinstance(expected, dict) and "error" in expected and isinstance(found, dict) and "error" in found:
        return expected["error"] in found["caught_as"]
    return expected == found


def outcome(case: Case, mode: str):
    try:
        return _json(_run(case, mode))
    except Exception as error:  # whatever it is, it is the outcome
        tell(f"{case.name}, {mode}: {type(error).__name__}: {error}")
        return _error(error)


def tell(text: str) -> None:
    """With CONFORMANCE_VERBOSE=1: to find out where a job hangs, or what an error says."""
    if os.environ.get("CONFORMANCE_VERBOSE"):
        print(f"[rank {hvd.rank()}] {text}", file=sys.stderr, flush=True)


def outcomes(modules) -> Dict[str, Any]:
    """The outcomes of all cases of these modules, in their order, by name and mode."""
    found = {}
    for module in modules:
        for each in CASES[module].values():
            for mode in each.modes:
                tell(f"{each.name}, {mode}")
                found[f"{module}: {each.name}, {mode}"] = outcome(each, mode)
    return found


@contextlib.contextmanager
def process_set(*ranks):
    """A process set of these ranks, as long as the context lasts."""
    made = hvd.add_process_set(list(ranks))
    try:
        yield made
    finally:
        hvd.remove_process_set(made)
