# SPDX-License-Identifier: Apache-2.0
"""Describes differences between ranks in words."""

from typing import Any, Dict, List, Mapping

_MAX_SHOWN = 3  # differences in a message


def ranks_in_words(ranks: Any) -> str:
    """"rank 1", "ranks 1, 2"."""
    ranks = [str(rank) for rank in ranks]
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(ranks)}"


def difference(name: str, values: Mapping[int, Any]) -> str:
    """"the loss is 'mse' on rank 0 and 'mae' on ranks 1, 2";
    empty if all ranks have the same value. values: by rank."""
    ranks: Dict[str, List[int]] = {}
    for rank, value in values.items():
        ranks.setdefault(str(value), []).append(rank)
    if len(ranks) < 2:
        return ""
    return f"{name} is " + " and ".join(f"{value} on {ranks_in_words(who)}" for value, who in ranks.items())


def shortened(differences: List[str]) -> str:
    """The first differences, and the number of further differences."""
    more = len(differences) - _MAX_SHOWN
    return "; ".join(differences[:_MAX_SHOWN]) + (f"; and {more} more difference{'s' if more > 1 else ''}" if more > 0 else "")
