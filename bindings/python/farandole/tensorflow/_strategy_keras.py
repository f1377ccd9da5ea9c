"""What Keras 3 has to know of the strategy.

Keras' optimizers clip the gradients of one replica and reduce them afterwards, skip a step for what one replica has
seen, and weight all replicas alike. The functions below take the place of Keras' own; with any other strategy, and
without one, they do what those do.
"""

import functools
from typing import Any, Callable, Optional
from unittest import mock

import tensorflow as tf

from .. import _lifecycle, errors
from . import _private_names
from ._gradients import finite_everywhere
from ._strategy_extended import ReplicaContext
from ._strategy_input import DistributedDataset, Order
from ._strategy_names import named
from .strategy import MirroredStrategy


def _own_context() -> Optional[ReplicaContext]:
    """The context of the replica, if it is one of ours and not the only one."""
    context = tf.distribute.get_replica_context()
    return context if isinstance(context, ReplicaContext) and _lifecycle.size() > 1 else None


def _apply(base: Callable[..., Any], self: Any, grads: Any, trainable_variables: Any = None) -> Any:
    context = _own_context()
    if context is not None:
        grads = list(context.of_samples(list(grads)))
    return base(self, grads, trainable_variables)


def _clip_gradients(base: Callable[..., Any], self: Any, grads: Any) -> Any:
    """Clips what has been reduced. It is called once for each update, also where gradients are accumulated."""
    context = _own_context()
    if context is None:
        return base(self, grads)
    # An optimizer that was made outside of scope() would update its variables by another strategy.
    self._distribution_strategy = context.strategy
    return base(self, list(context.strategy.extended.reduce_gradients(list(grads), list(grads))))


def _all_reduce_sum_gradients(base: Callable[..., Any], self: Any, grads_and_vars: Any) -> Any:
    return base(self, grads_and_vars) if _own_context() is None else grads_and_vars


def _check_finite(base: Callable[..., Any], self: Any, grads: Any) -> Any:
    """Whether the gradients of all ranks are finite: otherwise all skip the step."""
    finite = base(self, grads)
    if _own_context() is None:
        return finite
    return finite_everywhere(finite, **named("finite"))


def _scale_loss(base: Callable[..., Any], value: Any) -> Any:
    """The mean over this rank's samples, times its share of them: the sum over the ranks is the mean over all samples,
    and so is the gradient."""
    context = _own_context()
    if context is None or not (context.knows_share() or _private_names.could_possibly_record()):
        return base(value)
    share = context.share()
    # A rank without samples may have computed NaN.
    return base(value) if share is None else tf.math.multiply_no_nan(value, tf.cast(share, value.dtype))


def _unscale_loss(base: Callable[..., Any], value: Any) -> Any:
    context = _own_context()
    if context is None or not context.knows_share():
        return base(value)
    return tf.math.divide_no_nan(value, tf.cast(context.share(), value.dtype))


def _losses(base: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
    """The loss of each output is a metric whose mean Keras takes over the batches, not over the samples: each rank's
    value, times its share and the number of ranks, gives the same mean over the ranks."""
    if _own_context() is None:
        return base(self, *args, **kwargs)
    from keras.src.losses import loss

    with mock.patch.object(loss, "unscale_loss_for_distribution", loss.unscale_loss_for_distribution.__wrapped__):
        return base(self, *args, **kwargs)


def _symbolic(spec: Any) -> Any:
    """The specification of a tensor; None for what a generator left out."""
    return spec if hasattr(spec, "shape") and hasattr(spec, "dtype") else None


def _build(base: Callable[..., Any], self: Any, iterator: Any = None, data_batch: Any = None) -> None:
    """Builds the model from what is known of the batches. Keras takes one of them to look at, which a generator would
    not give again, and which would change the order of shuffled data."""
    dataset = getattr(iterator, "_distributed_dataset", None)
    if data_batch is not None or self._distribute_strategy is None or not isinstance(dataset, DistributedDataset):
        return base(self, iterator=iterator, data_batch=data_batch)
    with self.distribute_strategy.scope():
        return self._symbolic_build(data_batch=tf.nest.map_structure(_symbolic, dataset.element_spec))


def _iterate(base: Callable[..., Any], self: Any, distribute_strategy: Any = None, *args: Any, **kwargs: Any) -> None:
    """Lets arrays be shuffled alike on all ranks. Keras shuffles them by tf.random.shuffle, here and nowhere else."""
    if not isinstance(distribute_strategy, MirroredStrategy) or _lifecycle.size() == 1 or not kwargs.get("shuffle"):
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
    from keras.src.backend.tensorflow.optimizer import TFOptimizer
    from keras.src.backend.tensorflow.trainer import TensorFlowTrainer, TFEpochIterator
    from keras.src.losses import loss
    from keras.src.trainers.compile_utils import CompileLoss
    from keras.src.trainers.trainer import Trainer

    from . import _strategy_optimizers
    from ._errors import with_own_errors
    from ._strategy_agreement import REPLACEMENTS
    from ._strategy_callbacks import adapted
    from ._strategy_logs import metrics_result_or_logs

    _replace(TFOptimizer, "_clip_gradients", _clip_gradients)
    _replace(TFOptimizer, "_all_reduce_sum_gradients", _all_reduce_sum_gradients)
    _replace(TFOptimizer, "apply", _apply)
    _replace(keras.optimizers.LossScaleOptimizer, "apply", _apply)
    _replace(keras.optimizers.LossScaleOptimizer, "check_finite", _check_finite)
    _replace(loss, "scale_loss_for_distribution", _scale_loss)
    _replace(loss, "unscale_loss_for_distribution", _unscale_loss)
    _replace(CompileLoss, "call", _losses)
    _replace(Trainer, "_get_metrics_result_or_logs", metrics_result_or_logs)
    _replace(TensorFlowTrainer, "_maybe_symbolic_build", _build)
    _replace(TFEpochIterator, "__init__", _iterate)
    for name, function in REPLACEMENTS.items():
        _replace(TensorFlowTrainer, name, function)
    _replace(keras.callbacks.CallbackList, "set_model", adapted)
    _strategy_optimizers.install(_replace)
    for method in ("fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "predict_on_batch"):
        _replace(TensorFlowTrainer, method, with_own_errors)
