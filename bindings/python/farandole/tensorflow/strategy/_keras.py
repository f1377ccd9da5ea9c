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
    """Sums the gradients over the ranks, then clips. Keras calls `_clip_gradients` once per update, also when it
    accumulates gradients over several steps."""
    context = own_context()
    if context is None:
        return base(self, grads)
    # An optimizer that was created outside of scope() has another strategy, through which it would update variables.
    self._distribution_strategy = context.strategy
    return base(self, _reduced(context, list(grads)))


def _reduced(context: ReplicaContext, gradients: List[Any]) -> List[Any]:
    """Sums gradients over the ranks; IndexedSlices as _slices.py describes."""
    marked = [_slices.marked(gradient) for gradient in gradients]
    sent = [gradient if mark is None else mark for gradient, mark in zip(gradients, marked)]
    results = context.strategy.extended.reduce_gradients(sent, gradients)
    return [
        result if mark is None else _slices.summed(result, like=gradient)
        for gradient, mark, result in zip(gradients, marked, results)
    ]


def all_reduce_sum_gradients(base: Callable[..., Any], self: Any, grads_and_vars: Any) -> Any:
    """No-op under this package's strategy: `clip_gradients` has reduced the gradients already."""
    return base(self, grads_and_vars) if own_context() is None else grads_and_vars


def check_finite(base: Callable[..., Any], self: Any, grads: Any) -> Any:
    """True if the gradients of all ranks are finite. All ranks skip the step otherwise."""
    finite = base(self, grads)
    if own_context() is None:
        return finite
    return finite_everywhere(finite, **named("finite"))


def _symbolic(spec: Any) -> Any:
    """The specification of a tensor. None for elements that a generator leaves out."""
    return spec if hasattr(spec, "shape") and hasattr(spec, "dtype") else None


def _is_called(model: Any) -> bool:
    """True if the model's class, or a base class below keras.Model, defines `call`."""
    import keras

    own = [kind for kind in type(model).__mro__ if issubclass(kind, keras.Model) and kind is not keras.Model]
    return any("call" in vars(kind) for kind in own)


def build(base: Callable[..., Any], self: Any, iterator: Any = None, data_batch: Any = None) -> None:
    """Builds the model from the element specification of the dataset. Keras would take the first batch instead: a
    generator does not return that batch again, and the order of shuffled data would change."""
    dataset = getattr(iterator, "_distributed_dataset", None)
    if data_batch is not None or self._distribute_strategy is None or not isinstance(dataset, DistributedDataset):
        return base(self, iterator=iterator, data_batch=data_batch)
    if not _is_called(self) and all(layer.built for layer in self.layers):
        return None  # a model without `call`, such as the GAN of Keras' guides: only its layers are built
    with self.distribute_strategy.scope():
        return self._symbolic_build(data_batch=tf.nest.map_structure(_symbolic, dataset.element_spec))


def iterate(base: Callable[..., Any], self: Any, distribute_strategy: Any = None, *args: Any, **kwargs: Any) -> None:
    """Shuffles arrays in the same order on all ranks. Keras shuffles by tf.random.shuffle while
    TFEpochIterator.__init__ runs, so tf.random.shuffle is patched for the duration of that call."""
    if not is_farandole_strategy(distribute_strategy) or _lifecycle.size() == 1 or not kwargs.get("shuffle"):
        return base(self, distribute_strategy, *args, **kwargs)
    order = Order()
    with mock.patch.object(tf.random, "shuffle", order.shuffle):
        base(self, distribute_strategy, *args, **kwargs)
    self._distributed_dataset.order = order
    return None
