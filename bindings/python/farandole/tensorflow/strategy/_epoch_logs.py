# SPDX-License-Identifier: Apache-2.0
"""Patch that makes the logs of an epoch equal on all ranks, so that callbacks decide equally.

If a step returns exactly the results of the metrics, Keras passes these results to callbacks. Otherwise Keras passes
the logs of the last batch, which cover only this rank's rows.
"""

from typing import Any, Callable, Dict, List

import numpy as np
import tensorflow as tf

from ... import _lifecycle
from .. import _logs
from ._context import ReplicaContext
from ._extended import is_farandole_strategy
from ._progress import progress

_NAME = "farandole.strategy.logs"
# Relative tolerance between a metric's result within a step and
# the same result outside, which is computed in another order.
_ROUNDING = 1e-5


def metrics_result_or_logs(base: Callable[..., Any], self: Any, logs: Any) -> Any:
    """Replaces Trainer._get_metrics_result_or_logs, which Keras calls at the end of each epoch and of `evaluate`.

    A returned value that is the result of a metric becomes the result over all ranks. Other numbers are averaged over
    the ranks, weighted by the samples of the last batch. Any other value becomes rank 0's. Raises Mismatch on all
    ranks if the names differ. Collective.
    """
    strategy = getattr(self, "distribute_strategy", None)
    if _lifecycle.size() == 1 or not is_farandole_strategy(strategy) or not isinstance(logs, dict):
        return base(self, logs)
    results = self.get_metrics_result()
    if set(logs) == set(results):
        _logs.gathered(dict.fromkeys(logs), _NAME)  # only compares the names
        return results
    local = _local_results(self, strategy)
    own = {path: (_plain(leaf), _names_of(path, leaf, local)) for path, leaf in _leaves(logs).items()}
    share = float(progress().share())  # of the last batch
    everyone = _logs.gathered({path: (*each, share) for path, each in own.items()}, _NAME)
    return _filled(logs, {path: _combined(path, [each[path] for each in everyone], results) for path in own})


def _combined(path: str, of_ranks: List[Any], results: Dict[str, Any]) -> Any:
    """of_ranks: for each rank, (value, names of the metrics whose result it is, share of the samples)."""
    values, names, shares = zip(*of_ranks)
    for name in names[0]:
        if all(name in each for each in names) and name in results:
            return results[name]
    return _logs.average(values, shares)


def _leaves(logs: Dict[str, Any], prefix: str = "") -> Dict[str, Any]:
    found: Dict[str, Any] = {}
    for key, value in logs.items():
        found.update(_leaves(value, f"{prefix}{key}/") if isinstance(value, dict) else {f"{prefix}{key}": value})
    return found


def _filled(logs: Dict[str, Any], leaves: Dict[str, Any], prefix: str = "") -> Dict[str, Any]:
    """A dictionary with the structure of `logs` and the values of `leaves`."""
    return {
        key: _filled(value, leaves, f"{prefix}{key}/") if isinstance(value, dict) else leaves[f"{prefix}{key}"]
        for key, value in logs.items()
    }


def _plain(leaf: Any) -> Any:
    """The leaf as a value that can be pickled."""
    value = leaf.numpy() if tf.is_tensor(leaf) else leaf
    return value.astype(np.float32) if getattr(value, "dtype", None) == tf.bfloat16.as_numpy_dtype else value


def _local_results(model: Any, strategy: Any) -> Dict[str, Any]:
    """The results of the model's metrics on this rank's samples, as they are within a step."""
    with ReplicaContext(strategy, model.get_metrics_result, ()):
        return {name: _plain(value) for name, value in model.get_metrics_result().items()}


def _names_of(path: str, leaf: Any, results: Dict[str, Any]) -> List[str]:
    """Names of the metrics whose result equals this leaf; a metric with the leaf's own name comes first.

    Compares values, because names do not suffice: the loss of a batch is called "loss", and so is the metric.
    """
    value = _plain(leaf)
    if not _logs.is_number(value):
        return []
    equal = [
        name
        for name, result in results.items()
        if np.shape(result) == np.shape(value) and np.allclose(value, result, rtol=_ROUNDING, atol=0, equal_nan=True)
    ]
    return sorted(equal, key=lambda name: name != path.rpartition("/")[2])
