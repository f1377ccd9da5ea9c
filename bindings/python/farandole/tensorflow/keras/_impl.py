# SPDX-License-Identifier: Apache-2.0
"""Implementation that farandole.keras and farandole.tensorflow.keras share.

Keras is tf.keras: Keras 3, or tf-keras with TF_USE_LEGACY_KERAS=1.
"""

import functools
from typing import Any, Callable, Dict, List, Optional

import numpy as np
import tensorflow as tf

from ... import _lifecycle, errors
from ..._engine import Average
from ..._replacing import replace
from .. import _logs, functions, mpi_ops
from .. import allreduce as tensor_allreduce
from .. import reducescatter as tensor_reducescatter
from .._gradients import variable_of
from ..optimizer import DistributedOptimizer

IS_LEGACY = not hasattr(tf.keras, "ops")


@functools.lru_cache(maxsize=None)  # runs once
def accept_obsolete_arguments() -> None:
    """Lets compile() of Keras 3 ignore experimental_run_tf_function, as TensorFlow has done since version 2.3.
    Horovod's examples, and programs that were made from them, pass this argument."""
    if IS_LEGACY:
        return
    # Replace the function in the class that defines it: Keras compares a model's compile with this class's.
    owner = next(each for each in tf.keras.Model.__mro__ if "compile" in vars(each))
    replace(owner, "compile", _compile)


