# SPDX-License-Identifier: Apache-2.0
"""Horovod's API for tf.keras: Keras 3, or tf-keras with TF_USE_LEGACY_KERAS=1.

    import farandole.tensorflow.keras as hvd

    hvd.init()
    model.compile(hvd.DistributedOptimizer(optimizer), …)
    model.fit(…, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])

Names, arguments and defaults are Horovod's; docs/keras.md says what differs.
"""

from typing import Any, Optional

from .. import (
    Adasum,
    Average,
    ProcessSet,
    Sum,
    add_process_set,
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    global_process_set,
    gloo_built,
    gloo_enabled,
    info,
    init,
    is_initialized,
    local_rank,
    local_size,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rank,
    remove_process_set,
    rocm_built,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
)
from ..compression import Compression
from . import _impl, callbacks, elastic
from ._impl import allgather, broadcast, broadcast_global_variables, reducescatter


def DistributedOptimizer(  # pylint: disable=invalid-name
    optimizer: Any,
    name: Optional[str] = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Returns a Keras optimizer like `optimizer` that reduces gradients over the ranks before it clips and applies
    them.

    Arguments are those of `farandole.tensorflow.DistributedOptimizer`. Models that are saved with the optimizer load in
    processes without Farandole.
    """
    return _impl.distributed_optimizer(**locals())


def PartialDistributedOptimizer(  # pylint: disable=invalid-name
    optimizer: Any,
    name: Optional[str] = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """`DistributedOptimizer` that does not reduce the gradients of `local_layers`, a layer or several.

    scale_local_gradients: divides these gradients by the number of ranks.
    """
    arguments = dict(locals())
    del arguments["local_layers"]
    made = _impl.distributed_optimizer(**arguments)
    _impl.register_layers(made, local_layers)
    return made


def allreduce(
    value: Any,
    name: Optional[str] = None,
    average: Optional[bool] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: Optional[int] = None,
    compression: Any = Compression.none,
) -> Any:
    """Reduces a number, array or tensor of the same shape on all ranks. Every rank gets the result as an array.

    average: True means op=Average, False means op=Sum. Not together with `op`.

    Collective, blocks. Raises the errors of `farandole.tensorflow.allreduce`.
    """
    return _impl.allreduce(**locals())


def load_model(
    filepath: Any,
    custom_optimizers: Any = None,
    custom_objects: Any = None,
    compression: Any = Compression.none,
    legacy_opts: bool = False,
) -> Any:
    """Loads a model and makes its optimizer a DistributedOptimizer, with the saved state.

    custom_optimizers: optimizer classes that are not Keras' own.
    custom_objects: as for Keras' own load_model.
    legacy_opts: accepted for compatibility with Horovod, without effect: the file says which class the optimizer has.
    """
    del legacy_opts

    def wrap(optimizer: Any) -> Any:
        return DistributedOptimizer(optimizer, compression=compression)

    return _impl.load_model(filepath, custom_optimizers, custom_objects, wrap)
