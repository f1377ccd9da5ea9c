# SPDX-License-Identifier: Apache-2.0
"""Farandole: trains one model on many processors.

    import farandole
    import farandole.numpy as collectives

    farandole.init()
    total = collectives.allreduce([1.0, 2.0], op=farandole.Sum)

Start the program with mpirun, or without MPI as docs/quickstart.md says. `farandole.tensorflow` has the names of
Horovod's TensorFlow API. `farandole.numpy` needs no framework. The errors are in `farandole.errors`.
"""

from ._built import (
    ccl_built,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rocm_built,
    version,
)
from ._engine import Adasum, Average, BitAnd, BitOr, BitXor, Max, Min, Product, ReduceOp, Sum
from ._horovod.modules import install_as_horovod
from ._info import info
from ._lifecycle import (
    abort,
    counters,
    cross_rank,
    cross_size,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    rank,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
)
from .launch._function import run
from .process_sets import (
    ProcessSet,
    add_process_set,
    global_process_set,
    is_process_set_included,
    process_set_by_id,
    remove_process_set,
)

__version__ = version()
