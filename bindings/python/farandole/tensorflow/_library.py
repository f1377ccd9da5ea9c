# SPDX-License-Identifier: Apache-2.0
"""The op library of this process: finds it, builds it if none fits, and loads it."""

import ctypes
import os
from pathlib import Path
from typing import Any, Dict, Optional

from .. import _built, _engine, _files
from . import _op_library

_ops: Any = None
_path: Optional[Path] = None
_exports: Optional[ctypes.CDLL] = None
_has_gpu_kernels = False
_allocator_is_registered: Optional[bool] = None


def _find() -> Path:
    recipe = _op_library.Recipe(_files.header_dir(), _engine.library_for_linking())
    for packaged in _files.candidates("tensorflow", "lib", recipe.file_name()):
        if recipe.fits(packaged):
            return packaged
    return _op_library.from_cache(recipe)


def load() -> Any:
    """The module of ops, as `tf.load_op_library` returns it. Builds the library if none fits; that takes 5 to 10
    seconds.

    Raises ImportError, with a command that helps.
    """
    global _ops, _path, _exports, _has_gpu_kernels
    if _ops is None:
        import tensorflow as tf

        path = _find()
        try:
            ops = tf.load_op_library(str(path))
        except tf.errors.NotFoundError as error:
            raise ImportError(f"{path} does not fit TensorFlow {tf.version.VERSION}; delete it: {error}") from error
        if not hasattr(ops, "farandole_allreduce"):
            raise ImportError(f"{path} was loaded, but TensorFlow {tf.version.VERSION} sees no ops in it; delete it")
        _exports = ctypes.CDLL(str(path))
        _exports.farandole_tensorflow_register_allocator.restype = None
        _exports.farandole_tensorflow_memory.restype = None
        _exports.farandole_tensorflow_register_gpu_kernels.restype = None
        _has_gpu_kernels = _built.has_cuda_driver()
        if _has_gpu_kernels:
            _exports.farandole_tensorflow_register_gpu_kernels()
        _ops, _path = ops, path
    return _ops


def has_gpu_kernels() -> bool:
    """True if ops run on GPUs. Otherwise TensorFlow runs them on the CPU, and copies tensors there and back."""
    return _has_gpu_kernels


def register_allocator() -> bool:
    """Makes TensorFlow allocate large CPU tensors in windows: memory that all ranks of the host have mapped, so
    collectives on such tensors need no copy. Returns True on success. Idempotent.

    Only possible before TensorFlow has allocated its first tensor; later it would end the process. In that case tensors
    stay in ordinary memory, and the log says so. FARANDOLE_TENSORFLOW_WINDOWS=off disables windows.
    """
    global _allocator_is_registered
    if _allocator_is_registered is None:
        _allocator_is_registered = _register_allocator()
    return _allocator_is_registered


def _register_allocator() -> bool:
    if os.environ.get("FARANDOLE_TENSORFLOW_WINDOWS", "on") == "off":
        return False
    load()
    if _context_is_initialized():
        _engine.log(
            "warning",
            "TensorFlow has allocated tensors before farandole.tensorflow was imported: tensors stay in ordinary "
            "memory, which collectives have to copy. Import farandole.tensorflow right after tensorflow",
        )
        return False
    _exports.farandole_tensorflow_register_allocator()
    return True


def _context_is_initialized() -> bool:
    """True if TensorFlow may have allocated a tensor."""
    from tensorflow.python.eager import context

    # There is no public query; some setters of `tf.config` raise if the context is initialised.
    return getattr(context.context(), "_context_handle", True) is not None


def pending() -> int:
    """Number of TensorFlow's collectives that have begun and not ended."""
    return 0 if _exports is None else _exports.farandole_tensorflow_pending()


def memory() -> Dict[str, int]:
    """Bytes of large CPU tensors: in use and kept for reuse, each in windows and in ordinary memory, and the limit of
    kept bytes. All zero if the allocator is not registered."""
    names = ("windows_in_use", "windows_kept", "ordinary_in_use", "ordinary_kept", "limit")
    figures = (ctypes.c_int64 * len(names))()
    if _allocator_is_registered:
        _exports.farandole_tensorflow_memory(figures)
    return dict(zip(names, figures))


def describe() -> Dict[str, Any]:
    """Facts about the op library for `farandole.info`."""
    return {"path": _path and str(_path), "windows": bool(_allocator_is_registered), **memory()}
