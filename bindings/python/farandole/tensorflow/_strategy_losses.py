# SPDX-License-Identifier: Apache-2.0
"""Losses and gradients in a step of a Keras model, where everything is as in one process.

Each rank's loss is that of its part of the batch; gradients count by the rank's share of the samples. See
docs/decisions/0012-losses-in-the-eyes-of-a-model.md. The functions below take the place of Keras' and TensorFlow's own,
which are their `base`; outside of a step of a model they do what those do.
"""

import contextlib
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
    share = context.share()
    # A rank without samples may have computed NaN.
    return base(value) if share is None else tf.math.multiply_no_nan(value, tf.cast(share, value.dtype))


def unscale_for_distribution(base: Callable[..., Any], value: Any) -> Any:
    context = own_context()
    if context is None:
        return base(value)
    if context.model_step:
        return value
    share = context.share()
    return base(value) if share is None else tf.math.divide_no_nan(value, tf.cast(share, value.dtype))


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
    context = own_context()
    if context is None or reduction in (None, "none"):
        return base(values, sample_weight, reduction)
    if tuple(values.shape) == (0,):  # Keras would return it: metrics would see the mean of nothing, other ranks wait
        result = tf.reduce_sum(values)
        result = result if reduction == "sum" else scale_for_distribution(lambda value: value, result)
    else:
        result = base(values, sample_weight, reduction)
    if not context.model_step or reduction != "sum":
        return result
    return tf.math.divide_no_nan(result, tf.cast(context.weight(), result.dtype))


def aggregate_additional_loss(base: Callable[..., Any], self: Any, loss: Any) -> Any:
    """What add_loss was given, summed up by Keras. Of one value per row that is a sum over rows: as in reduce_values."""
    result = base(self, loss)
    context = step_context()
    if context is None or not context.is_of_rows(loss):
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


def _times(gradient: Any, factor: Any) -> Any:
    if gradient is None:
        return None
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(_times(gradient.values, factor), gradient.indices, gradient.dense_shape)
    gradient = tf.convert_to_tensor(gradient)
    # A rank without samples may have computed NaN.
    return tf.math.multiply_no_nan(gradient, tf.cast(factor, gradient.dtype))


def apply(base: Callable[..., Any], self: Any, grads: Any, trainable_variables: Any = None) -> Any:
    """In a step of a model, averages the gradients, which a tape has weighted, unless the loss was."""
    context = own_context()
    if context is None and _lifecycle.size() > 1:
        _warn_of_lonely_apply(self._distribution_strategy)
    if context is None or context.is_applying:
        return base(self, grads, trainable_variables)
    _strategy_models.compare_at_first_update(context, self)
    grads = list(grads)
    if context.model_step and not context.has_scaled:
        factor = context.even_weight() if _has_tapes(context.model) else context.weight()
        grads = [_times(getattr(gradient, _OF_LAST_TAPE, gradient), factor) for gradient in grads]
    with context.applying():  # it may call that of another optimizer
        return base(self, grads, trainable_variables)


# ---- Tapes ----------------------------------------------------------------------------------------------------------

# Of a gradient that was taken while another tape recorded: what it would have been after that.
_OF_LAST_TAPE = "_farandole_of_last_tape"


def _has_tapes(model: Any) -> bool:
    """Whether the gradients that the model's steps apply come from tapes. Otherwise nothing has weighted them."""
    return getattr(model, "_farandole_has_tapes", False)


def gradient(
    base: Callable[..., Any],
    self: Any,
    target: Any,
    sources: Any,
    output_gradients: Any = None,
    unconnected_gradients: Any = tf.UnconnectedGradients.NONE,
) -> Any:
    """tf.GradientTape.gradient. In a step of a model it weights what goes backward, so that collectives on the way add up
    what belongs together: docs/decisions/0038-where-a-rank-s-share-enters.md."""
    context = own_context()
    # Within a backward pass are those of TensorFlow's, for what is recomputed.
    if context is None or context.is_differentiating or target is None:
        return base(self, target, sources, output_gradients, unconnected_gradients)
    arguments = (base, self, target, sources, output_gradients, unconnected_gradients)
    if context.model_step:
        return _weighted_gradient(context, *arguments)
    return context.without_nan(_plain_gradient(context, *arguments))


