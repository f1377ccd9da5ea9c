# SPDX-License-Identifier: Apache-2.0
"""Replacements of functions of Keras: clipping, skipped steps, building of models, and shuffling. See _patches.py."""

from typing import Any, Callable, List
from unittest import mock

import tensorflow as tf

from ... import _lifecycle
from .._gradients import finite_everywhere
from . import _slices
from ._context import ReplicaContext, own_context
from ._extended import is_farandole_strategy
from ._input import DistributedDataset, Order
from ._names import named


def clip_gradients(base: Callable[..., Any], self: Any, grads: Any) -> Any:
    """Clips what has been reduced. It is called once for each update, also where gradients are accumulated."""
    context = own_context()
    if context is None:
        return base(self, grads)
    # An optimizer that was made outside of scope() would update its variables by another strategy.
    self._distribution_strategy = context.strategy
    return base(self, _reduced(context, list(grads)))


def _reduced(context: ReplicaContext, gradients: List[Any]) -> List[Any]:
    """The sums over the ranks."""
    marked = [_slices.marked(gradient) for gradient in gradients]
    sent = [gradient if mark is None else mark for gradient, mark in zip(gradients, marked)]
    results = context.strategy.extended.reduce_gradients(sent, gradients)
    return [
        result if mark is None else _slices.summed(result, like=gradient)
        for gradient, mark, result in zip(gradients, marked, results)
    ]


def all_reduce_sum_gradients(base: Callable[..., Any], self: Any, grads_and_vars: Any) -> Any:
    return base(self, grads_and_vars) if own_context() is None else grads_and_vars


def check_finite(base: Callable[..., Any], self: Any, grads: Any) -> Any:
    """Whether the gradients of all ranks are finite: otherwise all skip the step."""
    finite = base(self, grads)
    if own_context() is None:
        return finite
    return finite_everywhere(finite, **named("finite"))


def _symbolic(spec: Any) -> Any:
    """The specification of a tensor; None for what a generator left out."""
    return spec if hasattr(spec, "shape") and hasattr(spec, "dtype") else None


def _is_called(model: Any) -> bool:
    """Whether the class of the model, or what it is derived from, says how to call it."""
    import keras

    own = [kind for kind in type(model).__mro__ if issubclass(kind, keras.Model) and kind is not keras.Model]
    return any("call" in vars(kind) for kind in own)


def build(base: Callable[..., Any], self: Any, iterator: Any = None, data_batch: Any = None) -> None:
    """Builds the model from what is known of the batches. Keras takes one of them to look at, which a generator would
    not give again, and which would change the order of shuffled data."""
    dataset = getattr(iterator, "_distributed_dataset", None)
    if data_batch is not None or self._distribute_strategy is None or not isinstance(dataset, DistributedDataset):
        return base(self, iterator=iterator, data_batch=data_batch)
    if not _is_called(self) and all(layer.built for layer in self.layers):
        return None  # a model that is never called, as GANs of the guides: its parts are built
    with self.distribute_strategy.scope():
        return self._symbolic_build(data_batch=tf.nest.map_structure(_symbolic, dataset.element_spec))


def iterate(base: Callable[..., Any], self: Any, distribute_strategy: Any = None, *args: Any, **kwargs: Any) -> None:
    """Lets arrays be shuffled alike on all ranks. Keras shuffles them by tf.random.shuffle, here and nowhere else."""
    if not is_farandole_strategy(distribute_strategy) or _lifecycle.size() == 1 or not kwargs.get("shuffle"):
        return base(self, distribute_strategy, *args, **kwargs)
    order = Order()
    with mock.patch.object(tf.random, "shuffle", order.shuffle):
        base(self, distribute_strategy, *args, **kwargs)
    self._distributed_dataset.order = order
    return None
