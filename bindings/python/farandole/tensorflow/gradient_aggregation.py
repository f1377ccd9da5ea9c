# SPDX-License-Identifier: Apache-2.0
"""Accumulates gradients of several backward passes on a rank, before they are reduced."""

from typing import Any, Callable, Dict, List, Optional, Sequence

import tensorflow as tf

from .. import errors
from ..process_sets import ProcessSet, global_process_set
from ._gradients import as_tensor, key_of, reduce_but_local, variable_of


def zeros_variable(shape: Any, dtype: tf.DType, name: str, collection: str) -> Any:
    """A variable that is not trainable. In a graph of TensorFlow 1 the variable belongs to `collection`."""
    return tf.compat.v1.Variable(
        tf.zeros(shape, dtype), trainable=False, collections=[collection], use_resource=True, name=name
    )


def zeros_where_missing(variables: Sequence[Any]) -> Any:
    """In a graph of TensorFlow 1: an op that sets the variables to zero if the last variable is uninitialised. Scripts
    may create their initializer op before these variables exist."""
    return tf.cond(
        tf.compat.v1.is_variable_initialized(variables[-1]),
        lambda: tf.group(),
        lambda: tf.group(*[each.assign(tf.zeros(each.shape, each.dtype)).op for each in variables]),
    )


