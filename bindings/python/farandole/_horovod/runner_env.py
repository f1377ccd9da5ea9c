# SPDX-License-Identifier: Apache-2.0
"""Horovod's module `horovod.runner.common.util.env`."""

import os
import re
from typing import Tuple

LOG_LEVEL_STR = ["FATAL", "ERROR", "WARNING", "INFO", "DEBUG", "TRACE"]
IGNORE_REGEXES = {"BASH_FUNC_.*", "OLDPWD", ".*CUDA_VISIBLE_DEVICES", "_HOROVOD_SECRET_KEY"}
KUBEFLOW_MPI_EXEC = "/etc/mpi/kubexec.sh"


def is_exportable(v: str) -> bool:
    """True if an environment variable of this name may be sent to other hosts."""
    return not any(re.match(pattern, v) for pattern in IGNORE_REGEXES)


def get_env_rank_and_size() -> Tuple[int, int]:
    """Rank and size from the launcher's variables, before `init`; 0 and 1
    without a launcher. Raises RuntimeError if only one of them is set."""
    for rank_name, size_name in (
        ("HOROVOD_RANK", "HOROVOD_SIZE"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("PMI_RANK", "PMI_SIZE"),
        ("FARANDOLE_RANK", "FARANDOLE_SIZE"),
    ):
        rank, size = os.environ.get(rank_name), os.environ.get(size_name)
        if (rank is None) != (size is None):
            raise RuntimeError(f"only one of {rank_name} and {size_name} is set: set both or none")
        if rank is not None and size is not None:
            return int(rank), int(size)
    return 0, 1


def is_kubeflow_mpi() -> bool:
    """True if Kubeflow's MPI operator has started this process."""
    return os.environ.get("OMPI_MCA_plm_rsh_agent") == KUBEFLOW_MPI_EXEC
