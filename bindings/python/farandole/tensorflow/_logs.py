# SPDX-License-Identifier: Apache-2.0
"""Combines Keras' logs of all ranks."""

from typing import Any, Dict, List, Optional, Sequence

import numpy as np

from .. import objects
from . import _errors


def gathered(logs: Dict[str, Any], name: Optional[str] = None) -> List[Dict[str, Any]]:
    """The logs of all ranks. Raises Mismatch on all ranks if names differ. Collective."""
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
    """True for a number or an array of numbers."""
    return isinstance(value, (int, float, np.ndarray, np.generic)) and np.asarray(value).dtype.kind in "iufV"


def average(values: Sequence[Any], weights: Sequence[float]) -> Any:
    """The weighted average of the ranks' values; rank 0's value if all are equal, not numbers, or of different shapes.

    weights: one per rank. Values of weight zero have no effect, even NaN. If all weights are zero, all ranks count
        equally.
    """
    first = values[0]
    if not all(is_number(value) and np.shape(value) == np.shape(first) for value in values):
        return first
    arrays = np.asarray([np.asarray(value, np.float64) for value in values])
    if np.array_equal(arrays, np.broadcast_to(arrays[:1], arrays.shape), equal_nan=True):
        return first
    count = np.asarray(weights, np.float64) if any(weights) else np.ones(len(values))
    return np.average(arrays[count > 0], axis=0, weights=count[count > 0])
