# SPDX-License-Identifier: Apache-2.0
"""Keras optimizers that reduce gradients over the ranks.

The class of such an optimizer is a subclass of the given optimizer's class, with the same name and module, so that
saved models load in processes without Farandole.
"""

import functools
from typing import Any, Callable, Dict, Optional

import tensorflow as tf

from .. import errors
from .._replacing import replace
from ._gradients import GradientReducer, finite_everywhere, refuse_in_model_step
from .gradient_aggregation import LocalGradientAggregationHelper, helper_of


class CallableList(list):
    """A list of variables that can also be called, for programs that write `optimizer.variables()`."""

    def __call__(self) -> "CallableList":
        return self


def wrap(
    optimizer: Any,
    make_reducer: Callable[[], GradientReducer],
    passes: int,
    average_aggregated: bool,
    name: Optional[str] = None,
) -> Any:
    """Returns an optimizer of the same configuration that reduces gradients. Momenta and other state are not copied."""
    if getattr(type(optimizer), "_farandole_reduces", False):
        raise errors.InvalidArgument("this optimizer is a DistributedOptimizer already")
    base = type(optimizer)
    is_keras_3 = hasattr(base, "apply")
    if is_keras_3:
        _agree_on_skipped_steps()
        members = _keras_3_members(base)
    elif hasattr(base, "_compute_gradients") or hasattr(base, "compute_gradients"):
        if not tf.compat.v1.executing_eagerly_outside_functions() and not hasattr(base, "_compute_gradients"):
            raise errors.Unsupported(
                f"in graphs of TensorFlow 1 tf-keras has only its older optimizers: use tf.keras.optimizers.legacy."
                f"{base.__name__}"
            )
        members = _keras_2_members(base)
    else:
        raise errors.InvalidArgument(
            f"DistributedOptimizer wraps optimizers of Keras and of tf.compat.v1, not {base.__module__}.{base.__name__}"
        )
    config = optimizer.get_config()
    if name is not None or not is_keras_3:  # Keras 3 writes the name into files
        config["name"] = name or f"Distributed{base.__name__}"
    return _class_like(base, members, make_reducer, passes, average_aggregated).from_config(config)


def _class_like(
    base: type,
    members: Dict[str, Any],
    make_reducer: Callable[[], GradientReducer],
    passes: int,
    average_aggregated: bool,
) -> type:
    """A subclass of `base` whose instances reduce, including those that Keras creates from a configuration."""

    def __init__(self, *args, **kwargs):
        # object.__setattr__, because Keras' own __setattr__ tracks the values.
        reducer = make_reducer()
        reducer.set_passes(passes, average_aggregated)
        kind = LocalGradientAggregationHelper._OPTIMIZER_TYPE_KERAS
        helper = helper_of(reducer, passes, average_aggregated, kind)
        object.__setattr__(self, "_farandole_reducer", reducer)
        object.__setattr__(self, "_agg_helper", helper)
        base.__init__(self, *args, **kwargs)

    def shown(kind: type) -> str:
        """Horovod's name in the text of the class: packages recognise wrapped optimizers by that text."""
        return f"<class '{kind.__module__}.{kind.__qualname__}' as 'horovod._keras.{kind.__name__}'>"

    members.update(
        __init__=__init__,
        __module__=base.__module__,
        __doc__=base.__doc__,
        _farandole_reduces=True,
        _HAS_AGGREGATE_GRAD=True,
        _allreduce=_allreduce,
        process_set=property(lambda self: self._farandole_reducer.process_set),
        register_local_var=lambda self, var: self._farandole_reducer.register_local(var),
        variables=property(lambda self: _variables(base, self)),
    )
    metaclass = type(type(base).__name__, (type(base),), {"__repr__": shown})
    return metaclass(base.__name__, (base,), members)


def _variables(base: type, optimizer: Any) -> CallableList:
    described = getattr(base, "variables")
    found = described.__get__(optimizer, base)
    return CallableList(found() if callable(found) and not isinstance(found, list) else found)


