"""Ctrl-C while a collective waits for other ranks.

Python runs signal handlers between bytecodes, so a KeyboardInterrupt would come only when the op has ended, which may be
never. Python does write the number of each signal to a file at once (`signal.set_wakeup_fd`); a thread reads it there
and aborts the job. The op then fails on all ranks, and this process raises KeyboardInterrupt.
"""

import contextlib
import os
import signal
import threading
from typing import Callable

_installed_by = 0  # id of the process


def install(pending: Callable[[], int], abort: Callable[[str], None]) -> None:
    """Watches for SIGINT from now on. Does nothing if it does already, or outside the main thread.

    A collective is ended only if SIGINT has Python's own handler: a program with a handler of its own decides by itself
    what Ctrl-C means. A wake-up file that somebody has set before goes on to get the numbers of signals; somebody who
    sets one later takes ours away, and Ctrl-C waits for the op again.
    """
    global _installed_by
    if _installed_by == os.getpid() or threading.current_thread() is not threading.main_thread():
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    previous = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    _installed_by = os.getpid()
    os.register_at_fork(after_in_child=lambda: _forget(writer))
    threading.Thread(
        target=_watch, args=(reader, previous, pending, abort), name="farandole-interrupt", daemon=True
    ).start()


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
        is_ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if signal.SIGINT in numbers and is_ours and pending() > 0:
            abort("interrupted (SIGINT)")