class LocalGradientAggregationHelper:
    """Sums the gradients of `backward_passes_per_step` backward passes, then reduces the sums over the ranks.

    The first gradients create two variables, which programs may read: `counter`, the number of passes since gradients
    were last reduced, and `locally_aggregated_grads`, the sums by position of the gradient. In graphs of TensorFlow 1
    they are local variables, which are set to zero at first use unless they were initialised.

    allreduce_func: (gradients, variables) → reduced gradients.
    sparse_as_dense: converts IndexedSlices to tensors. Otherwise they raise InvalidArgument.
    average_aggregated_gradients: divides the reduced sums by the number of passes.
    scale_local_gradients: divides gradients of local variables by the number of ranks of `process_set`.
    optimizer_type: the class of optimizers in graphs of TensorFlow 1, one of the constants below.
    rank, name: accepted for compatibility with Horovod, without effect.
    """

    _OPTIMIZER_TYPE_KERAS = "optimizer_type_keras"
    _OPTIMIZER_TYPE_LEGACY = "optimizer_type_legacy"

    def __init__(
        self,
        backward_passes_per_step: int,
        allreduce_func: Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]],
        sparse_as_dense: bool,
        average_aggregated_gradients: bool,
        rank: int = 0,
        optimizer_type: str = _OPTIMIZER_TYPE_LEGACY,
        process_set: ProcessSet = global_process_set,
        scale_local_gradients: bool = True,
        name: str = "",
    ):
        del rank, name
        if backward_passes_per_step <= 0:
            raise errors.InvalidArgument(f"backward_passes_per_step must be positive, not {backward_passes_per_step}")
        self.backward_passes_per_step = backward_passes_per_step
        self.allreduce_grads = allreduce_func
        self.sparse_as_dense = sparse_as_dense
        self.average_aggregated_gradients = average_aggregated_gradients
        self.optimizer_type = optimizer_type
        self.process_set = process_set
        self.scale_local_gradients = scale_local_gradients
        self.counter: Any = None
        self.locally_aggregated_grads: Dict[int, Any] = {}
        self._local: set = set()
        self._in_v1_graph = False

    def register_local_var(self, var: Any) -> None:
        """Marks a variable as local: its gradient belongs to this rank and is not reduced."""
        self._local.add(key_of(var))

    def compute_gradients(self, grads: Sequence[Any], vars: Sequence[Any]) -> List[Any]:  # noqa: A002
        """Adds the gradients of one pass; None stays None. After the last pass, returns the reduced sums; that call is
        collective. Before, returns the sums so far or, in a graph of TensorFlow 1, the given gradients."""
        gradients = [self._dense(gradient) for gradient in grads]
        places = [i for i, gradient in enumerate(gradients) if gradient is not None]
        self._make_variables(places, gradients, vars)
        if places != list(self.locally_aggregated_grads):
            raise errors.InvalidArgument(
                f"{len(places)} gradients in this pass, {len(self.locally_aggregated_grads)} in the first: each pass must "
                "have gradients for the same variables"
            )
        *sums, is_last = self._step(*[gradients[i] for i in places])
        results = list(gradients)

        def reduce() -> List[Any]:
            for i, total in zip(places, sums):
                results[i] = total
            reduced = self._reduced(results, vars)
            if not self._in_v1_graph:
                for variable in self.locally_aggregated_grads.values():
                    variable.assign(tf.zeros_like(variable))
            return [reduced[i] for i in places]

        so_far = [gradients[i] for i in places] if self._in_v1_graph else sums
        for i, gradient in zip(places, _either(is_last, reduce, lambda: so_far)):
            results[i] = gradient
        return results

    def apply_gradients(self, apply_grads_closure: Callable[[], Any], optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Calls the closure after the last pass. After any other pass, increments the optimizer's iterations, if any,
        and `global_step` of `kwargs`. args: starts with the pairs of gradient and variable."""
        step = kwargs.get("global_step")

        def skip() -> Any:
            iterations = getattr(optimizer, "iterations", None)
            counters = [each for each in (iterations, step) if each is not None]
            return [tf.compat.v1.assign_add(variable_of(each), 1) for each in counters]

        if self.counter is None:  # compute_gradients was never called
            return apply_grads_closure()
        if tf.executing_eagerly() or not self._in_v1_graph:
            return _either(tf.equal(self.counter, 0), apply_grads_closure, skip)
        gradients = [gradient for gradient, _ in args[0] if gradient is not None]
        with tf.control_dependencies(gradients):
            is_last = tf.equal(self.counter.read_value(), 0)
        return tf.cond(is_last, lambda: tf.group(apply_grads_closure()), lambda: tf.group(*skip()))

    def _dense(self, gradient: Any) -> Any:
        if not isinstance(gradient, tf.IndexedSlices):
            return as_tensor(gradient)
        if not self.sparse_as_dense:
            raise errors.InvalidArgument(
                "IndexedSlices cannot be summed up over several backward passes; pass sparse_as_dense=True"
            )
        return tf.convert_to_tensor(gradient)

    def _reduced(self, gradients: Sequence[Any], variables: Sequence[Any]) -> List[Any]:
        size = self.process_set.size() if self.scale_local_gradients and self._local else None
        is_local = [bool(self._local) and key_of(variable) in self._local for variable in variables]
        reduced = reduce_but_local(self.allreduce_grads, gradients, variables, is_local, size)
        if not self.average_aggregated_gradients:
            return reduced
        return [None if each is None else each / self.backward_passes_per_step for each in reduced]

    def _make_variables(self, places: Sequence[int], gradients: Sequence[Any], variables: Sequence[Any]) -> None:
        if self.counter is not None:
            return
        self._in_v1_graph = not tf.compat.v1.executing_eagerly_outside_functions()
        collection = tf.compat.v1.GraphKeys.LOCAL_VARIABLES
        with tf.init_scope():
            for i in places:
                shape = gradients[i].shape if gradients[i].shape.is_fully_defined() else variables[i].shape
                name = f"aggregated_gradient_{i}"
                self.locally_aggregated_grads[i] = zeros_variable(shape, gradients[i].dtype, name, collection)
            self.counter = zeros_variable((), tf.int32, "aggregation_counter", collection)
        if self._in_v1_graph and self.optimizer_type == self._OPTIMIZER_TYPE_KERAS:
            made = [*self.locally_aggregated_grads.values(), self.counter]
            tf.compat.v1.keras.backend.get_session(op_input_list=()).run(tf.compat.v1.variables_initializer(made))
        # A tf.function orders reads and writes of variables also within a graph of TensorFlow 1.
        self._step = tf.function(self._add, autograph=False)

    def _add(self, *gradients: tf.Tensor) -> List[tf.Tensor]:
        totals = list(self.locally_aggregated_grads.values())
        if self._in_v1_graph:
            zeros_where_missing([*totals, self.counter])
        is_first = tf.equal(self.counter, 0)
        for total, gradient in zip(totals, gradients):
            # Uses tf.where instead of a reset or a product with zero, because the old sum may be infinite.
            total.assign(tf.where(is_first, gradient, total + gradient))
        self.counter.assign((self.counter + 1) % self.backward_passes_per_step)
        return [*[total.read_value() for total in totals], tf.equal(self.counter, 0)]


class LocalGradientAggregationHelperEager(LocalGradientAggregationHelper):
    """LocalGradientAggregationHelper with the arguments of Horovod's class of this name."""

    def __init__(
        self,
        backward_passes_per_step: int,
        allreduce_func: Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]],
        sparse_as_dense: bool,
        average_aggregated_gradients: bool,
        process_set: ProcessSet = global_process_set,
        scale_local_gradients: bool = True,
    ):
        super().__init__(
            backward_passes_per_step,
            allreduce_func,
            sparse_as_dense,
            average_aggregated_gradients,
            process_set=process_set,
            scale_local_gradients=scale_local_gradients,
        )


def helper_of(reducer: Any, passes: int, average: bool, optimizer_type: str) -> Optional[LocalGradientAggregationHelper]:
    """The helper that accumulates gradients for `reducer`, which knows the local variables. None for a single pass."""
    if passes <= 0:
        raise errors.InvalidArgument(f"backward_passes_per_step must be positive, not {passes}")
    if passes == 1:
        return None
    return LocalGradientAggregationHelper(
        passes, reducer.reduce, reducer.sparse_as_dense, average, optimizer_type=optimizer_type
    )


def _either(condition: Any, true_fn: Callable[[], Any], false_fn: Callable[[], Any]) -> Any:
    """`tf.cond` for branches that return lists of tensors, or results that are ignored."""
    if tf.executing_eagerly():
        return true_fn() if bool(condition) else false_fn()

    def tensors(function: Callable[[], Any]) -> List[Any]:
        result = function()
        return [each for each in result if isinstance(each, tf.Tensor)] if isinstance(result, list) else []

    found = tf.cond(condition, lambda: tensors(true_fn), lambda: tensors(false_fn))
    return found if isinstance(found, (list, tuple)) else [found]
