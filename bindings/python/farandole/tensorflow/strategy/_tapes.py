# SPDX-License-Identifier: Apache-2.0
"""Patches of tf.GradientTape: in a step of a Keras model, gradients are weighted by the rank's share of the batch.

gradient(), without_weights() and batch_jacobian() replace the functions of TensorFlow that are passed as `base`, see
_patches.py. docs/decisions/0038-where-a-rank-s-share-enters.md explains the weights.
"""

import contextlib
from typing import Any, Callable, List

import tensorflow as tf

from ... import _lifecycle, errors
from . import _private_names
from ._context import own_context, step_context
from ._graph import is_of_each_row, is_sum_over_rows, is_symbolic

# The step sees the gradient that a single process with this rank's rows would compute. This attribute of that gradient
# holds its weighted form, which `apply` averages over the ranks.
_WEIGHTED = "_farandole_weighted"

# Kinds of targets: a scalar loss; a loss with a value per row; any target whose upstream gradient another tape has
# computed (already weighted).
_NUMBER, _ROWS, _TAPE = range(3)


def has_tapes(model: Any) -> bool:
    """True once a step of the model has computed gradients of variables with a tape, from a loss that `scale_loss` has
    not weighted. The tape has weighted such gradients."""
    return getattr(model, "_farandole_has_tapes", False)


def weighted(gradient: Any) -> Any:
    """The weighted form of a gradient, which `apply` averages over the ranks. Other values are returned unchanged."""
    return getattr(gradient, _WEIGHTED, gradient)


def times(gradient: Any, factor: Any) -> Any:
    """The gradient times a scalar; zero where the factor is zero, even if the gradient is NaN."""
    if gradient is None:
        return None
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(times(gradient.values, factor), gradient.indices, gradient.dense_shape)
    gradient = tf.convert_to_tensor(gradient)
    # A rank without samples may have computed NaN.
    return tf.math.multiply_no_nan(gradient, tf.cast(factor, gradient.dtype))


def gradient(
    base: Callable[..., Any],
    self: Any,
    target: Any,
    sources: Any,
    output_gradients: Any = None,
    unconnected_gradients: Any = tf.UnconnectedGradients.NONE,
) -> Any:
    """tf.GradientTape.gradient. In a step of a model, the upstream gradients are weighted before the backward pass, so
    that collectives of the backward pass add up weighted values."""
    context = own_context()
    # TensorFlow itself calls gradient() during a backward pass, to recompute values: such calls are not weighted.
    if context is None or context.is_differentiating or target is None:
        return base(self, target, sources, output_gradients, unconnected_gradients)

    def plain(targets: Any, seeds: Any) -> Any:
        with context.differentiating():
            return base(self, targets, sources, seeds, unconnected_gradients)

    if context.model_step:
        return _weighted_gradient(context, self, plain, target, sources, output_gradients)
    return context.without_nan(plain(target, output_gradients))


