"""Keras optimizers that reduce gradients over the ranks.

The wrapped optimizer's class is a subclass of the given one with its name and module, so that models saved with it load
where there is no Farandole.
"""

from typing import Any, Dict, Optional

import tensorflow as tf

from .. import errors
from ._gradients import GradientReducer
from .gradient_aggregation import GradientAggregator


def wrap(
    optimizer: Any, reducer: GradientReducer, passes: int, average_aggregated: bool, name: Optional[str] = None
) -> Any:
    """An optimizer of the same configuration, which reduces. State that `optimizer` has gathered is not taken over."""
    base = type(optimizer)
    if getattr(base, "_farandole_reduces", False):
        raise errors.InvalidArgument("this optimizer is a DistributedOptimizer already")
    if hasattr(base, "apply"):
        members = _keras_3_members(base)
    elif hasattr(base, "_compute_gradients") or hasattr(base, "compute_gradients"):
        members = _keras_2_members(base)
    else:
        raise errors.InvalidArgument(
            f"DistributedOptimizer wraps optimizers of Keras and of tf.compat.v1, not {base.__module__}.{base.__name__}"
        )
    members.update(
        __module__=base.__module__,
        __doc__=base.__doc__,
        _farandole_reduces=True,
        register_local_var=lambda self, variable: self._farandole_reducer.register_local(variable),
    )
    wrapped = type(base.__name__, (base,), members)
    config = optimizer.get_config()
    if name is not None:
        config["name"] = name
    made = wrapped.from_config(config)
    # Not through Keras' __setattr__, which tracks what it finds.
    reducer.tell_passes(passes, average_aggregated)
    object.__setattr__(made, "_farandole_reducer", reducer)
    aggregator = GradientAggregator(passes, average_aggregated, reducer.sparse_as_dense) if passes > 1 else None
    object.__setattr__(made, "_farandole_aggregator", aggregator)
    return made


def _keras_3_members(base: type) -> Dict[str, Any]:
    def apply(self, grads, trainable_variables=None):
        """Reduces the gradients over the ranks, then does what the class does: clipping sees the reduced ones."""
        grads = list(grads)
        variables = self._trainable_variables if trainable_variables is None else list(trainable_variables)
        reducer, aggregator = self._farandole_reducer, self._farandole_aggregator
        if aggregator is None:
            return base.apply(self, reducer.reduce(grads, variables), trainable_variables)
        if not self.built:
            with tf.init_scope():
                self.build(variables)
        sums, is_last = aggregator.add(grads)

        def update():
            base.apply(self, reducer.reduce(sums, variables), trainable_variables)

        return _either(is_last, update, lambda: self.iterations.assign_add(1))

    return {"apply": apply}


def _keras_2_members(base: type) -> Dict[str, Any]:
    """tf-keras: `minimize`, and with it `fit`, computes gradients through a method of the optimizer. A loop that calls
    only apply_gradients reduces by its tape."""

    def reduce(self, grads_and_vars):
        grads, variables = zip(*grads_and_vars)
        reducer, aggregator = self._farandole_reducer, self._farandole_aggregator
        if aggregator is None:
            return list(zip(reducer.reduce(grads, variables), variables))
        sums, is_last = aggregator.add(grads)
        object.__setattr__(self, "_farandole_is_last", is_last)
        present = [i for i, each in enumerate(sums) if each is not None]
        reduced = _either(
            is_last,
            lambda: [r for r in reducer.reduce(sums, variables) if r is not None],
            lambda: [sums[i] for i in present],
        )
        for i, gradient in zip(present, reduced):
            sums[i] = gradient
        return list(zip(sums, variables))

    def apply_gradients(self, grads_and_vars, *args, **kwargs):
        pairs = list(grads_and_vars)
        is_last = getattr(self, "_farandole_is_last", None)
        if self._farandole_aggregator is None or is_last is None:
            return base.apply_gradients(self, pairs, *args, **kwargs)
        object.__setattr__(self, "_farandole_is_last", None)
        if hasattr(self, "build"):
            with tf.init_scope():
                self.build([variable for _, variable in pairs])

        def update():
            base.apply_gradients(self, pairs, *args, **kwargs)

        _either(is_last, update, lambda: self.iterations.assign_add(1))
        return self.iterations

    members: Dict[str, Any] = {"apply_gradients": apply_gradients}
    method = "_compute_gradients" if hasattr(base, "_compute_gradients") else "compute_gradients"

    def compute_gradients(self, *args, **kwargs):
        return reduce(self, getattr(base, method)(self, *args, **kwargs))

    members[method] = compute_gradients
    return members


def _either(condition: Any, true_fn: Any, false_fn: Any) -> Any:
    """`tf.cond` for branches that may return nothing."""
    if tf.executing_eagerly():
        return true_fn() if bool(condition) else false_fn()

    def ended(function: Any) -> Any:
        result = function()
        return result if isinstance(result, list) else []

    return tf.cond(condition, lambda: ended(true_fn), lambda: ended(false_fn))
