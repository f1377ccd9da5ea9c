# SPDX-License-Identifier: Apache-2.0
"""Horovod's elastic API for TensorFlow. The ranks of a job do not change, see `farandole.elastic`."""

from typing import Any, Callable, List, Optional, Sequence

import tensorflow as tf

from .. import errors
from .. import elastic
from ..elastic import ObjectState
from ._errors import converted_errors
from ._gradients import variable_of
from .functions import broadcast_object, broadcast_variables

__all__ = ["TensorFlowKerasState", "TensorFlowState", "run"]


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """`farandole.elastic.run` that converts errors of the ops to classes of `farandole.errors`."""
    return elastic.run(converted_errors()(func))


class _VariablesState(ObjectState):
    """Saves, restores and broadcasts variables together with plain objects."""

    def __init__(self, **kwargs: Any):
        if not tf.executing_eagerly():
            raise errors.Unsupported("elastic states need eager mode; sessions of TensorFlow 1 have none here")
        self._values: List[Any] = []
        super().__init__(bcast_object=broadcast_object, **kwargs)
        self._save_variables()

    def _variables(self) -> List[Any]:
        raise NotImplementedError

    def _save_variables(self) -> None:
        # Copies, because the memory of an eager variable may be written in place.
        self._values = [variable.numpy().copy() for variable in self._variables()]

    def save(self) -> None:
        self._save_variables()
        super().save()

    def restore(self) -> None:
        for variable, value in zip(self._variables(), self._values):
            variable.assign(value)
        super().restore()

    def sync(self) -> None:
        broadcast_variables(self._variables(), root_rank=0)
        self._save_variables()
        super().sync()


class TensorFlowState(_VariablesState):
    """State of a list of variables and, as keyword arguments, of plain objects."""

    def __init__(self, variables: Optional[Sequence[Any]] = None, session: Any = None, **kwargs: Any):
        if variables is None or session is not None:
            raise errors.Unsupported(
                "pass the list of variables; sessions and their global variables are not supported"
            )
        self.variables = [variable_of(variable) for variable in variables]
        super().__init__(**kwargs)

    def _variables(self) -> List[Any]:
        return self.variables


class TensorFlowKerasState(_VariablesState):
    """State of a Keras model, its optimizer and, as keyword arguments, plain objects."""

    def __init__(self, model: Any, optimizer: Any = None, backend: Any = None, **kwargs: Any):
        if not getattr(model, "built", True):
            raise errors.InvalidArgument("the model has no variables yet; call model.build(input_shape) first")
        if backend is not None and not tf.executing_eagerly():
            raise errors.Unsupported("sessions of TensorFlow 1 are not supported; leave backend out")
        self.model = model
        self.optimizer = optimizer if optimizer is not None else model.optimizer
        super().__init__(**kwargs)

    def _variables(self) -> List[Any]:
        of_optimizer = self.optimizer.variables
        if callable(of_optimizer):
            of_optimizer = of_optimizer()
        return [variable_of(variable) for variable in [*self.model.variables, *of_optimizer]]
