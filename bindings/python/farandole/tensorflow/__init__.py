# SPDX-License-Identifier: Apache-2.0
"""Horovod's TensorFlow API on Farandole's engine.

    import farandole.tensorflow as hvd

    hvd.init()
    tape = hvd.DistributedGradientTape(tape)

Names, arguments and defaults are Horovod's; docs/coming-from-horovod.md says what differs.
"""

from typing import Any

from . import _checked_version  # noqa: F401  isort: split

from .. import (
    Adasum,
    Average,
    Max,
    Min,
    Product,
    ProcessSet,
    Sum,
    abort,
    add_process_set,
    ccl_built,
    counters,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    errors,
    global_process_set,
    gloo_built,
    gloo_enabled,
    info,
    is_homogeneous,
    is_initialized,
    is_process_set_included,
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
from .. import init as _init
from .._engine import choose_op as _choose_op
from .._horovod.common_util import check_extension, gpu_available, split_list
from .._horovod.common_util import num_rank_is_power_2 as check_num_rank_power_of_2
from ..errors import HorovodInternalError
from ._reductions import allreduce, grouped_allreduce, grouped_reducescatter, reducescatter
from .compression import Compression
from .functions import (
    BroadcastGlobalVariablesHook,
    allgather_object,
    broadcast_global_variables,
    broadcast_object,
    broadcast_object_fn,
    broadcast_variables,
)
from .mpi_ops import (
    allgather,
    alltoall,
    barrier,
    broadcast,
    broadcast_,
    grouped_allgather,
    join,
    local_rank_op,
    local_size_op,
    process_set_included_op,
    rank_op,
    size_op,
)
from .optimizer import DistributedOptimizer
from .tape import DistributedGradientTape, PartialDistributedGradientTape
from .util import _cache, _executing_eagerly, _make_subgraph, refs_to_vars, vars_to_refs
from . import _interrupt, _library, elastic
from ._errors import converted_errors

# TensorFlow's allocator can only be replaced before TensorFlow makes its first tensor.
_library.register_allocator()


def init(comm: Any = None, process_sets: Any = None, expected_size: int = 0) -> None:
    """`farandole.init`. From then on, Ctrl-C ends collectives of TensorFlow that wait for other ranks.

    Collective: all ranks call `init`. Blocks until all have.
    """
    _init(comm, process_sets, expected_size)
    _interrupt.install(_library.pending, abort)


if is_initialized():
    _interrupt.install(_library.pending, abort)


def handle_average_backwards_compatibility(op: Any, average: Any) -> int:
    """Resolves `op` and the older argument `average` to an operation. Raises InvalidArgument if both are given."""
    return _choose_op(average, op)


def __getattr__(name: str) -> Any:
    # Imports Keras at the first use of a name that needs Keras, not with this module.
    if name == "SyncBatchNormalization":
        from .sync_batch_norm import SyncBatchNormalization

        return SyncBatchNormalization
    if name == "MirroredStrategy":
        from .strategy import MirroredStrategy

        return MirroredStrategy
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
