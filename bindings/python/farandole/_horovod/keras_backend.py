# SPDX-License-Identifier: Apache-2.0
"""Horovod's module `horovod._keras`, the common part of its two modules for Keras, for packages that import the module.

Horovod passes the Keras module or its backend as `keras` or `backend`. These arguments have no effect here, because all
functions use tf.keras.
"""

from typing import Any, Callable, Optional

from ..process_sets import ProcessSet, global_process_set
from ..tensorflow.keras import _impl


def create_distributed_optimizer(
    keras: Any,
    optimizer: Any,
    name: Optional[str],
    device_dense: str,
    device_sparse: str,
    compression: Any,
    sparse_as_dense: bool,
    gradient_predivide_factor: float,
    op: int,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """The same as `farandole.tensorflow.keras.DistributedOptimizer`."""
    arguments = dict(locals())
    del arguments["keras"]
    return _impl.distributed_optimizer(**arguments)


def broadcast_global_variables(backend: Any, root_rank: int) -> Any:
    """`farandole.tensorflow.keras.broadcast_global_variables`."""
    del backend
    return _impl.broadcast_global_variables(root_rank)


def allreduce(
    backend: Any,
    value: Any,
    name: Optional[str],
    average: Optional[bool],
    prescale_factor: float,
    postscale_factor: float,
    op: Optional[int],
    compression: Any,
) -> Any:
    """`farandole.tensorflow.keras.allreduce`."""
    del backend
    return _impl.allreduce(value, name, average, prescale_factor, postscale_factor, op, compression)


def allgather(backend: Any, value: Any, name: Optional[str]) -> Any:
    """`farandole.tensorflow.keras.allgather`."""
    del backend
    return _impl.allgather(value, name)


def broadcast(backend: Any, value: Any, root_rank: int, name: Optional[str]) -> Any:
    """`farandole.tensorflow.keras.broadcast`."""
    del backend
    return _impl.broadcast(value, root_rank, name)


def reducescatter(backend: Any, value: Any, name: Optional[str], op: int) -> Any:
    """`farandole.tensorflow.keras.reducescatter`."""
    del backend
    return _impl.reducescatter(value, name, op)


def load_model(
    keras: Any,
    wrap_optimizer: Callable[[Any], Any],
    filepath: Any,
    custom_optimizers: Any,
    custom_objects: Any,
    legacy_opts: bool = False,
) -> Any:
    """Loads a model and replaces its optimizer by `wrap_optimizer(class)(**config)`, with the saved state. `class` and
    `config` are the saved optimizer's."""
    del keras, legacy_opts

    def wrap(optimizer: Any) -> Any:
        return wrap_optimizer(type(optimizer))(**optimizer.get_config())

    return _impl.load_model(filepath, custom_optimizers, custom_objects, wrap)
