# SPDX-License-Identifier: Apache-2.0
"""Logs that reach callbacks at the end of an epoch: the same on all ranks, whatever a step of the model returns.

Keras takes the metrics' results where a step returns just these, and else the logs of the last batch, which are this
rank's own: what a callback decides on them would differ from rank to rank.
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
# Of the difference between a metric's result in a step and the same again outside, which computes in another order.
_ROUNDING = 1e-5


def metrics_result_or_logs(base: Callable[..., Any], self: Any, logs: Any) -> Any:
    """Takes the place of Trainer._get_metrics_result_or_logs, which comes at the end of each epoch and of `evaluate`.

    What a step returns that is a metric's result is that of all ranks. Other numbers are averaged over the ranks by
    their samples in the last batch; what is no number is rank 0's. Raises Mismatch on all ranks if their names differ.
    """
    strategy = getattr(self, "distribute_strategy", None)
    if _lifecycle.size() == 1 or not is_farandole_strategy(strategy) or not isinstance(logs, dict):
        return base(self, logs)
    results = self.get_metrics_result()
    if set(logs) == set(results):
        _logs.gathered(dict.fromkeys(logs), _NAME)  # do the others have the same?
        return results
    local = _local_results(self, strategy)
    own = {path: (_plain(leaf), _names_of(path, leaf, local)) for path, leaf in _leaves(logs).items()}
    share = float(progress().share())  # of the last batch
    everyone = _logs.gathered({path: (*each, share) for path, each in own.items()}, _NAME)
    return _filled(logs, {path: _combined(path, [each[path] for each in everyone], results) for path in own})


def _combined(path: str, of_ranks: List[Any], results: Dict[str, Any]) -> Any:
    """of_ranks: (value, names of metrics that have it as their result, share of the samples) of each rank."""
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
    """A dictionary of the structure of `logs` with other leaves."""
    return {
        key: _filled(value, leaves, f"{prefix}{key}/") if isinstance(value, dict) else leaves[f"{prefix}{key}"]
        for key, value in logs.items()
    }


def _plain(leaf: Any) -> Any:
    """As something that travels."""
    value = leaf.numpy() if tf.is_tensor(leaf) else leaf
    return value.astype(np.float32) if getattr(value, "dtype", None) == tf.bfloat16.as_numpy_dtype else value


def _local_results(model: Any, strategy: Any) -> Dict[str, Any]:
    """The results of the model's metrics on this rank's samples, as a step sees them."""
    with ReplicaContext(strategy, model.get_metrics_result, ()):
        return {name: _plain(value) for name, value in model.get_metrics_result().items()}


def _names_of(path: str, leaf: Any, results: Dict[str, Any]) -> List[str]:
    """Names of the metrics that have this leaf as their result, first the one that it is called after.

    The name alone does not say it: a loss of the batch is called "loss" too.
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
