# SPDX-License-Identifier: Apache-2.0
"""Calls the engine's C interface (farandole/engine.h) from Python.

ctypes releases the GIL during calls of the library, so other threads run meanwhile.
_engine_interface.py, which is generated from the header, has the structures and functions.
"""

import ctypes
import json
import operator
import os
from ctypes import c_int32, c_void_p
from pathlib import Path
from typing import Any, Dict, List, Optional

from . import _files, errors
from ._engine_interface import (  # noqa: F401
    DTYPES,
    FUNCTIONS,
    GLOBAL_SET,
    Collective,
    Counters,
    InitOptions,
    JoinDoneFunction,
    Place,
    ReduceOp,
    Request,
    Tensor,
    TensorAllocateFunction,
    TensorDoneFunction,
    Waiting,
)

Sum, Product, Min, Max, Average, Adasum, BitAnd, BitOr, BitXor = ReduceOp


def choose_op(average: Optional[bool], op: Optional[int]) -> int:
    """Resolves `op` and Horovod's older argument `average` to an operation. Average if neither is given. Raises
    InvalidArgument if both are."""
    if average is None:
        return ReduceOp.Average if op is None else _reduce_op(op)
    if op is not None:
        raise errors.InvalidArgument("give op or average, not both; average=True is the older form of op=Average")
    return ReduceOp.Average if average else ReduceOp.Sum


def _reduce_op(op: int) -> ReduceOp:
    try:
        return ReduceOp(op)
    except ValueError:
        known = ", ".join(f"{each.name} ({each.value})" for each in ReduceOp)
        raise errors.InvalidArgument(f"op {op!r} is none of: {known}") from None


def checked_root(root: int, process_set: int) -> int:
    """The root's rank as an int. Raises InvalidArgument unless it is a member of the process set."""
    ranks = process_set_ranks(process_set) or []
    try:
        number = operator.index(root)
    except TypeError:
        raise errors.InvalidArgument(f"root_rank must be the number of a rank, not {root!r}") from None
    if number not in ranks:
        raise errors.InvalidArgument(f"root_rank {number} is none of the ranks {ranks} of process set {process_set}")
    return number


def refuse(name: str, process_set: int, why: BaseException, by_order: bool = False) -> None:
    """Reports that this rank cannot make a request. Peers that make the
    request raise Mismatch with the reason, see farandole_refuse."""
    request = Request(name=name.encode(), process_set=process_set, by_order=int(by_order))
    lib.farandole_refuse(ctypes.byref(request), f"{type(why).__name__}: {why}".encode())


# Contains the version of the interface. The op library and the plug-ins name the library by its SONAME, so the loader
# gives them the copy that is loaded here.
SONAME = "libfarandole.so.0.1"


def _own_library() -> Optional[Path]:
    """The library in the package. None in a distribution's package, which uses the system's library."""
    return next(filter(Path.exists, _files.candidates("lib", SONAME)), None)


def library_for_linking() -> str:
    """Path of the package's library; the SONAME if the package has none and the loader finds the system's library."""
    own = _own_library()
    return SONAME if own is None else str(own)


def _load() -> ctypes.CDLL:
    try:
        # RTLD_LOCAL: the library's symbols do not collide with those of any other library in the process.
        library = ctypes.CDLL(library_for_linking(), mode=os.RTLD_NOW | os.RTLD_LOCAL)
    except OSError as error:
        if _own_library() is not None:
            raise ImportError(str(error)) from None
        raise ImportError(
            f"there is no {SONAME}, neither in {Path(__file__).parent / 'lib'} nor where the system looks: this is a copy of "
            "Farandole's sources, not the built package. Run 'pip install .' at the root of the sources, or put "
            f"<build directory>/python on PYTHONPATH after building with CMake ({error})"
        ) from None
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    return library


lib = _load()


def exception_of(error: int) -> errors.Error:
    """Makes the exception for a farandole_error. Does not free the error."""
    kind = lib.farandole_error_kind_name(lib.farandole_error_get_kind(error)).decode()
    text = lib.farandole_error_text(error).decode(errors="replace")
    return errors.class_of(kind)(text)


def call(name: str, *arguments: Any) -> None:
    """Calls a function of engine.h that can fail, and raises its error as an exception.

    arguments: all except the function's last argument, through which the function returns its error.
    """
    error = c_void_p()
    if getattr(lib, name)(*arguments, ctypes.byref(error)) == 0:
        return
    exception = exception_of(error.value)
    lib.farandole_error_free(error)
    raise exception


def is_initialized() -> bool:
    return bool(lib.farandole_is_initialized())


def need_initialized() -> None:
    """Raises InvalidArgument before init(), and in a process that was forked from a rank."""
    if not is_initialized():
        call("farandole_check_not_forked")
        raise errors.InvalidArgument("Farandole has not been initialized; call farandole.init() (hvd.init()) first")


def place() -> Place:
    """Rank, size and host of this process. Raises InvalidArgument before init()."""
    need_initialized()
    result = Place()
    lib.farandole_get_place(ctypes.byref(result))
    return result


def describe() -> Dict[str, Any]:
    """Facts about the build, the settings and, after init(), the job. Raises InvalidArgument for invalid settings."""
    text = lib.farandole_describe()
    try:
        facts = json.loads(ctypes.string_at(text).decode())
    finally:
        lib.farandole_text_free(text)
    if not facts:
        # The library could not read its settings. farandole_init reads them first, and fails before it joins a job.
        call("farandole_init", None)
    return facts


def log(level: str, text: str) -> None:
    """Writes to the core's log. level: debug, info, warning or error."""
    lib.farandole_log(["debug", "info", "warning", "error"].index(level), text.encode())


def process_sets() -> List[int]:
    """Ids of all process sets."""
    while True:
        count = lib.farandole_process_sets(None, 0)
        ids = (c_int32 * count)()
        if lib.farandole_process_sets(ids, count) == count:
            return list(ids)


def process_set_ranks(process_set: int) -> Optional[List[int]]:
    """Ranks of a process set in ascending order. None if there is no such set."""
    count = lib.farandole_process_set_ranks(process_set, None, 0)
    if count < 0:
        return None
    ranks = (c_int32 * count)()
    lib.farandole_process_set_ranks(process_set, ranks, count)
    return list(ranks)


def counters() -> Dict[str, int]:
    result = Counters()
    lib.farandole_get_counters(ctypes.byref(result))
    return {name: getattr(result, name) for name, _ in Counters._fields_[1:]}
