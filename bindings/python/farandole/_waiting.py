# SPDX-License-Identifier: Apache-2.0
"""Waits inside the library, and lets signals interrupt the wait.

A thread that waits in C code does not run Python's signal handlers. While the main thread waits, a small thread listens
for signals on Python's wake-up file descriptor and ends the wait. The handler then runs, and the wait continues unless
the handler has raised.

A thread that is in the library also runs callbacks, which are Python code. If a handler raised within a callback,
ctypes would drop the exception, and the rest of the callback would not run. Handlers are therefore deferred until the
thread has left the callbacks.
"""

import _signal  # `signal` wraps this module and looks up enumerations, which takes ten times as long
import contextlib
import ctypes
import os
import signal
import threading
from typing import Any, Callable, ContextManager, Dict, List, Optional, Sequence, Tuple

from . import _engine
from ._threads import start_thread


def _call_all(calls: Sequence[Tuple[Callable[..., Any], Tuple[Any, ...]]]) -> None:
    """Makes all calls, even if a call or a pending signal handler raises."""
    if calls:
        function, arguments = calls[0]
        try:
            function(*arguments)
        finally:
            _call_all(calls[1:])


class _Handlers:
    """Defers the program's signal handlers while the main thread is in the library. May be nested."""

    # Signals for which programs usually install handlers that raise.
    _NUMBERS = tuple(map(int, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM, signal.SIGUSR1, signal.SIGUSR2)))

    def __init__(self):
        self._depth = 0
        self._handlers: Dict[int, Callable[[int, Any], Any]] = {}
        self._arrived: List[Tuple[int, Any]] = []

    def __enter__(self):
        if self._depth == 0:
            self._put_off_all()
        self._depth += 1
        return self

    def __exit__(self, *_):
        self._depth -= 1
        if self._depth == 0:
            self._put_back_all()

    def run(self) -> None:
        """Runs the handlers of signals that have arrived, as if outside of the library. Propagates their exceptions."""
        if not self._arrived:
            return
        depth, self._depth = self._depth, 0  # a handler may call the library
        try:
            self._put_back_all()
        finally:
            self._depth = depth
        self._put_off_all()

    def put_back(self) -> None:
        """Restores the handlers in a forked child whose parent's main thread is in the library."""
        for number, handler in self._handlers.items():
            _signal.signal(number, handler)

    def _put_off_all(self) -> None:
        try:
            for number in self._NUMBERS:
                handler = _signal.getsignal(number)
                if callable(handler):
                    self._handlers[number] = handler
                    _signal.signal(number, self._note)
        except BaseException:  # raised by a handler that was not deferred yet
            self._put_back_all()
            raise

    def _put_back_all(self) -> None:
        handlers, self._handlers = self._handlers, {}
        _call_all([(_signal.signal, each) for each in handlers.items()])
        arrived, self._arrived = self._arrived, []
        _call_all([(handlers[number], (number, frame)) for number, frame in arrived])

    def _note(self, number: int, frame: Any) -> None:
        self._arrived.append((number, frame))


_handlers = _Handlers()
_NOTHING: ContextManager[Any] = contextlib.nullcontext()


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def in_library() -> ContextManager[Any]:
    """A context for calls of the library that may run callbacks: defers signal handlers."""
    return _handlers if _is_main_thread() else _NOTHING


class _Listener:
    """Thread that reads signals from the wake-up file. One per process; a forked child creates its own."""

    def __init__(self):
        self._reading, self.writing = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.writing, False)
        self._end_wait: Optional[Callable[[], None]] = None
        self._previous = -1
        self._depth = 0  # a handler that runs during a wait may wait, too
        start_thread(self._run, "farandole-signals")

    def _run(self) -> None:
        while True:
            signals = os.read(self._reading, 64)
            previous, end_wait = self._previous, self._end_wait
            if previous >= 0:
                try:
                    os.write(previous, signals)
                except OSError:
                    pass  # the program's own wake-up descriptor is full or closed, as may happen without Farandole
            if end_wait is not None:
                end_wait()

    def __enter__(self):
        if self._depth == 0:
            self._previous = signal.set_wakeup_fd(self.writing, warn_on_full_buffer=False)
        self._depth += 1
        return self

    def __exit__(self, *_):
        self._depth -= 1
        if self._depth == 0:
            signal.set_wakeup_fd(self._previous, warn_on_full_buffer=False)

    def listen(self, end_wait: Optional[Callable[[], None]]) -> Optional[Callable[[], None]]:
        """Sets the function to call on a signal. Returns the previous function."""
        previous, self._end_wait = self._end_wait, end_wait
        return previous


_THREADS_OF_OURS = "farandole-"
_listener: Optional[_Listener] = None


def _get_listener() -> _Listener:
    global _listener
    if _listener is None:
        _listener = _Listener()
    return _listener


def _leave_parents_listener() -> None:
    """In a forked child: stops writing the child's signals to the pipe from which the parent's listener reads."""
    global _listener
    if _listener is None:
        return
    with contextlib.suppress(ValueError):  # not the main thread
        current = signal.set_wakeup_fd(-1)
        if current != _listener.writing:
            signal.set_wakeup_fd(current)
    _listener = None


def _leave_parents_signals() -> None:
    """In a forked child: restores signal handling."""
    global _handlers
    _leave_parents_listener()
    with contextlib.suppress(ValueError):  # not the main thread
        _handlers.put_back()
    _handlers = _Handlers()


os.register_at_fork(after_in_child=_leave_parents_signals)


def is_only_thread() -> bool:
    """True if no other Python thread can submit a request while this thread waits."""
    return all(
        thread is threading.current_thread() or thread.name.startswith(_THREADS_OF_OURS)
        for thread in threading.enumerate()
    )


def waiting_of_caller() -> _engine.Waiting:
    """The farandole_waiting of a request for which this thread waits: Caller if no other thread can submit a request
    meanwhile, else Program."""
    return _engine.Waiting.Caller if is_only_thread() else _engine.Waiting.Program


def wait(flag: ctypes.c_int32, is_done: Callable[[], bool]) -> None:
    """Blocks until `is_done()`. The code that makes `is_done` true must then set `flag` to 1. Other threads run
    meanwhile. In the main thread, an exception of a signal handler (Ctrl-C) ends the wait."""
    if not _is_main_thread():
        _wait(flag, is_done, lambda: None)
        return
    with _handlers, _get_listener() as listener:

        def end_wait() -> None:
            flag.value = 1

        outer = listener.listen(end_wait)
        try:
            _wait(flag, is_done, _handlers.run)
        finally:
            listener.listen(outer)


def _wait(flag: ctypes.c_int32, is_done: Callable[[], bool], run_handlers: Callable[[], None]) -> None:
    while not is_done():
        run_handlers()
        _engine.lib.farandole_wait_until(ctypes.byref(flag))
        run_handlers()
        if is_done():
            return
        flag.value = 0  # a signal ended the wait
