# SPDX-License-Identifier: Apache-2.0
"""Starts the library's threads with signals blocked, because signals belong to the program. An unblocked thread could
take a signal that the program waits for with `signal.sigwait`. The core does the same in C++ (library_thread.h)."""

import signal
import threading
from typing import Any, Callable, Tuple

# Signals that a fault of a thread raises. They stay unblocked, so that handlers run in the faulting thread.
_SYNCHRONOUS_SIGNALS = {"SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP", "SIGABRT", "SIGSYS"}


def start_thread(
    target: Callable[..., Any], name: str, args: Tuple[Any, ...] = (), daemon: bool = True
) -> threading.Thread:
    """Starts a thread with blocked signals, and returns it."""
    thread = threading.Thread(target=target, args=args, name=name, daemon=daemon)
    blocked = signal.valid_signals() - {getattr(signal, each) for each in _SYNCHRONOUS_SIGNALS}
    former = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    try:
        thread.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)
    return thread
