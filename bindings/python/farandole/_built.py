# SPDX-License-Identifier: Apache-2.0
"""Build options of this copy of Farandole, under the names of Horovod's queries."""

import ctypes

from . import _engine, errors


def _has_plugin(prefix: str) -> bool:
    return any(name.startswith(prefix) for name in _engine.describe()["plugins"])


def mpi_built() -> bool:
    """True if a plug-in for MPI is installed."""
    return _has_plugin("mpi_")


def mpi_enabled() -> bool:
    """True if this process joined the job through MPI. False before `init`."""
    return _engine.describe().get("backend", "none").startswith("mpi_")


def mpi_threads_supported() -> bool:
    """True if the job's MPI allows concurrent calls of several threads (MPI_THREAD_MULTIPLE).

    Raises InvalidArgument before `init` and without MPI.
    """
    _engine.need_initialized()
    if not mpi_enabled():
        raise errors.InvalidArgument("this job was not joined by MPI")
    level = ctypes.c_int()
    # The plug-in has loaded MPI with global symbols. 3 is MPI_THREAD_MULTIPLE in Open MPI and in MPICH.
    return ctypes.CDLL(None).MPI_Query_thread(ctypes.byref(level)) == 0 and level.value == 3


def gloo_enabled() -> bool:
    """False: Farandole uses its own transports instead of Gloo."""
    return False


def gloo_built() -> bool:
    """False."""
    return False


def nccl_built() -> int:
    """0: this version has no GPU support in TensorFlow."""
    return 0


def ddl_built() -> bool:
    """False."""
    return False


def ccl_built() -> bool:
    """False."""
    return False


def cuda_built() -> bool:
    """False in this version: the engine lists plug-ins for MPI only."""
    return _has_plugin("cuda")


def rocm_built() -> bool:
    """False."""
    return False


def version() -> str:
    """Version of Farandole's library, such as "0.1.0"."""
    return _engine.lib.farandole_version().decode()


def version_line(program: str) -> str:
    """The output of --version, in the form that the C++ programs use."""
    return f"{program} (Farandole) {version()}"
