"""Horovod's TensorFlow API on Farandole's engine.

    import farandole.tensorflow as hvd

    hvd.init()
    tape = hvd.DistributedGradientTape(tape)

Names, arguments and defaults are Horovod's; docs/coming-from-horovod.md says what differs.
"""

from typing import Any

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
from . import _interrupt, _library, elastic
from ._errors import converted_errors

# Before TensorFlow makes its first tensor, or never.
_library.register_allocator()


def init(comm: Any = None, process_sets: Any = None, expected_size: int = 0) -> None:
    """`farandole.init`; Ctrl-C ends collectives of TensorFlow from then on."""
    _init(comm, process_sets, expected_size)
    _interrupt.install(_library.pending, abort)


if is_initialized():
    _interrupt.install(_library.pending, abort)


def handle_average_backwards_compatibility(op: Any, average: Any) -> int:
    """The operation that is meant by `op` and the older `average`."""
    return _choose_op(average, op)


def check_num_rank_power_of_2(num_rank: int) -> bool:
    """Whether a number of ranks is a power of two."""
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def gpu_available() -> bool:
    """Whether TensorFlow sees a GPU."""
    import tensorflow as tf

    return bool(tf.config.list_physical_devices("GPU"))


def __getattr__(name: str) -> Any:
    # Keras is imported with the first use of it, not with this module.
    if name == "SyncBatchNormalization":
        from .sync_batch_norm import SyncBatchNormalization

        return SyncBatchNormalization
    if name == "MirroredStrategy":
        from .strategy import MirroredStrategy

        return MirroredStrategy
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
