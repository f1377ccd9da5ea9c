# SPDX-License-Identifier: Apache-2.0
"""Horovod's callbacks for Keras."""

from typing import Any, Callable, Optional, Union

import tensorflow as tf

from ... import _lifecycle, errors
from .._gradients import key_of, variable_of
from .._reductions import on_device
from ..functions import broadcast_variables
from . import _impl

__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]


class BroadcastGlobalVariablesCallback(tf.keras.callbacks.Callback):
    """Broadcasts the variables of the model and of its optimizer from rank `root_rank` after the first batch, when all
    variables exist.

    So a program that starts from a checkpoint needs to load the checkpoint on that rank only. The states of Keras 3's
    random generators are not broadcast, so dropout differs between ranks.

    device: for the op; "" lets TensorFlow choose.
    local_variables: a variable, or several, that are not broadcast.
    """

    def __init__(self, root_rank: int, device: str = "", local_variables: Any = None):
        super().__init__()
        self.root_rank = root_rank
        self.device = device
        self.broadcast_done = False
        self._local: set = set()
        if local_variables is None:
            local_variables = []
        elif isinstance(local_variables, tf.Variable) or hasattr(local_variables, "value"):
            local_variables = [local_variables]
        for variable in local_variables:
            self.register_local_var(variable)

    def register_local_var(self, var: Any) -> None:
        """Excludes a variable from the broadcast."""
        if not isinstance(variable_of(var), tf.Variable):
            raise errors.InvalidArgument(f"local variables must be variables, not {type(var).__name__}")
        self._local.add(key_of(var))

    def set_model(self, model: Any) -> None:
        super().set_model(model)
        _impl.without_jit(model)

    def on_batch_end(self, batch: int, logs: Any = None) -> None:
        if self.broadcast_done:
            return
        variables = [*self.model.variables, *_impl.optimizer_variables(self.model.optimizer)]
        variables = [each for each in variables if key_of(each) not in self._local and not _impl.is_random_state(each)]
        with on_device(self.device):
            _impl.done(broadcast_variables(variables, root_rank=self.root_rank))
        self.broadcast_done = True


class MetricAverageCallback(tf.keras.callbacks.Callback):
    """Replaces the logs at the end of each epoch by their averages over the ranks, without weights.

    Put this callback before callbacks that use logs, such as ReduceLROnPlateau and ModelCheckpoint. Collective.
    """

    def __init__(self, device: str = ""):
        super().__init__()
        self.device = device

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        with on_device(self.device):
            _impl.average_logs(logs)


