# SPDX-License-Identifier: Apache-2.0
"""Waiting inside the library, such that a signal still ends it.

A thread that waits in C code does not run Python's signal handlers. While the main thread waits, a small thread listens
for signals on Python's wake-up file descriptor and ends the wait; the handler then runs, and the wait is taken up again
if it raised nothing.
"""

import contextlib
import ctypes
import os
import signal
import threading
from typing import Callable, Optional

from . import _engine


class _Listener:
    """The thread that hears of signals. One per process; a forked child makes its own."""

    def __init__(self):
        self._reading, self.writing = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.writing, False)
        self._end_wait: Optional[Callable[[], None]] = None
        self._previous = -1
        threading.Thread(target=self._run, name="farandole-signals", daemon=True).start()

    def _run(self) -> None:
        while True:
            signals = os.read(self._reading, 64)
            previous, end_wait = self._previous, self._end_wait
            if previous >= 0:
                try:
                    os.write(previous, signals)
                except OSError:
                    pass  # its owner's pipe is full or closed, which is not ours to report
            if end_wait is not None:
                end_wait()

    def __enter__(self):
        self._previous = signal.set_wakeup_fd(self.writing, warn_on_full_buffer=False)
        return self

    def __exit__(self, *_):
        self._end_wait = None
        signal.set_wakeup_fd(self._previous, warn_on_full_buffer=False)

    def listen(self, end_wait: Callable[[], None]) -> None:
        self._end_wait = end_wait


_THREADS_OF_OURS = "farandole-"
_listener: Optional[_Listener] = None


def _get_listener() -> _Listener:
    global _listener
    if _listener is None:
        _listener = _Listener()
    return _listener


def _leave_parents_listener() -> None:
    """In a forked child: its signals are not the parent's."""
    global _listener
    if _listener is None:
        return
    with contextlib.suppress(ValueError):  # not the main thread
        current = signal.set_wakeup_fd(-1)
        if current != _listener.writing:
            signal.set_wakeup_fd(current)
    _listener = None


os.register_at_fork(after_in_child=_leave_parents_listener)


def caller_is_alone() -> bool:
    """Whether no other thread of Python can submit anything while this one waits."""
    return all(
        thread is threading.current_thread() or thread.name.startswith(_THREADS_OF_OURS)
        for thread in threading.enumerate()
    )


def of_caller() -> _engine.Waiting:
    """How a thread waits that does nothing else until its request is done."""
    return _engine.Waiting.Caller if caller_is_alone() else _engine.Waiting.Program


def wait(flag: ctypes.c_int32, is_done: Callable[[], bool]) -> None:
    """Blocks until `is_done()`; whoever makes it true sets `flag` to 1 afterwards. Other threads run meanwhile. In the
    main thread an exception of a signal handler (Ctrl-C) ends the wait."""
    if threading.current_thread() is not threading.main_thread():
        _wait(flag, is_done)
        return
    with _get_listener() as listener:

        def end_wait() -> None:
            flag.value = 1

        listener.listen(end_wait)
        _wait(flag, is_done)


def _wait(flag: ctypes.c_int32, is_done: Callable[[], bool]) -> None:
    while not is_done():
        _engine.lib.farandole_wait_until(ctypes.byref(flag))
        if is_done():
            return
        flag.value = 0  # a signal ended the wait
