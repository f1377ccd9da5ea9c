# SPDX-License-Identifier: Apache-2.0
"""Threads of the library's own. They block signals, which belong to the program: one that waits by `signal.sigwait` would
be ended by a thread that blocks nothing. The core does the same in C++ (library_thread.h)."""

import signal
import threading
from typing import Any, Callable, Tuple

# Raised by a thread's own mistake: handlers must see them where they happen.
_OWN_MISTAKES = {"SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP", "SIGABRT", "SIGSYS"}


def start_thread(
    target: Callable[..., Any], name: str, args: Tuple[Any, ...] = (), daemon: bool = True
) -> threading.Thread:
    """Returns the thread, which is running."""
    thread = threading.Thread(target=target, args=args, name=name, daemon=daemon)
    blocked = signal.valid_signals() - {getattr(signal, each) for each in _OWN_MISTAKES}
    former = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    try:
        thread.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)
    return thread