def _allreduce(self, grads, vars):  # noqa: A002
    """The reduced gradients. Before the last of several passes: the sums so far or, in a graph of TensorFlow 1, the
    given gradients."""
    refuse_in_model_step("DistributedOptimizer")
    reduce = self._farandole_reducer.reduce if self._agg_helper is None else self._agg_helper.compute_gradients
    return reduce(list(grads), list(vars))


@functools.lru_cache(maxsize=None)
def _agree_on_skipped_steps() -> None:
    """Patches LossScaleOptimizer, once. With mixed_float16, compile() wraps the optimizer in a LossScaleOptimizer, as
    some programs do by hand. That class skips a step if gradients are not finite, before they are reduced, so all ranks
    must skip the step together."""
    replace(tf.keras.optimizers.LossScaleOptimizer, "check_finite", check_finite)


def check_finite(base: Callable[..., Any], self: Any, grads: Any) -> Any:
    """LossScaleOptimizer.check_finite: true if the gradients of all ranks are finite."""
    finite = base(self, grads)
    reducer = getattr(self.inner_optimizer, "_farandole_reducer", None)
    if reducer is None or not reducer.process_set.included() or reducer.process_set.size() == 1:
        return finite
    return finite_everywhere(finite, reducer.process_set)


def _keras_3_members(base: type) -> Dict[str, Any]:
    def apply(self, grads, trainable_variables=None):
        """Reduces the gradients over the ranks, then calls the
        method of the class, which clips the reduced gradients."""
        variables = self._trainable_variables if trainable_variables is None else list(trainable_variables)
        if self._agg_helper is None:
            return base.apply(self, self._allreduce(grads, variables), trainable_variables)
        if not self.built:
            with tf.init_scope():
                self.build(variables)
        reduced = self._allreduce(grads, variables)
        return self._agg_helper.apply_gradients(
            lambda: base.apply(self, reduced, trainable_variables), self, list(zip(reduced, variables))
        )

    return {"apply": apply}


def _keras_2_members(base: type) -> Dict[str, Any]:
    """Members for tf-keras, whose `minimize` and `fit` compute gradients through a method of the optimizer. A loop that
    only calls apply_gradients must use a tape that reduces."""

    def _compute_gradients(self, loss, var_list, grad_loss=None, tape=None):
        tape = tf.GradientTape() if tape is None else tape
        if hasattr(base, "_compute_gradients"):
            pairs = base._compute_gradients(self, loss, var_list, grad_loss, tape)
        else:
            pairs = base.compute_gradients(self, loss, var_list, tape)
        gradients, variables = zip(*pairs)
        return list(zip(self._allreduce(gradients, variables), variables))

    def compute_gradients(self, loss, var_list, tape=None):
        return self._compute_gradients(loss, var_list, None, tape)

    def _aggregate_gradients(self, grads_and_vars):
        """Skips the reduction over local replicas, because the gradients are reduced over the ranks already."""
        kept = getattr(base, "_aggregate_gradients", None) or base.aggregate_gradients
        return kept(self, grads_and_vars)

    def get_gradients(self, loss, params):
        return self._allreduce(base.get_gradients(self, loss, params), params)

    def apply_gradients(self, grads_and_vars, *args, **kwargs):
        pairs = list(grads_and_vars)
        if self._agg_helper is None:
            return base.apply_gradients(self, pairs, *args, **kwargs)
        if hasattr(self, "build"):
            with tf.init_scope():
                self.build([variable for _, variable in pairs])
        done = self._agg_helper.apply_gradients(
            lambda: base.apply_gradients(self, pairs, *args, **kwargs), self, pairs, *args, **kwargs
        )
        return self.iterations if tf.compat.v1.executing_eagerly_outside_functions() else done

    members = {
        "_compute_gradients": _compute_gradients,
        "compute_gradients": compute_gradients,
        "_aggregate_gradients": _aggregate_gradients,
        "apply_gradients": apply_gradients,
    }
    if hasattr(base, "get_gradients"):
        members["get_gradients"] = get_gradients
    return members
