# SPDX-License-Identifier: Apache-2.0
"""Logs of Keras, of which each rank has its own, as those of all ranks."""

from typing import Any, Dict, List, Optional, Sequence

import numpy as np

from .. import objects
from . import _errors


def gathered(logs: Dict[str, Any], name: Optional[str] = None) -> List[Dict[str, Any]]:
    """The logs of all ranks. Raises Mismatch on all of them if they have different names. Collective."""
    everyone = objects.allgather_object(logs, name=name)
    for rank, other in enumerate(everyone):
        if set(other) != set(everyone[0]):
            raise _errors.mismatch(
                f"the ranks have different logs: rank 0 has {_listed(everyone[0])}, rank {rank} has {_listed(other)}. Return "
                "the same names from train_step and test_step, and add the same ones in callbacks, on all ranks"
            )
    return everyone


def _listed(logs: Dict[str, Any]) -> str:
    return ", ".join(sorted(logs)) or "none"


def is_number(value: Any) -> bool:
    """Whether it is a number, or an array of numbers, that an average can be taken of."""
    return isinstance(value, (int, float, np.ndarray, np.generic)) and np.asarray(value).dtype.kind in "iufV"


def average(values: Sequence[Any], weights: Sequence[float]) -> Any:
    """The average of the ranks' values. Where they are equal, are no numbers, or have different shapes: rank 0's.

    weights: of the ranks. Those without weight do not count, even with a NaN; if nobody has one all count alike.
    """
    first = values[0]
    if not all(is_number(value) and np.shape(value) == np.shape(first) for value in values):
        return first
    arrays = np.asarray([np.asarray(value, np.float64) for value in values])
    if np.array_equal(arrays, np.broadcast_to(arrays[:1], arrays.shape), equal_nan=True):
        return first
    count = np.asarray(weights, np.float64) if any(weights) else np.ones(len(values))
    return np.average(arrays[count > 0], axis=0, weights=count[count > 0])
