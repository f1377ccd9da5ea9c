# SPDX-License-Identifier: Apache-2.0
"""Patches of losses. In a step of a Keras model each rank sees the losses of a single process.

Each rank's loss covers its own rows. The weight of a rank, its share of the samples, is applied to the gradients: to
those of tapes (_tapes.py), or through the loss that Keras' own train_step differentiates. See
docs/decisions/0012-losses-in-the-eyes-of-a-model.md.

Every function below replaces the function of Keras or TensorFlow that is passed as `base`, see _patches.py. Outside of
a step of a model it only calls `base`, unless its docstring says otherwise.
"""

from typing import Any, Callable, List
from unittest import mock

import tensorflow as tf

from ... import _engine, _lifecycle
from . import _models, _tapes
from ._context import own_context, step_context
from ._extended import Extended

# ---- Losses ---------------------------------------------------------------------------------------------------------


def scale_for_distribution(base: Callable[..., Any], value: Any) -> Any:
    """In a step of a model: returns the value. In any other function: multiplies the mean over this rank's samples by
    the rank's share, so that the sum over the ranks is the mean over all samples, and so is the gradient."""
    # A rank without samples may have computed NaN.
    return _with_share(base, value, tf.math.multiply_no_nan)


def unscale_for_distribution(base: Callable[..., Any], value: Any) -> Any:
    """The inverse of `scale_for_distribution`."""
    return _with_share(base, value, tf.math.divide_no_nan)


def _with_share(base: Callable[..., Any], value: Any, combine: Callable[[Any, Any], Any]) -> Any:
    """Combines the value with the rank's share of the samples, by the rules of `scale_for_distribution`."""
    context = own_context()
    if context is None:
        return base(value)
    if context.model_step:
        return value
    share = context.share()
    return base(value) if share is None else combine(value, tf.cast(share, value.dtype))


def losses_of_outputs(
    base: Callable[..., Any], self: Any, y_true: Any, y_pred: Any, sample_weight: Any = None
) -> Any:
    """Outside of a step of a model: Keras weights the losses of several outputs by the number of rows if that number is
    static. Otherwise all batches have the same weight. In that case, the value of each rank is left scaled by its
    share and the number of ranks. The metric's average over the ranks is then the mean over all samples."""
    if own_context() is None or step_context() is not None or _has_static_rows(tf.nest.flatten(y_pred)):
        return base(self, y_true, y_pred, sample_weight)
    from keras.src.losses import loss

    with mock.patch.object(loss, "unscale_loss_for_distribution", loss.unscale_loss_for_distribution.__wrapped__):
        return base(self, y_true, y_pred, sample_weight)


def _has_static_rows(outputs: List[Any]) -> bool:
    """True if the number of rows of the first output is known before the step runs, as it is for arrays."""
    return not outputs or tf.TensorShape(outputs[0].shape)[:1].is_fully_defined()


def reduce_values(
    base: Callable[..., Any], values: Any, sample_weight: Any = None, reduction: Any = "sum_over_batch_size"
) -> Any:
    """Keras' reduction of the losses of rows. With reduction "sum", the sum over this rank's rows is divided by the
    rank's share: the average over the ranks, weighted by their samples, is then the sum over all rows."""
    context = own_context()
    if context is None or reduction in (None, "none"):
        return base(values, sample_weight, reduction)
    if tuple(values.shape) == (0,):  # not reduced by Keras: a metric would average nothing, and peers would wait
        result = tf.reduce_sum(values)
        result = result if reduction == "sum" else scale_for_distribution(lambda value: value, result)
    else:
        result = base(values, sample_weight, reduction)
    if not context.model_step or reduction != "sum":
        return result
    return tf.math.divide_no_nan(result, tf.cast(context.weight(), result.dtype))


def aggregate_additional_loss(base: Callable[..., Any], self: Any, loss: Any) -> Any:
    """The sum of a loss that was passed to add_loss. If the loss has
    one value per row, divides by the share as `reduce_values` does."""
    result = base(self, loss)
    context = step_context()
    if context is None or not context.is_of_rows(loss):
        return result
    _tapes.warn_if_eager(context)
    return tf.math.divide_no_nan(result, tf.cast(context.weight(), result.dtype))


def compute_average_loss(
    base: Callable[..., Any], per_example_loss: Any, sample_weight: Any = None, global_batch_size: Any = None
) -> Any:
    """In a step of a model: the average over this rank's rows. With global_batch_size, scaled so that the average over
    the ranks has the same value as TensorFlow's sum over the ranks."""
    result = base(per_example_loss, sample_weight, global_batch_size)
    context = step_context()
    if context is None:
        return result
    if global_batch_size is None:  # TensorFlow has divided by (rows of this rank × number of ranks)
        return result * tf.cast(_lifecycle.size(), result.dtype)
    return tf.math.divide_no_nan(result, tf.cast(context.weight(), result.dtype))


def scale_regularization_loss(base: Callable[..., Any], regularization_loss: Any) -> Any:
    """In a step of a model: undoes TensorFlow's division by the number of ranks."""
    result = base(regularization_loss)
    return result if step_context() is None else result * tf.cast(_lifecycle.size(), result.dtype)


# ---- Gradients ------------------------------------------------------------------------------------------------------


def train_step(base: Callable[..., Any], self: Any, data: Any) -> Any:
    """Keras' own step differentiates the result of scale_loss. Weighting that loss weights all gradients at no cost."""
    context = step_context()
    if context is None:
        return base(self, data)
    with context.scaling(self.optimizer):
        return base(self, data)


def scale_loss(base: Callable[..., Any], self: Any, loss: Any) -> Any:
    """Multiplies the loss by the rank's weight if Keras' own train_step is about to differentiate the result."""
    result = base(self, loss)
    context = step_context()
    if context is None or not context.begins_to_scale(self):
        return result
    _tapes.check_sum(loss, context)
    return tf.math.multiply_no_nan(result, tf.cast(context.weight(), result.dtype))


_has_warned_apply = False


def _warn_apply_outside_run(strategy: Any) -> None:
    """Warns once if an optimizer of the strategy is applied outside of `run`, for example by an ordinary loop."""
    global _has_warned_apply
    is_per_worker = isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy) and isinstance(
        getattr(strategy, "extended", None), Extended
    )
    if not is_per_worker or _has_warned_apply:
        return
    _has_warned_apply = True
    if _lifecycle.rank() == 0:
        _engine.log(
            "warning",
            "an optimizer applies gradients of each rank alone: a loop of your own reduces them only in a function that "
            "strategy.run() calls, with data from strategy.experimental_distribute_dataset()",
        )


def apply(base: Callable[..., Any], self: Any, grads: Any, trainable_variables: Any = None) -> Any:
    """In a step of a model: averages the gradients over the ranks. `scale_loss` or the tapes have weighted the
    gradients by the rank's samples; gradients of a model that uses neither are weighted here."""
    context = own_context()
    if context is None and _lifecycle.size() > 1:
        _warn_apply_outside_run(self._distribution_strategy)
    if context is None or context.is_applying:
        return base(self, grads, trainable_variables)
    _models.compare_at_first_update(context, self)
    grads = list(grads)
    if context.model_step and not context.has_scaled:
        factor = context.even_weight() if _tapes.has_tapes(context.model) else context.weight()
        grads = [_tapes.times(_tapes.weighted(gradient), factor) for gradient in grads]
    with context.applying():  # LossScaleOptimizer.apply calls the inner optimizer's apply
        return base(self, grads, trainable_variables)
