# SPDX-License-Identifier: Apache-2.0
"""Makes Ctrl-C end a collective that waits for other ranks.

Python runs signal handlers between bytecodes. A KeyboardInterrupt would therefore come only after the op, which may
wait forever. But Python writes the number of each signal to a file descriptor immediately (`signal.set_wakeup_fd`). A
thread reads the descriptor and aborts the job. The op then fails on all ranks, and this process raises
KeyboardInterrupt.

KeyboardInterrupt must not come too early. The first Python code to run creates TensorFlow's exception for the failed
op, and an exception that a signal handler raises there becomes an obscure RuntimeError of pybind11. Python's handler
of SIGINT is therefore replaced by a handler that lets that code finish.
"""

import contextlib
import os
import signal
import sys
import threading
from types import FrameType
from typing import Any, Callable, Optional

from .._threads import start_thread

_installed_by = 0  # id of the process that has installed the handler
# Modules in which TensorFlow creates exceptions while C++ calls Python.
_EXCEPTION_MODULES = ("tensorflow.python.eager.core", "tensorflow.python.framework.errors_impl")


def install(pending: Callable[[], int], abort: Callable[[str], None]) -> None:
    """Watches for SIGINT from now on. Idempotent; a no-op outside of the main thread.

    SIGINT ends collectives only if its handler is Python's own or this module's: a program with a handler of its own
    decides what Ctrl-C means. A wake-up descriptor that was set before continues to receive signals. If the program
    sets a wake-up descriptor later, this module receives no signals any more, and Ctrl-C waits for the op.
    """
    global _installed_by
    if _installed_by == os.getpid() or threading.current_thread() is not threading.main_thread():
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    previous = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    _installed_by = os.getpid()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _raise_outside_exceptions)
    os.register_at_fork(after_in_child=lambda: _forget(writer))
    start_thread(_watch, "farandole-interrupt", args=(reader, previous, pending, abort))


def _raise_outside_exceptions(number: int, frame: Optional[FrameType]) -> None:
    """Python's handler of SIGINT, except while TensorFlow creates an exception: that code finishes, and the function
    that called TensorFlow gets KeyboardInterrupt instead of the exception."""
    caller = frame
    while caller is not None and caller.f_globals.get("__name__") in _EXCEPTION_MODULES:
        caller = caller.f_back
    if caller is None or caller is frame or sys.gettrace() is not None:  # a debugger uses the only trace function
        signal.default_int_handler(number, frame)

    def raise_in_caller(_frame: FrameType, event: str, _argument: Any) -> Any:
        if event != "exception":
            return raise_in_caller
        sys.settrace(None)
        caller.f_trace = None
        raise KeyboardInterrupt

    caller.f_trace = raise_in_caller
    sys.settrace(lambda *_: None)  # does not trace other frames


def _forget(writer: int) -> None:
    """In a forked child: stops receiving the parent's signals."""
    with contextlib.suppress(ValueError):
        current = signal.set_wakeup_fd(-1)
        if current != writer:
            signal.set_wakeup_fd(current)


def _watch(reader: int, previous: int, pending: Callable[[], int], abort: Callable[[str], None]) -> None:
    while True:
        numbers = os.read(reader, 64)
        if not numbers:
            return
        if previous >= 0:
            try:
                os.write(previous, numbers)
            except OSError:
                previous = -1
        is_ours = signal.getsignal(signal.SIGINT) in (signal.default_int_handler, _raise_outside_exceptions)
        if signal.SIGINT in numbers and is_ours and pending() > 0:
            abort("interrupted (SIGINT)")
