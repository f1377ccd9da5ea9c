# SPDX-License-Identifier: Apache-2.0
"""Losses and gradients in a step of a Keras model, where everything is as in one process.

Each rank's loss is that of its part of the batch; gradients count by the rank's share of the samples. See
docs/decisions/0012-losses-in-the-eyes-of-a-model.md. The functions below take the place of Keras' and TensorFlow's own,
which are their `base`; outside of a step of a model they do what those do.
"""

import functools
from typing import Any, Callable, List
from unittest import mock

import tensorflow as tf

from .. import _engine, _lifecycle
from . import _private_names, _strategy_models
from ._strategy_extended import Extended, own_context, step_context
from ._strategy_graph import is_sum_over_rows, is_symbolic

# ---- Losses ---------------------------------------------------------------------------------------------------------


def scale_for_distribution(base: Callable[..., Any], value: Any) -> Any:
    """In a step of a model, the value. Else the mean over this rank's samples, times its share of them: the sum over
    the ranks is the mean over all samples, and so is the gradient."""
    context = own_context()
    if context is None:
        return base(value)
    if context.model_step:
        return value
    if not (context.knows_share() or _private_names.could_possibly_record()):
        return base(value)
    share = context.share()
    # A rank without samples may have computed NaN.
    return base(value) if share is None else tf.math.multiply_no_nan(value, tf.cast(share, value.dtype))


def unscale_for_distribution(base: Callable[..., Any], value: Any) -> Any:
    context = own_context()
    if context is None:
        return base(value)
    if context.model_step:
        return value
    if not context.knows_share():
        return base(value)
    return tf.math.divide_no_nan(value, tf.cast(context.share(), value.dtype))


def losses_of_outputs(base: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
    """Outside of a step of a model: the loss of each output is a metric whose mean Keras takes over the batches, not
    over the samples. Each rank's value, times its share and the number of ranks, gives the same mean over the ranks."""
    if own_context() is None or step_context() is not None:
        return base(self, *args, **kwargs)
    from keras.src.losses import loss

    with mock.patch.object(loss, "unscale_loss_for_distribution", loss.unscale_loss_for_distribution.__wrapped__):
        return base(self, *args, **kwargs)


def reduce_values(
    base: Callable[..., Any], values: Any, sample_weight: Any = None, reduction: Any = "sum_over_batch_size"
) -> Any:
    """Keras' reduction of the losses of the rows. The sum over this rank's rows is divided by its share: the mean of
    these over the ranks, by their samples, is the sum over all rows."""
    context = step_context()
    if context is None or reduction in (None, "none"):
        return base(values, sample_weight, reduction)
    if tuple(values.shape) == (0,):  # Keras would return it, and metrics would see the mean of nothing
        return tf.reduce_sum(values)
    result = base(values, sample_weight, reduction)
    if reduction != "sum":
        return result
    return tf.math.divide_no_nan(result, tf.cast(context.weight(), result.dtype))


def compute_average_loss(
    base: Callable[..., Any], per_example_loss: Any, sample_weight: Any = None, global_batch_size: Any = None
) -> Any:
    """In a step of a model the average over this rank's rows; with a size of the batch, what counts as much."""
    result = base(per_example_loss, sample_weight, global_batch_size)
    context = step_context()
    if context is None:
        return result
    if global_batch_size is None:  # divided by the rows of one rank times the number of ranks
        return result * tf.cast(_lifecycle.size(), result.dtype)
    return tf.math.divide_no_nan(result, tf.cast(context.weight(), result.dtype))


def scale_regularization_loss(base: Callable[..., Any], regularization_loss: Any) -> Any:
    result = base(regularization_loss)
    return result if step_context() is None else result * tf.cast(_lifecycle.size(), result.dtype)


# ---- Gradients ------------------------------------------------------------------------------------------------------


def train_step(base: Callable[..., Any], self: Any, data: Any) -> Any:
    """Keras' own step, in which what scale_loss returns is what is differentiated: there, to weight the loss is to
    weight all gradients, at no cost."""
    context = step_context()
    if context is None:
        return base(self, data)
    with context.scaling(self.optimizer):
        return base(self, data)


def scale_loss(base: Callable[..., Any], self: Any, loss: Any) -> Any:
    result = base(self, loss)
    context = step_context()
    if context is None or not context.begins_to_scale(self):
        return result
    _check_sum(loss, context)
    return tf.math.multiply_no_nan(result, tf.cast(context.weight(), result.dtype))


_has_warned_of_apply = False


def _warn_of_lonely_apply(strategy: Any) -> None:
    """Once, if an optimizer of the strategy is applied outside of `run`, by an ordinary loop."""
    global _has_warned_of_apply
    is_per_worker = isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy) and isinstance(
        getattr(strategy, "extended", None), Extended
    )
    if not is_per_worker or _has_warned_of_apply:
        return
    _has_warned_of_apply = True
    if _lifecycle.rank() == 0:
        _engine.log(
            "warning",
            "an optimizer applies gradients of each rank alone: a loop of your own reduces them only in a function that "
            "strategy.run() calls, with data from strategy.experimental_distribute_dataset()",
        )