def without_weights(base: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
    """tf.GradientTape.jacobian and batch_jacobian, which take gradients of one element after the other: they are this
    rank's."""
    context = step_context()
    with contextlib.nullcontext() if context is None else context.differentiating():
        return base(self, *args, **kwargs)


def _plain_gradient(
    context: Any, base: Callable[..., Any], tape: Any, target: Any, sources: Any, seeds: Any, unconnected: Any
) -> Any:
    with context.differentiating():
        return base(tape, target, sources, seeds, unconnected)


def _weighted_gradient(
    context: Any, base: Callable[..., Any], tape: Any, target: Any, sources: Any, seeds: Any, unconnected: Any
) -> Any:
    """With respect to variables, that of a loss for each row is the gradient of their sum over all ranks."""
    context.meet()
    targets = tf.nest.flatten(target)
    for each in targets:
        _check_sum(each, context)
    by_variables = any(_is_variable(each) for each in tf.nest.flatten(sources))
    are_of_rows = [context.is_of_rows(each) for each in targets]
    if context.has_scaled and not any(are_of_rows):
        return context.without_nan(_plain_gradient(context, base, tape, target, sources, seeds, unconnected))
    if all(are_of_rows) and not by_variables:  # each row's own
        return _plain_gradient(context, base, tape, target, sources, seeds, unconnected)
    is_last = context.has_scaled or (by_variables and not _another_records(tape))
    of_number, of_rows = _factors(context, by_variables, is_last)
    targets, seeds = _scaled_seeds(targets, seeds, [of_rows if each else of_number for each in are_of_rows])
    gradients = _plain_gradient(context, base, tape, targets, sources, seeds, unconnected)
    if by_variables and not context.has_scaled:
        object.__setattr__(context.model, "_farandole_has_tapes", True)
    if is_last:
        return context.without_nan(gradients)
    flat = [_of_this_rank(each, context.weight()) for each in tf.nest.flatten(gradients)]
    return tf.nest.pack_sequence_as(gradients, flat)


def _factors(context: Any, by_variables: bool, is_last: bool) -> Any:
    """(That of a loss which is a number, that of one with a number for each row) where a gradient begins."""
    weight = context.weight()
    one, size = tf.ones_like(weight), tf.constant(_lifecycle.size(), tf.float64)
    if context.has_scaled:  # the weight is in the loss already
        return one, tf.math.reciprocal_no_nan(weight)
    if is_last:
        return weight * size, size
    return weight, one if by_variables else weight


def _of_this_rank(gradient: Any, weight: tf.Tensor) -> Any:
    """A gradient that the step goes on to differentiate, as one process with this rank's rows has it."""
    if not isinstance(gradient, (tf.Tensor, tf.IndexedSlices)):
        return gradient
    result = _times(gradient, tf.math.reciprocal_no_nan(weight))
    setattr(result, _OF_LAST_TAPE, _times(gradient, tf.constant(_lifecycle.size(), tf.float64)))
    return result


def _another_records(tape: Any) -> bool:
    """Whether another tape than this one is recording: what this one gives is on the way to another gradient."""
    with tape.stop_recording() if tape._recording else contextlib.nullcontext():
        return _private_names.could_possibly_record()


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


def _scaled_seeds(targets: List[Any], given: Any, factors: List[tf.Tensor]) -> Any:
    """(The targets, what goes backward from each of them: the factor times what was given, or ones)."""
    seeds = tf.nest.flatten(given) if given is not None else [None] * len(targets)
    targets, seeds = ([_flat_values(each) for each in values] for values in (targets, seeds))
    return targets, [_scaled_seed(*each) for each in zip(targets, seeds, factors)]


def _flat_values(value: Any) -> Any:
    return value.flat_values if isinstance(value, tf.RaggedTensor) else value


def _scaled_seed(target: Any, seed: Any, factor: tf.Tensor) -> Any:
    seed = tf.ones_like(target) if seed is None else tf.convert_to_tensor(seed)
    return seed * tf.cast(factor, seed.dtype)
