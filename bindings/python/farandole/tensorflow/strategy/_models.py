# SPDX-License-Identifier: Apache-2.0
"""Compares the ranks' models beyond their variables, before training.

A vocabulary, or layers that are created by iterating over a set() of strings, differs from process to process: each
rank would train a different model, and sum unrelated gradients. The ranks therefore compare a digest of everything that
changes the computation (_description.py). Names, seeds and initializers may differ. If numbers or strings of the
program's own differ, rank 0 warns at most. See docs/decisions/0037-comparing-models.md.
"""

import weakref
from typing import Any, Optional

import tensorflow as tf

from ... import _lifecycle, objects
from .. import _errors
from .._differences import shortened
from . import _optimizers
from ._description import Description, describe_function
from ._extended import is_farandole_strategy
from ._progress import raise_mismatch
from ._value_differences import ERROR, WARNING, worst_difference

_NAME = "farandole.strategy.models"
_ADVICE = (
    "All ranks must make the same model. The order of a set() of texts is another one in each process: use sorted(). "
    "MirroredStrategy(model_check=False) leaves this comparison out"
)

_known: Any = weakref.WeakKeyDictionary()  # model → (state at the time of the description, description)
_compared_optimizers: Any = weakref.WeakSet()


def is_on(strategy: Any) -> bool:
    """True if the strategy compares models."""
    return is_farandole_strategy(strategy) and _lifecycle.size() > 1 and getattr(strategy, "model_check", True)


def describe_model(model: Any) -> Optional[Description]:
    """The description of the model, made once after each compile()
    and each build. None if its strategy does not compare."""
    if not is_on(model.distribute_strategy):
        return None
    compiled = [getattr(model, name, None) for name in ("_compile_config", "optimizer")]  # both None: not compiled
    state = [*compiled, bool(model.built), len(model.variables)]
    before = _known.get(model)
    if before is None or any(mine is not was for mine, was in zip(state[:2], before[0])) or state[2:] != before[0][2:]:
        description = Description(bool(model.built))
        description.add_layer("", model, model.name)
        _known[model] = before = state, description
    _compared_optimizers.update(_optimizers.optimizers_of(model))
    return before[1]


def compare_at_first_update(context: Any, optimizer: Any) -> None:
    """Compares the model, or the objects that the function refers to, when an optimizer is first applied within
    `strategy.run`. Collective: all ranks apply the optimizer together."""
    if optimizer in _compared_optimizers or not is_on(context.strategy):
        return
    _compared_optimizers.add(optimizer)
    with tf.init_scope():  # the step may be under tracing
        description = describe_model(context.model) if context.model_step else describe_function(context.function)
        mine = None if description is None else description.digest()
        if len(set(objects.allgather_object(mine, _NAME))) > 1:
            text = difference_of(description)
            if text:
                raise _errors.mismatch(text)


def difference_of(description: Optional[Description]) -> str:
    """The difference between the ranks' models in words; empty if there is none that all ranks can see. Collective."""
    everyone = objects.allgather_object(None if description is None else description.in_full(), _NAME)
    if None in everyone or len({is_built for is_built, _, _ in everyone}) > 1:
        return ""
    of_ranks = [{(place, what): value for place, what, value in facts} for _, facts, _ in everyone]
    names = everyone[0][2]
    found = []
    for key in of_ranks[0]:
        if all(key in each for each in of_ranks):
            place, what = key
            of = f" of layer '{names[place]}'" if place in names else ""
            found.append(worst_difference(what, {rank: each[key] for rank, each in enumerate(of_ranks)}, of))
    texts = {level: [each.text for each in found if each.level == level and each.text] for level in (WARNING, ERROR)}
    if texts[ERROR]:
        return f"the models of the ranks differ: {shortened(texts[ERROR])}. {_ADVICE}"
    description.accept()
    if texts[WARNING]:
        _warn(shortened(texts[WARNING]))
    return ""


def _warn(text: str) -> None:
    _lifecycle.warn_once(
        f"models may differ: {text}. That is right for what belongs to a rank; what all of them compute with must be "
        "equal. MirroredStrategy(model_check=False) leaves this comparison out"
    )


def refuse_difference(description: Optional[Description]) -> None:
    """Raises Mismatch, on all ranks, if their models differ. Collective."""
    text = difference_of(description)
    if text:
        raise_mismatch(text)