class LearningRateScheduleCallback(tf.keras.callbacks.Callback):
    """Sets the learning rate to `initial_lr` times `multiplier`, from epoch `start_epoch` until before `end_epoch`
    (None: to the end).

    multiplier: a function of the epoch, or a number that is raised to the power of (epoch - start_epoch).
    staircase: True sets the rate at the start of each epoch, False before each batch, with a fraction of an epoch.
    momentum_correction: scales accumulated momentum together with the rate.
    steps_per_epoch: needed for staircase=False if Keras does not know the number of batches.
    """

    def __init__(
        self,
        initial_lr: float,
        multiplier: Union[float, Callable[[float], float]],
        start_epoch: int = 0,
        end_epoch: Optional[int] = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: Optional[int] = None,
    ):
        super().__init__()
        if initial_lr is None:
            raise errors.InvalidArgument("initial_lr is needed: the learning rate that multiplier multiplies")
        self.initial_lr = initial_lr
        self.multiplier = multiplier if callable(multiplier) else lambda epoch: multiplier ** (epoch - start_epoch)
        self.start_epoch = start_epoch
        self.end_epoch = end_epoch
        self.staircase = staircase
        self.momentum_correction = momentum_correction
        self.steps_per_epoch = steps_per_epoch
        self.current_epoch = 0
        self._momentum: Optional[float] = None  # value to restore after the batch

    def on_train_begin(self, logs: Any = None) -> None:
        if not self.staircase and not self.steps_per_epoch:
            self.steps_per_epoch = self._known_steps()

    def _known_steps(self) -> int:
        params = self.params or {}
        if params.get("steps"):
            return params["steps"]
        if params.get("samples") and params.get("batch_size"):
            return params["samples"] // params["batch_size"]
        raise errors.InvalidArgument(
            f"Keras does not know the number of batches of an epoch; pass steps_per_epoch to {type(self).__name__}"
        )

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.current_epoch = epoch

    def on_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self.current_epoch < self.start_epoch:
            return
        if self.end_epoch is not None and self.current_epoch >= self.end_epoch:
            return
        if not self.staircase:
            self._set_rate(self.current_epoch + batch / self.steps_per_epoch)
        elif batch == 0:
            self._set_rate(self.current_epoch)

    def on_batch_end(self, batch: int, logs: Any = None) -> None:
        if self._momentum is not None:
            _impl.set_number(self.model.optimizer.momentum, self._momentum)
            self._momentum = None

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if logs is not None:
            logs["lr"] = self._rate()

    def _rate(self) -> float:
        return _impl.number_in(self.model.optimizer.learning_rate)

    def _set_rate(self, epoch: float) -> None:
        optimizer = self.model.optimizer
        old, new = self._rate(), self.initial_lr * self.multiplier(epoch)
        optimizer.learning_rate = new
        if self.momentum_correction and old != 0 and new != old:
            self._correct_momentum(optimizer, new / old)

    def _correct_momentum(self, optimizer: Any, ratio: float) -> None:
        """Scales the momentum term of the next step by `ratio`: scales the velocities or, if the momentum is a
        variable, the momentum for one step."""
        optimizer = getattr(optimizer, "inner_optimizer", optimizer)
        momentum = getattr(optimizer, "momentum", None)
        if momentum is None or (isinstance(momentum, (int, float)) and momentum == 0):
            return
        if isinstance(momentum, (int, float)):
            for velocity in getattr(optimizer, "momentums", None) or []:
                if velocity is not None:
                    velocity.assign(velocity * ratio)
            return
        self._momentum = _impl.number_in(momentum)
        _impl.set_number(momentum, self._momentum * ratio)


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Raises the learning rate linearly, with each batch of the first `warmup_epochs`, from `initial_lr` / number of
    ranks to `initial_lr`, as described in "Accurate, Large Minibatch SGD" (Goyal et al., 2017).

    verbose: with 1, rank 0 prints a line at the end of the warm-up.
    """

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: int = 5,
        momentum_correction: bool = True,
        steps_per_epoch: Optional[int] = None,
        verbose: int = 0,
    ):
        def multiplier(epoch: float) -> float:
            # One batch ahead, so that the rate reaches round numbers at the last batch of an epoch.
            epoch += 1 / self.steps_per_epoch
            size = _lifecycle.size()
            return (epoch * (size - 1) / warmup_epochs + 1) / size

        super().__init__(initial_lr, multiplier, 0, warmup_epochs, False, momentum_correction, steps_per_epoch)
        self.verbose = verbose

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_end(epoch, logs)
        if epoch == self.end_epoch - 1 and self.verbose > 0 and _lifecycle.rank() == 0:
            print(f"\nEpoch {epoch + 1}: the learning rate has been warmed up to {self._rate():g}")


class BestModelCheckpoint(tf.keras.callbacks.ModelCheckpoint):
    """A ModelCheckpoint that keeps the best model. The program sets
    `filepath` before training, and passes the callback on rank 0 only."""

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: Any = "epoch",
    ):
        # Keras needs a file name at construction.
        ending = ".weights.h5" if save_weights_only else ".keras"
        super().__init__(
            filepath=f"unset{ending}",
            monitor=monitor,
            verbose=verbose,
            save_best_only=True,
            save_weights_only=save_weights_only,
            mode=mode,
            save_freq=save_freq,
        )
        self.filepath = None

    def on_train_begin(self, logs: Any = None) -> None:
        if self.filepath is None:
            raise errors.InvalidArgument("the callback has no filepath: set callback.filepath = 'best.keras' first")
        super().on_train_begin(logs)