def _weighted(gradient: Any, weight: tf.Tensor) -> Any:
    if gradient is None:
        return None
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(_weighted(gradient.values, weight), gradient.indices, gradient.dense_shape)
    gradient = tf.convert_to_tensor(gradient)
    # A rank without samples may have computed NaN.
    return tf.math.multiply_no_nan(gradient, tf.cast(weight, gradient.dtype))


def apply(base: Callable[..., Any], self: Any, grads: Any, trainable_variables: Any = None) -> Any:
    """In a step of a model, weights the gradients if the loss was not. Elsewhere a rank without samples gives none."""
    context = own_context()
    if context is None and _lifecycle.size() > 1:
        _warn_of_lonely_apply(self._distribution_strategy)
    if context is None or context.is_applying:
        return base(self, grads, trainable_variables)
    _strategy_models.compare_at_first_update(context, self)
    grads = list(grads)
    if context.model_step and not context.has_scaled:
        weight = context.weight()
        grads = [_weighted(gradient, weight) for gradient in grads]
    else:
        grads = list(context.of_samples(grads))
    with context.applying():  # it may call that of another optimizer
        return base(self, grads, trainable_variables)


def gradient(
    base: Callable[..., Any],
    self: Any,
    target: Any,
    sources: Any,
    output_gradients: Any = None,
    unconnected_gradients: Any = tf.UnconnectedGradients.NONE,
) -> Any:
    """tf.GradientTape.gradient: with respect to variables, that of a loss for each row is the gradient of their sum. As
    gradients count by the rank's share, it is divided by it."""
    context = step_context()
    # Within a backward pass are those of TensorFlow's, for what is recomputed.
    if context is None or context.is_differentiating:
        return base(self, target, sources, output_gradients, unconnected_gradients)
    targets, by = tf.nest.flatten(target), tf.nest.flatten(sources)
    for each in targets:
        _check_sum(each, context)
    if any(context.is_of_rows(each) for each in targets) and any(_is_variable(each) for each in by):
        target = [each.flat_values if isinstance(each, tf.RaggedTensor) else each for each in targets]
        output_gradients = _divided_seeds(target, output_gradients, context)
    with context.differentiating():
        return base(self, target, sources, output_gradients, unconnected_gradients)


def _check_sum(loss: Any, context: Any) -> None:
    if is_symbolic(loss) and is_sum_over_rows(loss, context.rows()):
        _warn_of_sum(context.model_step)


@functools.lru_cache(maxsize=None)
def _warn_of_sum(step: str) -> None:
    if _lifecycle.rank() == 0:
        _engine.log(
            "warning",
            f"a loss in {step}() is a sum over the rows of this rank. Gradients are averaged over the ranks, by their "
            "samples: they are as many times smaller than those of the sum over all rows as there are ranks. Use a "
            "mean, tf.nn.compute_average_loss(losses, global_batch_size=n), or a loss of Keras with reduction=\"sum\"",
        )


def _is_variable(value: Any) -> bool:
    import keras

    return isinstance(value, (tf.Variable, keras.Variable))


def _divided_seeds(targets: List[Any], given: Any, context: Any) -> List[Any]:
    seeds = tf.nest.flatten(given) if given is not None else [None] * len(targets)
    seeds = [seed.flat_values if isinstance(seed, tf.RaggedTensor) else seed for seed in seeds]
    return [_divided_seed(target, seed, context) for target, seed in zip(targets, seeds)]


def _divided_seed(target: Any, seed: Any, context: Any) -> Any:
    seed = tf.ones_like(target) if seed is None else tf.convert_to_tensor(seed)
    if not context.is_of_rows(target):
        return seed
    return tf.math.divide_no_nan(seed, tf.cast(context.weight(), seed.dtype))
