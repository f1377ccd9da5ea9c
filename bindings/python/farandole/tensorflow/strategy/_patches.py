# SPDX-License-Identifier: Apache-2.0
"""The list of every function of Keras and TensorFlow that this package replaces.

Keras weights all replicas alike, clips gradients before they are reduced, and lets each replica stop, shuffle and write
files as if it were alone. `install` puts a function of this package in front of each of the functions below. With
any other strategy, or without a strategy, the new function behaves like the old function.

To add a patch: write `def function(base, self, …)`, where `base` is the function that is replaced, add an entry, and
name a test file of tests/python that fails without the entry. tests/python/keras_patches_test.py checks that the
installed Keras and TensorFlow still have each name.

farandole.tensorflow.data.compute_service replaces nothing, but adds a method: tf.data.Dataset.send_to_data_service.

A program that imports Horovod's modules for Keras gets one more patch: `accept_obsolete_arguments` of
farandole/tensorflow/keras/_impl.py lets Trainer.compile ignore an argument of Keras 2.

Two further patches are not in the list, because they last only for the duration of a call: `_keras.iterate` replaces
tf.random.shuffle, and `_losses.losses_of_outputs` undoes the patch of unscale_loss_for_distribution.
"""

import functools
from dataclasses import dataclass
from typing import Any, Callable

from ... import _missing_scope, errors
from ..._replacing import replace
from .. import _errors, _keras_optimizer
from . import (
    _agreement,
    _callbacks,
    _epoch_logs,
    _keras,
    _losses,
    _metrics,
    _normalization,
    _optimizers,
    _private_names,
    _tapes,
    _verbosity,
)
from ._private_names import KERAS, TENSORFLOW, Library


@dataclass(frozen=True)
class Patch:
    """One function that `install` replaces.

    module, name: the function, for example "keras.src.metrics.metric" and "Metric.add_variable".
    replacement: called in its place, with the replaced function as the first argument.
    why: what would be wrong without the patch.
    test: a file of tests/python that fails without the patch.
    library: the library that has the function, with the versions that were tested.
    shows_base: see `replace`.
    """

    module: str
    name: str
    replacement: Callable[..., Any]
    why: str
    test: str
    library: Library = KERAS
    shows_base: bool = True

    def apply(self) -> None:
        owner_name, _, name = self.name.rpartition(".")
        owner = _private_names.find(self.library, self.module, owner_name)
        replace(owner, name, self.replacement, self.shows_base)


_OPTIMIZER = "keras.src.backend.tensorflow.optimizer"
_LOSS_SCALE = "keras.src.optimizers.loss_scale_optimizer"
_TF_TRAINER = "keras.src.backend.tensorflow.trainer"
_TRAINER = "keras.src.trainers.trainer"
_LOSS = "keras.src.losses.loss"
_MODULES_OF_NN = (("nn", "keras_steps_test.py"), ("compat.v1.nn", "keras_patches_test.py"))