def _compile(base: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
    kwargs.pop("experimental_run_tf_function", None)
    return base(self, *args, **kwargs)


def distributed_optimizer(optimizer: Any, **arguments: Any) -> Any:
    """farandole.tensorflow.DistributedOptimizer, for optimizers of Keras only."""
    if isinstance(optimizer, tf.compat.v1.train.Optimizer):
        raise errors.InvalidArgument("this takes optimizers of Keras; use farandole.tensorflow.DistributedOptimizer")
    return DistributedOptimizer(optimizer, **arguments)


def register_layers(optimizer: Any, local_layers: Any) -> None:
    """Marks the variables of a layer, or of several, as local: their gradients are not reduced."""
    layers = [] if local_layers is None else local_layers
    for layer in [layers] if isinstance(layers, tf.keras.layers.Layer) else layers:
        if not isinstance(layer, tf.keras.layers.Layer):
            raise errors.InvalidArgument(f"local_layers must be layers of Keras, not {type(layer).__name__}")
        if not layer.built:
            raise errors.InvalidArgument(f"layer {layer.name} has no weights yet: build the model before")
        for variable in layer.trainable_weights:
            optimizer.register_local_var(variable)


def _evaluated(value: Any) -> Any:
    """The value as an array if possible. In a graph of TensorFlow 1, runs Keras' session."""
    if tf.executing_eagerly():
        return value.numpy() if hasattr(value, "numpy") else value
    return _session().run(value)


def done(operation: Any) -> None:
    """Runs an op of a graph of TensorFlow 1. A no-op for None, which eager calls return."""
    if operation is not None:
        _session().run(operation)


def number_in(variable: Any) -> float:
    """The number in a variable of an optimizer, which may be a plain number before the variables exist."""
    if IS_LEGACY:  # works in a graph of TensorFlow 1, too
        return float(tf.keras.backend.get_value(variable))
    return float(np.asarray(variable_of(variable)))


def set_number(variable: Any, number: float) -> None:
    """Sets a variable of an optimizer of tf-keras, also in a graph of TensorFlow 1."""
    tf.keras.backend.set_value(variable, number)


def _session() -> Any:
    backend = getattr(getattr(tf.compat.v1, "keras", tf.keras), "backend", None)
    if not hasattr(backend, "get_session"):
        raise errors.Unsupported(
            "Keras 3 has no session for graphs of TensorFlow 1; set TF_USE_LEGACY_KERAS=1 and install tf-keras, or run eagerly"
        )
    return backend.get_session()


def allreduce(
    value: Any,
    name: Optional[str],
    average: Optional[bool],
    prescale_factor: float,
    postscale_factor: float,
    op: Optional[int],
    compression: Any,
) -> Any:
    options = dict(locals())
    return _evaluated(tensor_allreduce(tf.convert_to_tensor(options.pop("value")), **options))


def allgather(value: Any, name: Optional[str] = None) -> Any:
    """Concatenates the values of all ranks along the first dimension,
    which may differ. Returns an array. Collective, blocks."""
    return _evaluated(mpi_ops.allgather(tf.convert_to_tensor(value), name=name))


def broadcast(value: Any, root_rank: int, name: Optional[str] = None) -> Any:
    """The value of rank `root_rank` as an array. All ranks pass
    a value of the same type and shape. Collective, blocks."""
    return _evaluated(mpi_ops.broadcast(tf.convert_to_tensor(value), root_rank, name=name))


def reducescatter(value: Any, name: Optional[str] = None, op: int = Average) -> Any:
    """Reduces a value over the ranks and returns this rank's rows of the result, as an array. Collective, blocks."""
    return _evaluated(tensor_reducescatter(tf.convert_to_tensor(value), op=op, name=name))


def broadcast_global_variables(root_rank: int) -> Any:
    """In a graph of TensorFlow 1: overwrites all global variables with their values on rank `root_rank`. Raises
    Unsupported in eager mode: use `BroadcastGlobalVariablesCallback`."""
    return _session().run(functions.broadcast_global_variables(root_rank))


def is_random_state(variable: Any) -> bool:
    """True for the state of a random generator of Keras 3, which must differ between ranks."""
    return getattr(variable, "name", "").rpartition("/")[2] == "seed_generator_state"


def optimizer_variables(optimizer: Any) -> List[Any]:
    variables = optimizer.variables
    return list(variables() if callable(variables) else variables)


def load_model(
    filepath: Any,
    custom_optimizers: Any,
    custom_objects: Optional[Dict[str, Any]],
    wrap: Callable[[Any], Any],
) -> Any:
    """Loads a compiled model and replaces its optimizer by `wrap(optimizer)`, with the saved state."""
    objects = {kind.__name__: kind for kind in custom_optimizers or []}
    objects.update(custom_objects or {})
    model = tf.keras.models.load_model(filepath, custom_objects=objects)
    saved = getattr(model, "optimizer", None)
    if saved is None or getattr(type(saved), "_farandole_reduces", False):
        return model
    made = wrap(saved)
    if hasattr(made, "build"):
        made.build(model.trainable_variables)
    elif hasattr(made, "_create_all_weights"):  # an older optimizer of tf-keras
        made._create_all_weights(model.trainable_variables)
    state, places = optimizer_variables(saved), optimizer_variables(made)
    if state:  # empty for a model that was never trained
        if len(state) != len(places):
            raise errors.DataError(
                f"{filepath} has {len(state)} variables of {type(saved).__name__}, which needs {len(places)}: it was "
                "saved by another version of Keras; load it with compile=False and compile it anew"
            )
        for place, value in zip(places, state):
            variable_of(place).assign(variable_of(value))
    model.optimizer = made
    return model


def average_logs(logs: Optional[Dict[str, Any]]) -> None:
    """Replaces the numbers in a dictionary by their averages over the ranks. Collective."""
    numbers = {name: float(value) for name, value in (logs or {}).items() if np.ndim(value) == 0}
    if _lifecycle.size() == 1:
        return
    everyone = _logs.gathered(numbers, "metric_average")
    for name in numbers:
        logs[name] = float(_logs.average([each[name] for each in everyone], [1] * len(everyone)))


def without_jit(model: Any) -> None:
    """Turns off compilation by XLA, which has no kernel for reductions between processes."""
    if not IS_LEGACY and getattr(model, "jit_compile", False) and _lifecycle.size() > 1:
        model.jit_compile = False


