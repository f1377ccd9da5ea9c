# SPDX-License-Identifier: Apache-2.0
"""Patch of Keras' callbacks: only rank 0 writes files, and all ranks stop, resume and continue together."""

from typing import Any, Callable, Dict

import keras

from ... import _lifecycle, errors, objects
from ..functions import broadcast_variables
from . import _drift, _optimizers
from ._extended import is_farandole_strategy
from ._progress import FIT_END, READ, progress
from ._variables import is_of_strategy


class _ModelWithoutSaving:
    """Wraps the model for ModelCheckpoint on all ranks but rank 0: saving is a no-op."""

    def __init__(self, model: Any):
        object.__setattr__(self, "_model", model)

    def save(self, *args: Any, **kwargs: Any) -> None:
        """No-op."""

    save_weights = save
    export = save

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._model, name, value)


class _Synchronize(keras.callbacks.Callback):
    """The last callback in the list of each rank.

    A rank's request to stop stops all ranks: after the next batch, whose message carries the request, or at the end of
    the epoch. Before training and after each epoch the models of the ranks are compared. After training, all
    ranks wait until rank 0 has written its files.
    """

    def __init__(self, resumes: bool):
        super().__init__()
        self._resumes = resumes

    def on_train_begin(self, logs: Any = None) -> None:
        if self._resumes:
            _resume_like_first_rank(self.model)
        _optimizers.agree(_optimizers.optimizers_of(self.model))
        _drift.check(self.model, "before training")

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        progress().begin_epoch(epoch + 1)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.model.stop_training = progress().any_wants_stop(self.model.stop_training)
        _drift.check(self.model, f"after epoch {epoch + 1}")

    def on_predict_end(self, logs: Any = None) -> None:
        # predict reads no value over the ranks, so only this message detects that a rank had fewer batches.
        progress().agree(READ)

    def on_train_end(self, logs: Any = None) -> None:
        progress().agree(FIT_END)


class _SynchronizeEachBatch(_Synchronize):
    """Also handles requests to stop after a batch."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self.model.stop_training:
            self.model.stop_training = False
            progress().want_stop()
        if progress().stop_was_agreed():
            self.model.stop_training = True


def _resume_like_first_rank(model: Any) -> None:
    """Broadcasts the weights and the epoch of the backup that BackupAndRestore has found on rank 0."""
    state: Dict[str, Any] = objects.broadcast_object({"epoch": model._initial_epoch, "built": model.optimizer.built})
    model._initial_epoch = state["epoch"]
    if state["built"] and not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)
    broadcast_variables([*model.variables, *model.optimizer.variables], root_rank=0)


def _check_scope(model: Any) -> None:
    """Raises InvalidArgument if a metric of the model was made outside of the scope."""
    for metric in (inner for each in getattr(model, "metrics", ()) for inner in getattr(each, "metrics", None) or [each]):
        for variable in metric.variables:
            if not is_of_strategy(variable.value):
                raise errors.InvalidArgument(
                    f"the metric '{metric.name}' was made outside of strategy.scope(), so that each rank would have its own "
                    "values: make it in the scope, as the model, or call compile() there"
                )


def set_model(base: Callable[..., Any], self: Any, model: Any) -> None:
    """CallbackList.set_model: removes callbacks that write files
    from all ranks but rank 0, and adds the last callback."""
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
    if any(isinstance(callback, _Synchronize) for callback in self.callbacks):
        return None
    if _lifecycle.rank() != 0:
        for callback in self.callbacks:
            if isinstance(callback, kinds.ModelCheckpoint):
                callback.set_model(_ModelWithoutSaving(model))
    # If no callback acts after a batch, Keras runs callbacks in a thread of its own (_async_train). _Synchronize does
    # not act after a batch, and so leaves the thread in use.
    synchronize = (_Synchronize if getattr(self, "_async_train", False) else _SynchronizeEachBatch)(resumes)
    synchronize.set_model(model)
    self.callbacks.append(synchronize)
    return None