# If two patches replace the same function, the later patch is called first.
PATCHES = (
    # ---- Gradients and updates ----
    Patch(
        _OPTIMIZER, "TFOptimizer._clip_gradients", _keras.clip_gradients,
        why="each rank would clip its own gradients, and reduce them afterwards",
        test="keras_updates_test.py",
    ),
    Patch(
        _OPTIMIZER, "TFOptimizer._all_reduce_sum_gradients", _keras.all_reduce_sum_gradients,
        why="gradients that `clip_gradients` has reduced would be reduced again",
        test="keras_updates_test.py",
    ),
    Patch(
        _LOSS_SCALE, "LossScaleOptimizer.check_finite", _keras.check_finite,
        why="only the rank whose gradients are infinite would skip the step",
        test="keras_updates_test.py",
    ),
    Patch(
        _OPTIMIZER, "TFOptimizer.apply", _losses.apply,
        why="gradients of ranks with fewer samples would count as much as those of other ranks",
        test="keras_steps_test.py",
    ),
    Patch(
        _LOSS_SCALE, "LossScaleOptimizer.apply", _losses.apply,
        why="gradients that another tape records would lose their weights when loss scaling divides them",
        test="keras_patches_test.py",
    ),
    Patch(
        _OPTIMIZER, "TFOptimizer.scale_loss", _losses.scale_loss,
        why="Keras' own train_step would need one multiplication per gradient; weighting the loss costs one for all",
        test="keras_patches_test.py",
    ),
    Patch(
        _LOSS_SCALE, "LossScaleOptimizer.scale_loss", _losses.scale_loss,
        why="as TFOptimizer.scale_loss",
        test="keras_patches_test.py",
    ),
    Patch(
        _TF_TRAINER, "TensorFlowTrainer.train_step", _losses.train_step,
        why="`scale_loss` could not know that its result is differentiated, and not only printed",
        test="keras_patches_test.py",
        shows_base=False,  # AutoGraph would call the __wrapped__ function, without the model
    ),
    Patch(
        "tensorflow", "GradientTape.gradient", _tapes.gradient,
        why="gradients of user-defined train steps would not be weighted by the rank's share of the samples",
        test="keras_steps_test.py",
        library=TENSORFLOW,
    ),
    Patch(
        "tensorflow", "GradientTape.jacobian", _tapes.without_weights,
        why="jacobians would be weighted, because TensorFlow computes them with gradient()",
        test="keras_patches_test.py",
        library=TENSORFLOW,
    ),
    Patch(
        "tensorflow", "GradientTape.batch_jacobian", _tapes.batch_jacobian,
        why="as jacobian; and a rank without rows would divide by zero",
        test="keras_collectives_test.py",
        library=TENSORFLOW,
    ),
    # ---- Losses ----
    Patch(
        _LOSS, "scale_loss_for_distribution", _losses.scale_for_distribution,
        why="means over the samples of a rank would count alike, whatever its number of samples",
        test="keras_shares_test.py",
    ),
    Patch(
        _LOSS, "unscale_loss_for_distribution", _losses.unscale_for_distribution,
        why="the loss that is shown would not be the mean over all samples",
        test="keras_fit_test.py",
    ),
    Patch(
        _LOSS, "reduce_values", _losses.reduce_values,
        why="sums over rows would be averaged over the ranks, and an empty part of a batch would give an empty tensor "
            "instead of a scalar",
        test="keras_losses_test.py",
    ),
    Patch(
        "keras.src.trainers.compile_utils", "CompileLoss.call", _losses.losses_of_outputs,
        why="the losses of several outputs would be averaged over the batches with equal weights, whatever "
            "their numbers of samples",
        test="keras_patches_test.py",
    ),
    Patch(
        _TF_TRAINER, "TensorFlowTrainer._aggregate_additional_loss", _losses.aggregate_additional_loss,
        why="sums over rows that were passed to add_loss would be averaged over the ranks",
        test="keras_losses_test.py",
    ),
    *(
        Patch(
            "tensorflow", f"{module}.compute_average_loss", _losses.compute_average_loss,
            why="the average would be divided by the number of ranks, and the gradient weighted once more",
            test=test,
            library=TENSORFLOW,
        )
        for module, test in _MODULES_OF_NN
    ),
    *(
        Patch(
            "tensorflow", f"{module}.scale_regularization_loss", _losses.scale_regularization_loss,
            why="the loss would be divided by the number of ranks, and the gradient averaged once more",
            test=test,
            library=TENSORFLOW,
        )
        for module, test in _MODULES_OF_NN
    ),
    # ---- Metrics ----
    Patch(
        "keras.src.metrics.reduction_metrics", "Mean.update_state", _metrics.update_mean,
        why="scalars passed to a Mean metric would not be weighted by the rank's share of the samples",
        test="keras_metrics_test.py",
    ),
    Patch(
        "keras.src.metrics.metric", "Metric.add_variable", _metrics.add_variable,
        why="each rank would have the metric of its own samples",
        test="keras_metrics_test.py",
    ),
    Patch(
        "keras.src.backend.tensorflow.core", "Variable._direct_assign", _metrics.assign,
        why="it would remain unknown whether a metric adds up its variable or keeps the maximum or minimum",
        test="keras_metrics_test.py",
    ),
    Patch(
        _TRAINER, "Trainer._get_metrics_result_or_logs", _epoch_logs.metrics_result_or_logs,
        why="callbacks would decide differently on each rank, on logs of the rank's own samples",
        test="keras_logs_test.py",
    ),
    Patch(
        "keras.src.layers.normalization.batch_normalization", "BatchNormalization._moments", _normalization.moments,
        why="synchronized=True with a mask would take the statistics of the rank's own rows",
        test="keras_masks_test.py",
    ),
    # ---- Data and the training loop ----
    Patch(
        _TF_TRAINER, "TensorFlowTrainer._maybe_symbolic_build", _keras.build,
        why="Keras would take a batch in order to build the model, and that batch would be missing from training",
        test="keras_fit_test.py",
    ),
    Patch(
        _TF_TRAINER, "TFEpochIterator.__init__", _keras.iterate,
        why="each rank would shuffle arrays in an order of its own",
        test="keras_fit_test.py",
    ),
    Patch(
        _TF_TRAINER, "TensorFlowTrainer._make_function", _agreement.make_function,
        why="each step would exchange the numbers of samples once more",
        test="keras_agreement_test.py",
    ),
    *(
        Patch(
            _TF_TRAINER, f"TensorFlowTrainer.{name}", _agreement.call(name),
            why="ranks that call something else, or with other arguments, would wait for each other",
            test="keras_agreement_test.py",
        )
        for name in ("fit", "evaluate", "predict")
    ),
    *(
        Patch(
            _TF_TRAINER, f"TensorFlowTrainer.{name}", _agreement.call_on_batch(name),
            why="ranks that call something else would wait for each other",
            test="keras_patches_test.py",
        )
        for name in ("train_on_batch", "test_on_batch", "predict_on_batch")
    ),
    Patch(
        "keras.src.callbacks.callback_list", "CallbackList.set_model", _callbacks.set_model,
        why="every rank would write the same files, and a rank that stops alone would leave the other ranks waiting",
        test="keras_callbacks_test.py",
    ),
    *(
        Patch(
            _TF_TRAINER, f"TensorFlowTrainer.{name}", _verbosity.show_on_first_rank,
            why="every rank would show a progress bar, also in a file",
            test="keras_callbacks_test.py",
        )
        for name in ("fit", "evaluate", "predict")
    ),
    # ---- Optimizers that were made outside of the scope ----
    Patch(
        # Patch Trainer, not TensorFlowTrainer: on loading, Keras treats compile() as overridden if it is not
        # Trainer.compile.
        _TRAINER, "Trainer.compile", _optimizers.compile_in_scope,
        why="metrics and optimizers of a compile() outside of the scope would be the rank's own",
        test="keras_optimizers_test.py",
    ),
    Patch(
        _OPTIMIZER, "TFOptimizer.add_variable_from_reference", _optimizers.add_variable_from_reference,
        why="momenta of an optimizer that is built outside of the scope would be the rank's own",
        test="keras_optimizers_test.py",
    ),
    Patch(
        _OPTIMIZER, "TFOptimizer.apply", _optimizers.apply,
        why="an optimizer that was made outside of the scope would update its variables without the strategy",
        test="keras_patches_test.py",
    ),
    Patch(
        _LOSS_SCALE, "LossScaleOptimizer.apply", _optimizers.apply,
        why="as TFOptimizer.apply",
        test="keras_patches_test.py",
    ),
    # ---- Errors ----
    *(
        Patch(
            _TF_TRAINER, f"TensorFlowTrainer.{name}", _errors.with_own_errors,
            why="the cause of an error would stand below the traceback of a graph",
            test="keras_patches_test.py",
        )
        for name in ("fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "predict_on_batch")
    ),
)

# Patches that `install` does not make.
OTHER_PATCHES = (
    # Made by farandole.tensorflow.DistributedOptimizer, without the strategy, and with any version of Keras 3.
    Patch(
        _LOSS_SCALE, "LossScaleOptimizer.check_finite", _keras_optimizer.check_finite,
        why="only the rank whose gradients are infinite would skip the step",
        test="keras_wrapped_test.py",
    ),
    # Made by `init` on rank 0 of several, with any version of Keras.
    Patch(
        "keras.src.callbacks.callback_list", "CallbackList.set_model", _missing_scope.set_model,
        why="a program that forgets the strategy's scope would train a model per rank, without a warning",
        test="keras_scope_test.py",
    ),
)


def check() -> None:
    """Raises ImportError if this Keras is too old, or a function that is to be replaced does not exist."""
    _private_names.check_keras()
    for patch in PATCHES:
        _private_names.find(patch.library, patch.module, patch.name)


@functools.lru_cache(maxsize=None)
def install() -> None:
    """Replaces the functions, once. Raises ImportError as `check` does, before the first function is replaced, and
    Unsupported if Keras does not run on TensorFlow."""
    import keras

    if keras.config.backend() != "tensorflow":
        raise errors.Unsupported(
            f"MirroredStrategy works with Keras on TensorFlow, not on {keras.config.backend()}: each rank would train alone. "
            "Set KERAS_BACKEND=tensorflow"
        )
    check()
    for patch in PATCHES:
        patch.apply()
