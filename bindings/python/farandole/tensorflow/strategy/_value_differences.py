# SPDX-License-Identifier: Apache-2.0
"""Differences of values that _values.py has described, in words, and whether they are errors.

Numbers and texts of the program's own may differ between ranks, so they cause a warning at most. Equal elements in a
different order are always an error: they come from iterating over a set().
"""

import json
import re
from typing import Any, Dict, List, Mapping, NamedTuple

import numpy as np

from .._differences import difference
from . import _code

UNKNOWN = "an object that is not compared"
# Levels of a difference.
PASSED, WARNING, ERROR = 0, 1, 2
# Marks: keys of one-entry dictionaries, whose value is the program's own (OWN), or is compared by order only (ORDER).
OWN, ORDER = "of the program", "the order"
_LEVELS = {OWN: WARNING, ORDER: PASSED}
# Hosts with different processors compute constants, such as statistics of data, with different rounding.
_ROUNDING = 1e-5


class Difference(NamedTuple):
    level: int = PASSED
    text: str = ""


def worst_difference(name: str, values: Mapping[int, Any], of: str = "", level: int = ERROR) -> Difference:
    """The first difference of the highest level. Levels above `level` are lowered to `level`, except for elements in a
    different order, which are an ERROR.

    The text is, for example, "vocabulary[3] of layer 'lookup' is 'cat' on rank 0 and 'dog' on rank 1", where `of` is
    " of layer 'lookup'".
    """
    first = values[0]
    if all(_is_same(first, each) for each in values.values()):
        return Difference()
    if all(isinstance(each, dict) for each in values.values()):
        return _compare_members(name, values, of, level)
    if all(isinstance(each, list) for each in values.values()):
        return _compare_elements(name, values, of, level)
    return _compare_leaves(name, values, of, level)


def _compare_members(name: str, values: Mapping[int, Dict[str, Any]], of: str, level: int) -> Difference:
    keys = {rank: list(each) for rank, each in values.items()}
    if len(keys[0]) == 1 and all(each == keys[0] for each in keys.values()) and keys[0][0][0] != "[":  # a mark
        mark = keys[0][0]
        parts = {rank: each[mark] for rank, each in values.items()}
        if mark.startswith(("array", "table", *_LEVELS)):
            return worst_difference(name, parts, of, min(level, _LEVELS.get(mark, ERROR)))
    if len({frozenset(each) for each in keys.values()}) > 1:
        found = Difference(
            level, difference(f"the list of parts of {name}{of}", {rank: _shown(each) for rank, each in keys.items()})
        )
    elif any(each != keys[0] and _are_texts(each) for each in keys.values()):
        return _compare_elements(
            f"the keys of {name}", {rank: [key[1:-1] for key in each] for rank, each in keys.items()}, of, ERROR
        )
    else:
        found = Difference()
        if _is_reordered([[each[key] for key in keys[0]] for each in values.values()]):
            level = ERROR
    common = [key for key in keys[0] if all(key in each for each in values.values())]
    for key in common:
        found = max(
            found,
            worst_difference(_within(key, name), {rank: each[key] for rank, each in values.items()}, of, level),
            key=lambda each: each.level,
        )
    return found if found.level > PASSED else Difference()


def _compare_elements(name: str, values: Mapping[int, List[Any]], of: str, level: int) -> Difference:
    if len(set(map(len, values.values()))) > 1:
        text = difference(f"the number of elements of {name}{of}", {rank: len(each) for rank, each in values.items()})
        return Difference(level, text)
    if _is_reordered(list(values.values())):
        level, of = ERROR, f"{of}, which has the same elements in another order,"
    found = Difference()
    for number in range(len(values[0])):
        parts = {rank: each[number] for rank, each in values.items()}
        place = f"element {number} of {name}" if " " in name else f"{name}[{number}]"
        found = max(found, worst_difference(place, parts, of, level), key=lambda each: each.level)
        if found.level == ERROR:
            break
    return found


def _within(part: str, name: str) -> str:
    """ "config['out']", "global 'R' of call()", "['out'] of the first argument"."""
    return f"{name}{part}" if part.startswith("[") and " " not in name else f"{part} of {name}"


def _compare_leaves(name: str, values: Mapping[int, Any], of: str, level: int) -> Difference:
    if level == WARNING:
        if any(isinstance(each, str) and each.startswith(("class ", "code ", "function ")) for each in values.values()):
            level = ERROR
        elif _is_by_rank(values):
            level = PASSED
    if level == PASSED:
        return Difference()
    return Difference(level, difference(name + of, {rank: _shown(each) for rank, each in values.items()}))


def _is_reordered(of_ranks: List[List[Any]]) -> bool:
    """True if the ranks have equal elements in different orders. False for numbers that are rotated by the rank."""
    texts = [[json.dumps(each) for each in mine] for mine in of_ranks]
    if len(texts[0]) < 2 or all(mine == texts[0] for mine in texts) or any(sorted(mine) != sorted(texts[0]) for mine in texts):
        return False
    return not (all(isinstance(each, (bool, int, float)) for each in of_ranks[0]) and _is_rotated(texts))


def _is_rotated(of_ranks: List[List[str]]) -> bool:
    """True if each rank has rank 0's elements rotated by the rank: a ring seen from each rank, or a one-hot vector."""
    first = of_ranks[0]
    if len(of_ranks) % len(first):  # not one number per rank of the job or of a host
        return False
    rotations = [
        [first[place:] + first[:place] for place in (step * rank % len(first) for rank in range(len(of_ranks)))]
        for step in (1, -1)
    ]
    return of_ranks in rotations


def _are_texts(keys: List[str]) -> bool:
    return all(key.startswith(("['", '["')) for key in keys)


def _is_by_rank(values: Mapping[int, Any]) -> bool:
    """True for ranks, multiples of ranks, and numbers or texts that differ only by a count of the ranks."""
    if all(isinstance(each, int) for each in values.values()):
        first, second = values[0], values[1]
        counted = all(each == first + rank for rank, each in values.items())
        return counted or (first == 0 and all(each == rank * second for rank, each in values.items()))
    if not all(isinstance(each, str) for each in values.values()):
        return False
    without = {
        re.sub(r"\d+", lambda digits: "#" if int(digits[0]) == rank else digits[0], each) for rank, each in values.items()
    }
    return len(without) == 1


def _shown(value: Any) -> str:
    if _code.is_digest(value):
        return _code.shown_digest(value)
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 60 else text[:60] + "…"


def _is_same(left: Any, right: Any) -> bool:
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_is_same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return list(left) == list(right) and all(_is_same(each, right[key]) for key, each in left.items())
    if isinstance(left, float) and isinstance(right, float):
        return left == right or bool(np.isclose(left, right, rtol=_ROUNDING, atol=1e-30, equal_nan=True))
    if _code.is_digest(left) and _code.is_digest(right):
        return _code.is_same_digest(left, right)
    return UNKNOWN in (left, right) or left == right
