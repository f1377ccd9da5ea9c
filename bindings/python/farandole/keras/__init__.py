# SPDX-License-Identifier: Apache-2.0
"""Horovod's API for Keras: Keras 3, or tf-keras with TF_USE_LEGACY_KERAS=1.

    import farandole.keras as hvd

    hvd.init()
    model.compile(hvd.DistributedOptimizer(optimizer), …)
    model.fit(…, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])

Names, arguments and defaults are Horovod's; docs/keras.md says what differs.
"""

from typing import Any, Optional

from ..tensorflow import (
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
from ..tensorflow.compression import Compression
from ..tensorflow.keras import (
    PartialDistributedOptimizer,
    _impl,
    allgather,
    broadcast,
    broadcast_global_variables,
    load_model,
    reducescatter,
)
from . import callbacks, elastic


def DistributedOptimizer(  # pylint: disable=invalid-name
    optimizer: Any,
    name: Optional[str] = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    num_groups: int = 0,
    groups: Any = None,
) -> Any:
    """An optimizer like `optimizer`, of Keras, that reduces gradients over the ranks before it clips and applies them.

    The arguments are those of `farandole.tensorflow.DistributedOptimizer`. Models that are saved with it load where
    there is no Farandole.
    """
    return _impl.distributed_optimizer(
        optimizer,
        name=name,
        device_dense=device_dense,
        device_sparse=device_sparse,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        gradient_predivide_factor=gradient_predivide_factor,
        op=op,
        num_groups=num_groups,
        groups=groups,
    )


def allreduce(
    value: Any,
    name: Optional[str] = None,
    average: Optional[bool] = True,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: Optional[int] = None,
    compression: Any = Compression.none,
) -> Any:
    """Reduces a value (a number, array or tensor of the same shape on all ranks) over the ranks, into an array.

    average: True means op=Average, False op=Sum; op goes before it.
    """
    average = average if op is None else None
    return _impl.allreduce(value, name, average, prescale_factor, postscale_factor, op, compression)
