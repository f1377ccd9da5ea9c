# SPDX-License-Identifier: Apache-2.0
"""What Keras 3 has to know of the strategy.

Keras' optimizers clip the gradients of one replica and reduce them afterwards, skip a step for what one replica has
seen, and weight all replicas alike. The functions below, and those in _strategy_losses and _strategy_metrics, take the
place of Keras' own; with any other strategy, and without one, they do what those do.
"""

import functools
from typing import Any, Callable, List
from unittest import mock

import tensorflow as tf

from ... import _lifecycle, errors
from .._gradients import finite_everywhere
from . import _losses, _metrics, _normalization, _private_names, _slices, _tapes
from ._context import ReplicaContext, own_context
from ._extended import is_farandole_strategy
from ._input import DistributedDataset, Order
from ._names import named


def _clip_gradients(base: Callable[..., Any], self: Any, grads: Any) -> Any:
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


def _all_reduce_sum_gradients(base: Callable[..., Any], self: Any, grads_and_vars: Any) -> Any:
    return base(self, grads_and_vars) if own_context() is None else grads_and_vars


def _check_finite(base: Callable[..., Any], self: Any, grads: Any) -> Any:
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


def _build(base: Callable[..., Any], self: Any, iterator: Any = None, data_batch: Any = None) -> None:
    """Builds the model from what is known of the batches. Keras takes one of them to look at, which a generator would
    not give again, and which would change the order of shuffled data."""
    dataset = getattr(iterator, "_distributed_dataset", None)
    if data_batch is not None or self._distribute_strategy is None or not isinstance(dataset, DistributedDataset):
        return base(self, iterator=iterator, data_batch=data_batch)
    if not _is_called(self) and all(layer.built for layer in self.layers):
        return None  # a model that is never called, as GANs of the guides: its parts are built
    with self.distribute_strategy.scope():
        return self._symbolic_build(data_batch=tf.nest.map_structure(_symbolic, dataset.element_spec))


def _iterate(base: Callable[..., Any], self: Any, distribute_strategy: Any = None, *args: Any, **kwargs: Any) -> None:
    """Lets arrays be shuffled alike on all ranks. Keras shuffles them by tf.random.shuffle, here and nowhere else."""
    if not is_farandole_strategy(distribute_strategy) or _lifecycle.size() == 1 or not kwargs.get("shuffle"):
        return base(self, distribute_strategy, *args, **kwargs)
    order = Order()
    with mock.patch.object(tf.random, "shuffle", order.shuffle):
        base(self, distribute_strategy, *args, **kwargs)
    self._distributed_dataset.order = order
    return None


def _replace(owner: Any, name: str, function: Callable[..., Any]) -> None:
    base = getattr(owner, name)

    @functools.wraps(base)
    def replacement(*args: Any, **kwargs: Any) -> Any:
        return function(base, *args, **kwargs)

    setattr(owner, name, replacement)


@functools.lru_cache(maxsize=None)
def install() -> None:
    """Puts the functions in place, once. Raises ImportError if this Keras does not have what they replace."""
    import keras

    if keras.config.backend() != "tensorflow":
        raise errors.Unsupported(
            f"MirroredStrategy works with Keras on TensorFlow, not on {keras.config.backend()}: each rank would train alone. "
            "Set KERAS_BACKEND=tensorflow"
        )
    _private_names.check_keras()
    from keras.src.backend.tensorflow.core import Variable
    from keras.src.backend.tensorflow.optimizer import TFOptimizer
    from keras.src.backend.tensorflow.trainer import TensorFlowTrainer, TFEpochIterator
    from keras.src.losses import loss
    from keras.src.trainers.compile_utils import CompileLoss
    from keras.src.trainers.trainer import Trainer

    from . import _optimizers
    from .._errors import with_own_errors
    from ._agreement import REPLACEMENTS
    from ._callbacks import adapted
    from ._epoch_logs import metrics_result_or_logs

    _replace(TFOptimizer, "_clip_gradients", _clip_gradients)
    _replace(TFOptimizer, "_all_reduce_sum_gradients", _all_reduce_sum_gradients)
    _replace(keras.optimizers.LossScaleOptimizer, "check_finite", _check_finite)
    for optimizer in (TFOptimizer, keras.optimizers.LossScaleOptimizer):
        _replace(optimizer, "apply", _losses.apply)
        _replace(optimizer, "scale_loss", _losses.scale_loss)
    _replace(loss, "scale_loss_for_distribution", _losses.scale_for_distribution)
    _replace(loss, "unscale_loss_for_distribution", _losses.unscale_for_distribution)
    _replace(loss, "reduce_values", _losses.reduce_values)
    _replace(CompileLoss, "call", _losses.losses_of_outputs)
    _replace(TensorFlowTrainer, "train_step", _losses.train_step)
    del TensorFlowTrainer.train_step.__wrapped__  # AutoGraph would call that, without the model
    _replace(tf.GradientTape, "gradient", _tapes.gradient)
    _replace(tf.GradientTape, "jacobian", _tapes.without_weights)
    _replace(tf.GradientTape, "batch_jacobian", _tapes.batch_jacobian)
    for module in (tf.nn, tf.compat.v1.nn):
        _replace(module, "compute_average_loss", _losses.compute_average_loss)
        _replace(module, "scale_regularization_loss", _losses.scale_regularization_loss)
    _replace(keras.metrics.Mean, "update_state", _metrics.update_mean)
    _replace(keras.metrics.Metric, "add_variable", _metrics.add_variable)
    _replace(Variable, "_direct_assign", _metrics.assign)
    _replace(Trainer, "_get_metrics_result_or_logs", metrics_result_or_logs)
    _replace(TensorFlowTrainer, "_aggregate_additional_loss", _losses.aggregate_additional_loss)
    _replace(TensorFlowTrainer, "_maybe_symbolic_build", _build)
    _replace(TFEpochIterator, "__init__", _iterate)
    for name, function in REPLACEMENTS.items():
        _replace(TensorFlowTrainer, name, function)
    _replace(keras.callbacks.CallbackList, "set_model", adapted)
    _replace(keras.layers.BatchNormalization, "_moments", _normalization.moments)
    _optimizers.install(_replace)
    for method in ("fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "predict_on_batch"):
        _replace(TensorFlowTrainer, method, with_own_errors)
