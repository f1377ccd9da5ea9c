# SPDX-License-Identifier: Apache-2.0
"""Build options of this copy of Farandole, under the names of Horovod's queries."""

import contextlib
import ctypes
import sys
from importlib import metadata
from typing import Any, Dict

from . import _engine, errors

_OTHER_DISTRIBUTIONS = {"tensorflow": ("tensorflow-cpu", "tensorflow-intel", "tf-nightly")}


def _has_plugin(prefix: str) -> bool:
    return any(name.startswith(prefix) for name in _engine.describe()["plugins"])


def mpi_built() -> bool:
    """True if a plug-in for MPI is installed."""
    return _has_plugin("mpi_")


def mpi_enabled() -> bool:
    """True if the job was joined by MPI. False before `init`."""
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


def version_line(program: str) -> str:
    """The output of --version, in the form that the C++ programs use."""
    return f"{program} (Farandole) {_engine.lib.farandole_version().decode()}"


def info() -> Dict[str, Any]:
    """Facts about the build, the settings, Python, TensorFlow and, after `init`, the job. Local, non-blocking."""
    described = dict(_engine.describe())
    described["python"] = sys.version.split()[0]
    for package in ("numpy", "tensorflow", "keras"):
        described[package] = _version_of(package)
    ops = sys.modules.get("farandole.tensorflow._library")
    if ops is not None and hasattr(ops, "describe"):
        described["tensorflow_ops"] = ops.describe()
    return described


def _version_of(package: str) -> Any:
    # Prefer the imported module's version.
    module = sys.modules.get(package)
    if module is not None:
        return getattr(module, "__version__", None)
    for distribution in (package, *_OTHER_DISTRIBUTIONS.get(package, ())):
        with contextlib.suppress(metadata.PackageNotFoundError):
            return metadata.version(distribution)
    return None
