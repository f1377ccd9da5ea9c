# SPDX-License-Identifier: Apache-2.0
"""Callbacks of Keras in a job of several ranks: rank 0 writes, and all ranks stop, resume and go on together."""

from typing import Any, Callable, Dict

import keras

from ... import _lifecycle, errors, objects
from ..functions import broadcast_variables
from . import _drift, _optimizers
from ._extended import is_farandole_strategy
from ._progress import FIT_END, READ, progress
from ._variables import is_of_strategy


class _WithoutSaving:
    """A model that does not write: what ModelCheckpoint sees on all ranks but the first."""

    def __init__(self, model: Any):
        object.__setattr__(self, "_model", model)

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Does nothing."""

    save_weights = save
    export = save

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._model, name, value)


class _Together(keras.callbacks.Callback):
    """Comes last in the list of each rank.

    Where a rank alone asks to stop, all do: after the next batch, which is when they hear of it, or at the end of the
    epoch. Before training and after each epoch the ranks' models must be equal. After training nobody goes on before
    rank 0 has written its files.
    """

    def __init__(self, resumes: bool):
        super().__init__()
        self._resumes = resumes

    def on_train_begin(self, logs: Any = None) -> None:
        if self._resumes:
            _resume_like_first_rank(self.model)
        _optimizers.agree(_optimizers.of_model(self.model))
        _drift.check(self.model, "before training")

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        progress().begin_epoch(epoch + 1)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.model.stop_training = progress().any_wants_stop(self.model.stop_training)
        _drift.check(self.model, f"after epoch {epoch + 1}")

    def on_predict_end(self, logs: Any = None) -> None:
        # Nothing is read over the ranks here that would show that one of them had fewer batches.
        progress().agree(READ)

    def on_train_end(self, logs: Any = None) -> None:
        progress().agree(FIT_END)


class _TogetherInEachBatch(_Together):
    """The same where a callback may ask to stop after a batch."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self.model.stop_training:
            self.model.stop_training = False
            progress().want_stop()
        if progress().stop_was_agreed():
            self.model.stop_training = True


def _resume_like_first_rank(model: Any) -> None:
    """After BackupAndRestore has looked for a backup on rank 0: its weights and its epoch, on all ranks."""
    state: Dict[str, Any] = objects.broadcast_object({"epoch": model._initial_epoch, "built": model.optimizer.built})
    model._initial_epoch = state["epoch"]
    if state["built"] and not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)
    broadcast_variables([*model.variables, *model.optimizer.variables], root_rank=0)


def _check_scope(model: Any) -> None:
    """Raises InvalidArgument if metrics of the model are this rank's alone."""
    for metric in (inner for each in getattr(model, "metrics", ()) for inner in getattr(each, "metrics", None) or [each]):
        for variable in metric.variables:
            if not is_of_strategy(variable.value):
                raise errors.InvalidArgument(
                    f"the metric '{metric.name}' was made outside of strategy.scope(), so that each rank would have its own "
                    "values: make it in the scope, as the model, or call compile() there"
                )


def adapted(base: Callable[..., Any], self: Any, model: Any) -> None:
    """Takes the place of CallbackList.set_model."""
    if _lifecycle.size() == 1 or not is_farandole_strategy(getattr(model, "distribute_strategy", None)):
        return base(self, model)
    _check_scope(model)
    kinds = keras.callbacks
    resumes = any(isinstance(callback, kinds.BackupAndRestore) for callback in self.callbacks)
    if _lifecycle.rank() != 0:
        writers = [kinds.BackupAndRestore, kinds.CSVLogger, kinds.RemoteMonitor, kinds.TensorBoard]
        if hasattr(kinds, "OrbaxCheckpoint"):
            writers.append(kinds.OrbaxCheckpoint)
        self.callbacks = [callback for callback in self.callbacks if not isinstance(callback, tuple(writers))]
    base(self, model)
    if any(isinstance(callback, _Together) for callback in self.callbacks):
        return None
    if _lifecycle.rank() != 0:
        for callback in self.callbacks:
            if isinstance(callback, kinds.ModelCheckpoint):
                callback.set_model(_WithoutSaving(model))
    # Where callbacks do nothing after a batch, Keras runs them in another thread.
    together = (_Together if getattr(self, "_async_train", False) else _TogetherInEachBatch)(resumes)
    together.set_model(model)
    self.callbacks.append(together)
    return None
