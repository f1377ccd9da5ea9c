# SPDX-License-Identifier: Apache-2.0
"""Patches of Keras' metrics in a step of a model: weights of numbers, and states that are not sums.

Keras gives the variables of every metric aggregation="sum", unless the metric names another aggregation. Not every
state is a sum: how a step computes the new value of a variable shows whether the values of the ranks are summed, or
combined by maximum or minimum.
"""

import inspect
from typing import Any, Callable, List, Optional

import tensorflow as tf

from ... import _lifecycle, errors
from ._context import step_context
from ._graph import READS, is_symbolic, origin, reads, source
from ._variables import LARGEST, SMALLEST, SUM, CombinedVariable, is_sum_of_replicas

_ADVICE = (
    "In add_variable pass aggregation=\"mean\" (each new value is averaged over the ranks, by their samples), "
    '"only_first_replica" (rank 0\'s counts), "none" (each rank has its own) or, if adding up is right, "sum"; or keep '
    "sums and a count, and compute the rest in result()"
)
# The new value does not depend on the old value, or is the old value.
_KEPT = "kept"


def update_mean(base: Callable[..., Any], self: Any, values: Any, sample_weight: Any = None) -> Any:
    """keras.metrics.Mean.update_state. A number without a weight gets this rank's share as its weight. So does each
    element of a vector that does not have a value per row."""
    context = step_context()
    if context is None or hasattr(values, "_keras_mask"):
        return base(self, values, sample_weight)
    context.compute_share()
    values = tf.cast(values, self.dtype)
    if sample_weight is None:
        if context.is_of_rows(values):
            return base(self, values)
        weight = tf.cast(context.weight(), self.dtype)
        sample_weight = weight if values.shape.rank == 0 else tf.fill(values.shape[:1], weight)
    else:
        if isinstance(sample_weight, (int, float)) and not _counts_samples(self, context):
            sample_weight = sample_weight * context.weight()
        sample_weight = tf.cast(sample_weight, self.dtype)
        if sample_weight.shape.rank != 0:
            return base(self, values, sample_weight)
        values, weight = tf.reduce_mean(values), sample_weight
    # A rank without samples may have computed NaN.
    return base(self, tf.where(weight == 0, tf.zeros_like(values), values), sample_weight)


def _counts_samples(metric: Any, context: Any) -> bool:
    """True for Keras' own metrics of the losses of outputs, whose weights are numbers of samples."""
    return any(metric is each for each in getattr(context.model._compile_loss, "metrics", ()))


def add_variable(base: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
    """keras.metrics.Metric.add_variable. Stores the metric in the variable unless the metric names an aggregation."""
    variable = base(self, *args, **kwargs)
    if "aggregation" not in inspect.signature(base).bind(self, *args, **kwargs).arguments:
        variable._farandole_metric = self
    return variable


def assign(base: Callable[..., Any], self: Any, value: Any) -> None:
    """keras.Variable._direct_assign. Infers from the assignment
    how the ranks' values of a metric's variable combine."""
    metric = getattr(self, "_farandole_metric", None)
    combined = self._value
    if step_context() is not None and is_sum_of_replicas(combined) and is_symbolic(value) and reads(value, [combined]):
        # value = old + change. The sum over the ranks must have the changes of all ranks, and the old value once.
        value = value if _lifecycle.rank() == 0 else value - tf.cast(combined.read_value(), value.dtype)
    if metric is not None and isinstance(combined, CombinedVariable) and step_context() is not None:
        if is_symbolic(value):
            _combine_as_assigned(metric, self, combined, value)
        elif not type(metric).__module__.startswith("keras."):
            _warn_summed_metric(type(metric).__qualname__, self.path)
    return base(self, value)


def _combine_as_assigned(metric: Any, variable: Any, combined: CombinedVariable, value: Any) -> None:
    states = [other._value for other in metric.variables if isinstance(other._value, CombinedVariable)]
    way = _way(value, combined, states)
    if way == _KEPT:
        return
    if way is None or not combined.is_combined_by(way):
        raise errors.InvalidArgument(
            f"the metric '{metric.name}' ({type(metric).__qualname__}) gives its variable '{variable.path}' a new value "
            "that is neither a sum with the old one nor a maximum or minimum of both, or now one and now the other; so "
            f"the values of the ranks cannot be combined. {_ADVICE}"
        )


def _way(value: Any, variable: CombinedVariable, states: List[CombinedVariable]) -> Optional[str]:
    """How the new value is computed from the old value: SUM, LARGEST, SMALLEST or _KEPT; None for anything else."""
    value = source(value)
    if not is_symbolic(value):
        return None
    op = value.op
    if op.type in READS and origin(op.inputs[0]) is variable.handle:
        return _KEPT
    constant = tf.get_static_value(value)
    if constant is not None:
        return _KEPT if not constant.any() else None  # zero is equal on all ranks and in their sum
    inputs = list(op.inputs)
    if op.type in ("Select", "SelectV2"):
        return None if reads(inputs[0], states) else _common([_way(each, variable, states) for each in inputs[1:]])
    ways = {
        "AddV2": SUM,
        "Add": SUM,
        "AddN": SUM,
        "Sub": SUM,
        "TensorScatterAdd": SUM,
        "Maximum": LARGEST,
        "Minimum": SMALLEST,
    }
    way = ways.get(op.type)
    if way is None:
        return None
    old = [each for each in inputs if reads(each, states)]
    has_order = op.type in ("Sub", "TensorScatterAdd")
    if len(old) != 1 or (has_order and old[0] is not inputs[0]):
        return None
    return _common([way, _way(old[0], variable, states)])


def _common(ways: List[Optional[str]]) -> Optional[str]:
    """The way of several assignments, in sequence or in branches. None if they differ."""
    changing = {way for way in ways if way != _KEPT}
    if not changing:
        return _KEPT
    return changing.pop() if len(changing) == 1 else None


def _warn_summed_metric(kind: str, path: str) -> None:
    _lifecycle.warn_once(
        f"a step that runs eagerly does not show how the metric {kind} computes its variable '{path}': it is summed "
        f"up over the ranks. {_ADVICE}",
    )
