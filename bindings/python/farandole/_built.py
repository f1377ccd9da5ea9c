# SPDX-License-Identifier: Apache-2.0
"""Queries of the features of this copy of Farandole, under Horovod's names."""

import ctypes
import os
from typing import Dict, Optional

from . import _engine, errors


def _device_settings() -> Optional[Dict[str, str]]:
    """The settings, if the plug-in for CUDA is installed and not switched off; otherwise None."""
    try:
        facts = _engine.describe()
    except errors.InvalidArgument:  # invalid settings, which `init` reports
        return None
    settings = facts["settings"]
    return settings if "cuda" in facts["device_plugins"] and settings["FARANDOLE_CUDA"] != "off" else None


def _loaded(path: str) -> Optional[ctypes.CDLL]:
    """Loads a library as the plug-in for CUDA does, which prefers a copy that the process has already loaded. None if
    the loader finds no library."""
    for mode in (os.RTLD_NOLOAD, 0):
        try:
            return ctypes.CDLL(path, mode=mode | os.RTLD_NOW | os.RTLD_LOCAL)
        except OSError:
            pass
    return None


def has_cuda_driver() -> bool:
    """True if the plug-in for CUDA is installed, not switched off, and finds a driver. Initialises no device."""
    settings = _device_settings()
    return settings is not None and _loaded(settings["FARANDOLE_CUDA_LIBRARY"] or "libcuda.so.1") is not None


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
    """Version of the NCCL that Farandole uses, such as 22809; 0 if there is none, or no plug-in for CUDA."""
    settings = _device_settings()
    library = settings and _loaded(settings["FARANDOLE_NCCL_LIBRARY"] or "libnccl.so.2")
    version = ctypes.c_int()
    return version.value if library and library.ncclGetVersion(ctypes.byref(version)) == 0 else 0


def ddl_built() -> bool:
    """False."""
    return False


def ccl_built() -> bool:
    """False."""
    return False


def cuda_built() -> bool:
    """True if the plug-in for CUDA is installed, and FARANDOLE_CUDA is not `off`."""
    return _device_settings() is not None


def rocm_built() -> bool:
    """False."""
    return False


def version() -> str:
    """Version of Farandole's library, such as "0.1.0"."""
    return _engine.lib.farandole_version().decode()


def version_line(program: str) -> str:
    """The output of --version, in the form that the C++ programs use."""
    return f"{program} (Farandole) {version()}"
