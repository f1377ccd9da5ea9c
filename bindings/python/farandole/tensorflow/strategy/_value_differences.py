# SPDX-License-Identifier: Apache-2.0
"""Differences of values that `_strategy_values` has described, in words, and whether they are errors.

Numbers and texts of the program's own may differ by rank, so they are worth a warning at most. The same elements in
another order are what going over a set() makes, and always an error.
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
# Marks of values, as keys of a dictionary that has no other: of the program, and those of which only the order counts.
OWN, ORDER = "of the program", "the order"
_LEVELS = {OWN: WARNING, ORDER: PASSED}
# Hosts of different kinds compute the same constants, as statistics of data, with other rounding.
_ROUNDING = 1e-5


class Difference(NamedTuple):
    level: int = PASSED
    text: str = ""


def worst_difference(name: str, values: Mapping[int, Any], of: str = "", level: int = ERROR) -> Difference:
    """The first of the worst differences between the ranks' values: "vocabulary[3] of layer 'lookup' is 'cat' on rank 0
    and 'dog' on rank 1", where `of` is " of layer 'lookup'". At most of `level`, but for elements in another order."""
    first = values[0]
    if all(_is_same(first, each) for each in values.values()):
        return Difference()
    if all(isinstance(each, dict) for each in values.values()):
        return _of_members(name, values, of, level)
    if all(isinstance(each, list) for each in values.values()):
        return _of_elements(name, values, of, level)
    return _of_leaves(name, values, of, level)


def _of_members(name: str, values: Mapping[int, Dict[str, Any]], of: str, level: int) -> Difference:
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
        return _of_elements(
            f"the keys of {name}", {rank: [key[1:-1] for key in each] for rank, each in keys.items()}, of, ERROR
        )
    else:
        found = Difference()
        if _is_other_order([[each[key] for key in keys[0]] for each in values.values()]):
            level = ERROR
    common = [key for key in keys[0] if all(key in each for each in values.values())]
    for key in common:
        found = max(
            found,
            worst_difference(_within(key, name), {rank: each[key] for rank, each in values.items()}, of, level),
            key=lambda one: one.level,
        )
    return found if found.level > PASSED else Difference()


def _of_elements(name: str, values: Mapping[int, List[Any]], of: str, level: int) -> Difference:
    if len(set(map(len, values.values()))) > 1:
        text = difference(f"the number of elements of {name}{of}", {rank: len(each) for rank, each in values.items()})
        return Difference(level, text)
    if _is_other_order(list(values.values())):
        level, of = ERROR, f"{of}, which has the same elements in another order,"
    found = Difference()
    for number in range(len(values[0])):
        parts = {rank: each[number] for rank, each in values.items()}
        place = f"element {number} of {name}" if " " in name else f"{name}[{number}]"
        found = max(found, worst_difference(place, parts, of, level), key=lambda one: one.level)
        if found.level == ERROR:
            break
    return found


def _within(part: str, name: str) -> str:
    """ "config['out']", "global 'R' of call()", "['out'] of the first argument"."""
    return f"{name}{part}" if part.startswith("[") and " " not in name else f"{part} of {name}"


def _of_leaves(name: str, values: Mapping[int, Any], of: str, level: int) -> Difference:
    if level == WARNING:
        if any(isinstance(each, str) and each.startswith(("class ", "code ", "function ")) for each in values.values()):
            level = ERROR
        elif _is_by_rank(values):
            level = PASSED
    if level == PASSED:
        return Difference()
    return Difference(level, difference(name + of, {rank: _shown(each) for rank, each in values.items()}))


def _is_other_order(everyones: List[List[Any]]) -> bool:
    """Whether the ranks have the same elements in another order, but for numbers that go round with the rank."""
    texts = [[json.dumps(each) for each in mine] for mine in everyones]
    if len(texts[0]) < 2 or all(mine == texts[0] for mine in texts) or any(sorted(mine) != sorted(texts[0]) for mine in texts):
        return False
    return not (all(isinstance(each, (bool, int, float)) for each in everyones[0]) and _go_round(texts))


def _go_round(everyones: List[List[str]]) -> bool:
    """Whether each rank has those of rank 0, moved on by its number: a ring as a rank sees it, a one among zeros."""
    first = everyones[0]
    if len(everyones) % len(first):  # not a number for each rank, of the job or of a host
        return False
    turned = [
        [first[place:] + first[:place] for place in (step * rank % len(first) for rank in range(len(everyones)))]
        for step in (1, -1)
    ]
    return everyones in turned


def _are_texts(keys: List[str]) -> bool:
    return all(key.startswith(("['", '["')) for key in keys)


def _is_by_rank(values: Mapping[int, Any]) -> bool:
    """Whether they are ranks, multiples of them, or numbers or texts in which ranks are counted."""
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
