# SPDX-License-Identifier: Apache-2.0
"""Optimizers of tf.compat.v1, in graphs and in eager mode, that reduce gradients or updates over the ranks."""

from typing import Any, List, Optional

import tensorflow as tf

from .._engine import Adasum
from ..process_sets import global_process_set
from ._gradients import GradientReducer
from ._reductions import grouped_allreduce
from .gradient_aggregation import LocalGradientAggregationHelper, helper_of, zeros_variable, zeros_where_missing

_Optimizer = tf.compat.v1.train.Optimizer


class _Wrapper(_Optimizer):
    """Forwards all methods of an optimizer to the wrapped optimizer."""

    def __init__(self, optimizer: Any, name: str, use_locking: bool):
        super().__init__(name=name, use_locking=use_locking)
        self._optimizer = optimizer

    def compute_gradients(self, *args: Any, **kwargs: Any) -> Any:
        return self._optimizer.compute_gradients(*args, **kwargs)

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> Any:
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self, *args: Any, **kwargs: Any) -> Any:
        return self._optimizer.variables(*args, **kwargs)


class DistributedOptimizer(_Wrapper):
    """`compute_gradients` returns gradients that are reduced over the ranks, on every `passes`-th call."""

    def __init__(
        self,
        optimizer: Any,
        reducer: GradientReducer,
        passes: int,
        average_aggregated: bool,
        name: str,
        use_locking: bool,
    ):
        super().__init__(optimizer, name, use_locking)
        reducer.set_passes(passes, average_aggregated)
        self._reducer = reducer
        kind = LocalGradientAggregationHelper._OPTIMIZER_TYPE_LEGACY
        self._agg_helper = helper_of(reducer, passes, average_aggregated, kind)

    def register_local_var(self, variable: Any) -> None:
        """Marks a variable as local: its gradient belongs to this rank and is not reduced."""
        self._reducer.register_local(variable)

    def compute_gradients(self, *args: Any, **kwargs: Any) -> Any:
        """Pairs of (reduced gradient, variable). Before the last pass: with the sums so far or, in a graph of
        TensorFlow 1, with this pass's gradients."""
        gradients, variables = zip(*self._optimizer.compute_gradients(*args, **kwargs))
        reduce = self._reducer.reduce if self._agg_helper is None else self._agg_helper.compute_gradients
        return list(zip(reduce(gradients, variables), variables))

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: Optional[str] = None) -> Any:
        """Applies the gradients after the last pass. `global_step` counts every pass."""
        pairs = list(grads_and_vars)

        def update() -> Any:
            return self._optimizer.apply_gradients(pairs, global_step=global_step, name=name)

        if self._agg_helper is None:
            return update()
        return self._agg_helper.apply_gradients(update, self._optimizer, pairs, global_step=global_step)


class DistributedAdasumOptimizer(_Wrapper):
    """Each rank applies its own gradients. On every `passes`-th call,
    the ranks combine their changes since the last time by Adasum."""

    def __init__(self, optimizer: Any, passes: int, compression: Any, name: str, use_locking: bool):
        super().__init__(optimizer, name, use_locking)
        self._passes = passes
        self._compression = compression
        self._counter: Any = None
        self._starts: List[Any] = []

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: Optional[str] = None) -> Any:
        pairs = [pair for pair in grads_and_vars if pair[0] is not None]
        variables = [variable for _, variable in pairs]
        self._make_variables(variables)
        with tf.control_dependencies([] if tf.executing_eagerly() else [zeros_where_missing(self._variables)]):
            is_first = tf.equal(self._counter.read_value(), 0)
            # The values before the first of the passes.
            kept = [
                start.assign(tf.where(is_first, variable, start.read_value()))
                for start, variable in zip(self._starts, variables)
            ]
        with tf.control_dependencies(_operations(kept)):
            updated = self._optimizer.apply_gradients(pairs, global_step=global_step, name=name)
        with tf.control_dependencies(_operations([updated])):
            counted = self._counter.assign((self._counter + 1) % self._passes)
        with tf.control_dependencies(_operations([counted])):
            is_last = tf.equal(self._counter, 0)
            return tf.cond(is_last, lambda: self._combine(variables), lambda: tf.group())

    def _combine(self, variables: List[Any]) -> Any:
        changes = [variable - start for variable, start in zip(variables, self._starts)]
        combined = grouped_allreduce(
            changes,
            op=Adasum,
            compression=self._compression,
            process_set=global_process_set,
            _about=f"changes of {self._passes} backward passes",
        )
        assigned = [
            variable.assign(start + change) for variable, start, change in zip(variables, self._starts, combined)
        ]
        return tf.group(*_operations(assigned))

    def _make_variables(self, variables: List[Any]) -> None:
        if self._counter is not None:
            return
        collection = tf.compat.v1.GraphKeys.GLOBAL_VARIABLES
        with tf.init_scope():
            self._starts = [
                zeros_variable(variable.shape, variable.dtype.base_dtype, f"adasum_start_{i}", collection)
                for i, variable in enumerate(variables)
            ]
            self._counter = zeros_variable((), tf.int64, "adasum_counter", collection)
            self._variables = [*self._starts, self._counter]


def _operations(values: List[Any]) -> List[Any]:
    """Ops for control dependencies. Empty in eager mode, where all ops have run."""
    if tf.executing_eagerly():
        return []
    return [value.op if hasattr(value, "op") else value for value in values if value is not None]
