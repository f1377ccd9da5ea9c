# SPDX-License-Identifier: Apache-2.0
"""End of a rank: leaves the job, or ends the job with the error of the program."""

import atexit
import multiprocessing
import multiprocessing.util
import os
import sys
import time
from typing import Any, Callable, Optional

from .. import _uncaught
from ..errors import HorovodInternalError

# Time for which a rank that fails because of another rank lets that rank end first, so that torchrun and
# torch.multiprocessing report the error of the rank at fault.
_PAUSE_AFTER_A_FAULT = 0.5  # seconds
# Exceptions that a program handles in its normal course.
_NORMAL = (StopIteration, StopAsyncIteration, GeneratorExit)

_backend: Any = None
_destroy_groups: Callable[[], None]
_process = 0  # id of the process that has to end its part of the job


def watch(backend: Any, destroy_groups: Callable[[], None]) -> None:
    """Has the end of this process leave the job, unless the program does. Idempotent.

    backend: the library. destroy_groups: destroys the process groups, if there are any of this backend.
    """
    global _backend, _destroy_groups, _process
    if _process == os.getpid():
        return
    _backend, _destroy_groups, _process = backend, destroy_groups, os.getpid()
    backend.set_failure_text(_failure_text)
    atexit.register(_at_exit)
    if multiprocessing.parent_process() is not None:
        multiprocessing.util.Finalize(None, _at_end_of_child, exitpriority=0)


def _failure(error: Optional[BaseException]) -> Optional[BaseException]:
    """The exception with which the program fails if `error` ends it; None if that is no failure."""
    if isinstance(error, SystemExit):
        if error.code is None or error.code == 0:
            return None
        # torch.multiprocessing catches the exception of a process, and exits with status 1.
        return _failure(error.__context__) or error
    return None if isinstance(error, _NORMAL) else error


def _described(error: BaseException) -> str:
    return _uncaught.described(type(error), error, error.__traceback__)


def _failure_text() -> str:
    """Text of the exception that this thread handles; "" if it handles none, or if the job has failed already."""
    error = _failure(sys.exc_info()[1])
    return "" if error is None or isinstance(error, HorovodInternalError) else _described(error)


def _at_exit() -> None:
    """Exit handler of Python. A forked child is in no job."""
    global _process
    if _process != os.getpid():
        return
    _process = 0
    uncaught = getattr(sys, "last_value", None)
    if uncaught is not None:
        return _fail(uncaught)
    if "mpi4py.MPI" in sys.modules:  # finalises MPI before the exit status is known
        _destroy_groups()
        return _backend.leave()
    # The status may still be another than 0, by SystemExit. The library leaves the job when the status is known.
    _backend.begin_process_end()
    _destroy_groups()


def _at_end_of_child() -> None:
    """Runs at the end of a process that multiprocessing has started, which has no uncaught exceptions."""
    global _process
    if _process != os.getpid():
        return
    _process = 0
    error = _failure(sys.exc_info()[1])
    if error is not None:
        return _fail(error)
    _destroy_groups()
    _backend.leave()


def _fail(error: BaseException) -> None:
    if isinstance(error, HorovodInternalError):  # the job has failed already
        time.sleep(_PAUSE_AFTER_A_FAULT)
    else:
        _backend.abort(_described(error))