def without_weights(base: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
    """tf.GradientTape.jacobian, unweighted: inside, gradient() returns this rank's own gradients."""
    context = step_context()
    with contextlib.nullcontext() if context is None else context.differentiating():
        return base(self, *args, **kwargs)


def batch_jacobian(base: Callable[..., Any], self: Any, target: Any, source: Any, *args: Any, **kwargs: Any) -> Any:
    """tf.GradientTape.batch_jacobian, unweighted. TensorFlow divides by
    the number of rows; for a batch without rows the result is empty."""

    def of_rows() -> tf.Tensor:
        return without_weights(base, self, target, source, *args, **kwargs)

    def of_none() -> tf.Tensor:
        return tf.zeros(tf.concat([tf.shape(target), tf.shape(source)[1:]], axis=0), target.dtype)

    if own_context() is None or target.shape[:1].is_fully_defined() and target.shape[0] != 0:
        return of_rows()
    if tf.executing_eagerly() or target.shape[:1].is_fully_defined():
        return of_none()
    result = tf.cond(tf.shape(target)[0] == 0, of_none, of_rows)
    return tf.ensure_shape(result, target.shape.concatenate(source.shape[1:]))


def _weighted_gradient(
    context: Any, tape: Any, plain: Callable[[Any, Any], Any], target: Any, sources: Any, given: Any
) -> Any:
    """The gradient in a step of a model.

    plain: (targets, upstream gradients) → TensorFlow's gradients. given: the argument output_gradients, may be None.
    """
    context.compute_share()
    targets = tf.nest.flatten(target)
    seeds = tf.nest.flatten(given) if given is not None else [None] * len(targets)
    for each in targets:
        check_sum(each, context)
    kinds = [_kind(context, *each) for each in zip(targets, seeds)]
    by_variables = any(_is_variable(each) for each in tf.nest.flatten(sources))
    if context.has_scaled and _ROWS not in kinds:
        return context.without_nan(plain(target, given))
    depend_on_own_rows = _depend_on_own_rows(context, kinds, seeds)
    if set(kinds) == {_ROWS} and not by_variables:  # the gradient of each row depends on that row only
        gradients = plain(target, given)
        return _local_gradients(gradients, 1, _size()) if depend_on_own_rows else gradients
    if by_variables and _ROWS in kinds:
        warn_if_eager(context)
    if by_variables and not depend_on_own_rows:
        _refuse_output_gradients(context)
    is_last = context.has_scaled or (by_variables and not _another_tape_records(tape))
    factors = _factors(context, by_variables, is_last)
    gradients = plain(*_scaled_seeds(targets, seeds, [factors[kind] for kind in kinds]))
    if by_variables and not context.has_scaled:
        object.__setattr__(context.model, "_farandole_has_tapes", True)
    if not is_last:
        return _local_gradients(gradients, tf.math.reciprocal_no_nan(context.weight()), _size())
    gradients = context.without_nan(gradients)
    if context.has_scaled:
        return gradients
    share = 1 if set(kinds) == {_ROWS} else context.weight()
    return _local_gradients(gradients, tf.math.reciprocal_no_nan(share * _size()), 1, sources)


def _size() -> tf.Tensor:
    return tf.constant(_lifecycle.size(), tf.float64)


def _kind(context: Any, target: Any, seed: Any) -> int:
    if hasattr(seed, _WEIGHTED):
        return _TAPE
    return _ROWS if context.is_of_rows(target) else _NUMBER


def _depend_on_own_rows(context: Any, kinds: List[int], seeds: List[Any]) -> bool:
    """True if each upstream gradient of a loss with a value per row is known to belong to its row alone. False if
    it may come from a mean over this rank's rows: such an upstream gradient needs the rank's share as a factor."""
    given = [seed for kind, seed in zip(kinds, seeds) if kind == _ROWS and seed is not None]
    return all(is_of_each_row(seed, context.rows()) for seed in given)


def _refuse_output_gradients(context: Any) -> None:
    raise errors.Unsupported(
        f"{context.model_step}() gives tape.gradient() output_gradients of which it cannot be seen whether they are those of a "
        "mean over this rank's rows, which the ranks weight, or each row's own. For a mean write tape.gradient("
        "tf.reduce_sum(outputs * seed), variables), for each row's own tape.gradient(outputs * seed, variables), with the "
        "product computed while the tape records, and seed = tf.stop_gradient(...). What another tape's gradient() has returned "
        "is known, as it is"
    )


def _factors(context: Any, by_variables: bool, is_last: bool) -> List[tf.Tensor]:
    """The factors of upstream gradients, by kind of target."""
    weight = context.weight()
    one = tf.ones_like(weight)
    if context.has_scaled:  # the loss contains the weight already
        return [one, tf.math.reciprocal_no_nan(weight), one]
    if is_last:
        return [weight * _size(), _size(), one]
    return [weight, one if by_variables else weight, one / _size()]


def _local_gradients(gradients: Any, factor: Any, weight: Any, sources: Any = None) -> Any:
    """Returns the gradients that the step itself uses: the gradients of a single process with this rank's rows.
    Attaches the weighted form to each. If `sources` is given, returns gradients with respect to variables among the
    sources unchanged.

    factor: multiplies each gradient to give the returned gradient.
    weight: multiplies each gradient to give its weighted form.
    """
    flat = tf.nest.flatten(gradients)
    keep = [_is_variable(each) for each in tf.nest.flatten(sources)] if sources is not None else [False] * len(flat)
    results = [each if stays else _tagged(times(each, factor), times(each, weight)) for each, stays in zip(flat, keep)]
    return tf.nest.pack_sequence_as(gradients, results)


def _tagged(gradient: Any, of_apply: Any) -> Any:
    if gradient is not None:
        setattr(gradient, _WEIGHTED, of_apply)
    return gradient


def _another_tape_records(tape: Any) -> bool:
    """True if a tape besides this one is recording: then this tape's gradient is an intermediate result."""
    with tape.stop_recording() if tape._recording else contextlib.nullcontext():
        return _private_names.could_possibly_record()


def check_sum(loss: Any, context: Any) -> None:
    """Warns once if the loss is a sum over this rank's rows. Gradients are averaged over the ranks, weighted by their
    samples. With P ranks they are P times smaller than the gradients of the sum over all rows."""
    if is_symbolic(loss) and is_sum_over_rows(loss, context.rows()):
        _warn_sum(context.model_step)


def warn_if_eager(context: Any) -> None:
    """Warns once if the step runs eagerly. In eager mode only the size of a loss shows whether it has a value per row,
    which may be wrong."""
    if tf.executing_eagerly():
        _warn_eager_rows(context.model_step)


def _warn_eager_rows(step: str) -> None:
    _lifecycle.warn_once(
        f"a loss in {step}() has several numbers, which are taken as one for each row, or several, because there are as many: "
        "its gradient is that of their sum over the rows of all ranks. A step that runs eagerly cannot see where they come "
        "from. If they are means over the rows, take tf.reduce_sum() of them",
    )


def _warn_sum(step: str) -> None:
    _lifecycle.warn_once(
        f"a loss in {step}() is a sum over the rows of this rank. Gradients are averaged over the ranks, by their "
        "samples: they are as many times smaller than those of the sum over all rows as there are ranks. Use a "
        "mean, tf.nn.compute_average_loss(losses, global_batch_size=n), or a loss of Keras with reduction=\"sum\"",
    )


def _is_variable(value: Any) -> bool:
    import keras

    return isinstance(value, (tf.Variable, keras.Variable))


def _scaled_seeds(targets: List[Any], seeds: List[Any], factors: List[tf.Tensor]) -> Any:
    """(Targets, upstream gradients times their factors). A missing upstream gradient defaults to ones."""
    targets, seeds = ([_flat_values(weighted(each)) for each in values] for values in (targets, seeds))
    return targets, [_scaled_seed(*each) for each in zip(targets, seeds, factors)]


def _flat_values(value: Any) -> Any:
    return value.flat_values if isinstance(value, tf.RaggedTensor) else value


def _scaled_seed(target: Any, seed: Any, factor: tf.Tensor) -> Any:
    seed = tf.ones_like(target) if seed is None else tf.convert_to_tensor(seed)
    return seed * tf.cast(factor, seed.dtype)
