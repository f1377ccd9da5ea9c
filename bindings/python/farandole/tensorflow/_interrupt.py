# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C while a collective waits for other ranks.

Python runs signal handlers between bytecodes, so a KeyboardInterrupt would come only when the op has ended, which may
be never. Python does write the number of each signal to a file at once (`signal.set_wakeup_fd`); a thread reads it
there and aborts the job. The op then fails on all ranks, and this process raises KeyboardInterrupt.

It must not raise it too early: the first Python code that runs then makes TensorFlow's exception for the failed op, and
an exception of a signal handler in there becomes a RuntimeError of pybind11 that nobody understands. So Python's own
handler of SIGINT is replaced by one that waits for the end of that code.
"""

import contextlib
import os
import signal
import sys
import threading
from types import FrameType
from typing import Any, Callable, Optional

from .._threads import start_thread

_installed_by = 0  # id of the process
# Where TensorFlow makes exceptions while it is called from C++.
_EXCEPTION_MODULES = ("tensorflow.python.eager.core", "tensorflow.python.framework.errors_impl")


def install(pending: Callable[[], int], abort: Callable[[str], None]) -> None:
    """Watches for SIGINT from now on. Does nothing if it does already, or outside the main thread.

    A collective is ended only if SIGINT has Python's own handler, or this module's in its place: a program with a
    handler of its own decides by itself what Ctrl-C means. A wake-up file that somebody has set before goes on to get
    the numbers of signals; somebody who sets one later takes ours away, and Ctrl-C waits for the op again.
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
    """Python's own handler of SIGINT, but where TensorFlow makes an exception it lets it finish: the function that has
    called into TensorFlow then gets KeyboardInterrupt in place of that exception."""
    caller = frame
    while caller is not None and caller.f_globals.get("__name__") in _EXCEPTION_MODULES:
        caller = caller.f_back
    if caller is None or caller is frame or sys.gettrace() is not None:  # a debugger has the one trace function
        signal.default_int_handler(number, frame)

    def raise_in_caller(_frame: FrameType, event: str, _argument: Any) -> Any:
        if event != "exception":
            return raise_in_caller
        sys.settrace(None)
        caller.f_trace = None
        raise KeyboardInterrupt

    caller.f_trace = raise_in_caller
    sys.settrace(lambda *_: None)  # nothing else is traced


def _forget(writer: int) -> None:
    """In a forked child: its signals are not the parent's."""
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
