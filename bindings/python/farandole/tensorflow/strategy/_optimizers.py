# SPDX-License-Identifier: Apache-2.0
"""Patches of Keras' optimizers: equal settings on all ranks,
also for optimizers that were made outside of the scope."""

import json
import warnings
from typing import Any, Callable, Dict, List

import keras
import tensorflow as tf

from ... import _lifecycle, objects
from .. import _errors
from .._differences import difference
from .._gradients import variable_of
from ..functions import broadcast_variables
from ._extended import is_farandole_strategy
from ._variables import adopt, is_of_strategy, warn_replaced_rate

_NAME = "farandole.strategy.optimizers"


def optimizers_of(model: Any) -> List[Any]:
    """The optimizer of compile(), optimizers that are attributes of the model, and their inner optimizers."""
    found: Dict[int, Any] = {}
    for value in vars(model).values():
        if isinstance(value, keras.optimizers.Optimizer):
            found.update((id(each), each) for each in [*_inner(value), value])
    return list(found.values())


def _inner(optimizer: Any) -> List[Any]:
    """The inner optimizers of a LossScaleOptimizer or MultiOptimizer."""
    if hasattr(optimizer, "inner_optimizer"):
        return [*_inner(optimizer.inner_optimizer), optimizer.inner_optimizer]
    return list(getattr(optimizer, "optimizers", ()))


def agree(optimizers: List[Any]) -> None:
    """Sets the optimizers' learning rates and iterations to rank 0's. Raises Mismatch on all ranks if another setting
    differs. Collective."""
    own = [_settings(optimizer) for optimizer in optimizers]
    rates = [_rate(optimizer) for optimizer in optimizers]
    counts = [int(optimizer._iterations.numpy()) for optimizer in optimizers]
    everyone = objects.allgather_object([own, rates, counts], _NAME)
    text = _difference([settings for settings, _, _ in everyone])
    if text:
        raise _errors.mismatch(f"the optimizers of the ranks differ: {text}. Make them alike on all ranks")
    _, first_rates, first_counts = everyone[0]
    for optimizer, rate, first, count in zip(optimizers, rates, first_rates, first_counts):
        if rate != first:
            warn_replaced_rate(rate, first)
            optimizer._learning_rate.assign(first)
        # A step that failed because some ranks had no batch was counted by the other ranks only.
        optimizer._iterations.assign(count)


def _rate(optimizer: Any) -> Any:
    """The learning rate if it is a number; None for a schedule, which is compared as a setting."""
    rate = optimizer._learning_rate
    return float(rate.numpy()) if isinstance(rate, keras.Variable) else None


def _settings(optimizer: Any) -> Dict[str, str]:
    """The settings that must be equal on all ranks, as texts."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Keras warns that functions cannot be loaded again
            config = json.loads(json.dumps(optimizer.get_config(), default=lambda value: type(value).__name__))
    except (NotImplementedError, TypeError, ValueError):
        config = {}  # an optimizer that cannot be saved
    if _rate(optimizer) is not None:
        config.pop("learning_rate", None)
    for name in ("inner_optimizer", "optimizer_map"):  # inner optimizers are compared separately
        config.pop(name, None)
    return {"class": type(optimizer).__name__, "number of variables": str(len(optimizer.variables)), **_flat(config)}


def _flat(config: Dict[str, Any], prefix: str = "") -> Dict[str, str]:
    found: Dict[str, str] = {}
    for key, value in config.items():
        if key == "name":  # Keras numbers names per process
            continue
        found.update(_flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: str(value)})
    return found


def _difference(of_ranks: List[List[Dict[str, str]]]) -> str:
    """The first setting that differs between the ranks' optimizers, in words; empty if there is none."""
    numbers = difference("the number of optimizers", {rank: len(each) for rank, each in enumerate(of_ranks)})
    for alike in zip(*of_ranks) if not numbers else ():
        for name in {name: None for each in alike for name in each}:
            kind = "" if name == "class" else f" of {alike[0]['class']}"
            text = difference(name + kind, {rank: each.get(name, "missing") for rank, each in enumerate(alike)})
            if text:
                return text
    return numbers


def _adopt(optimizers: List[Any], strategy: tf.distribute.Strategy) -> None:
    """Makes the strategy own optimizers that were created outside of the scope. Their existing variables get rank 0's
    values; later variables are created in the scope. Collective."""
    has_peers = _lifecycle.size() > 1
    with tf.init_scope():  # the first step may be under tracing
        if has_peers:
            agree(optimizers)
        for optimizer in optimizers:
            optimizer._distribution_strategy = strategy
            own = [variable_of(each) for each in optimizer.variables]
            own = [each for each in own if not is_of_strategy(each)]
            if has_peers:
                broadcast_variables(own, root_rank=0)
            for variable in own:
                adopt(variable)


def compile_in_scope(base: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> None:
    """Trainer.compile: creates the metrics in the scope of the model's strategy, and adopts the optimizer."""
    strategy = self.distribute_strategy
    if not is_farandole_strategy(strategy):
        return base(self, *args, **kwargs)
    with strategy.scope():
        base(self, *args, **kwargs)
    if self.optimizer is not None:
        _adopt([*_inner(self.optimizer), self.optimizer], strategy)
    return None


def apply(base: Callable[..., Any], self: Any, grads: Any, trainable_variables: Any = None) -> Any:
    """Adopts the optimizer before its first update."""
    _adopt_by(tf.distribute.get_strategy(), self)
    return base(self, grads, trainable_variables)


def add_variable_from_reference(
    base: Callable[..., Any], self: Any, reference_variable: Any, *args: Any, **kwargs: Any
) -> Any:
    """Creates momenta and the like in the scope of the variable's strategy, wherever the optimizer is built."""
    strategy = getattr(variable_of(reference_variable), "_distribute_strategy", None)
    _adopt_by(strategy, self)
    if not is_farandole_strategy(strategy) or tf.distribute.has_strategy():
        return base(self, reference_variable, *args, **kwargs)
    with strategy.scope():
        return base(self, reference_variable, *args, **kwargs)


def _adopt_by(strategy: Any, optimizer: Any) -> None:
    if is_farandole_strategy(strategy) and optimizer._distribution_strategy is not strategy:
        _adopt([*_inner(optimizer), optimizer], strategy)
