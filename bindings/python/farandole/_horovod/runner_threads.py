# SPDX-License-Identifier: Apache-2.0
"""Horovod's module `horovod.runner.util.threads`."""

import itertools
import threading
from typing import Any, Callable, Dict, List, Optional


def in_thread(
    target: Callable[..., Any], args: tuple = (), name: Optional[str] = None, daemon: bool = True, silent: bool = False
) -> threading.Thread:
    """Runs `target(*args)` in a new thread, and returns the thread. silent: ignores exceptions."""
    _need_tuple(args)

    def quietly() -> None:
        try:
            target(*args)
        except BaseException:  # pylint: disable=broad-except
            pass

    if silent:
        thread = threading.Thread(target=quietly, name=name, daemon=daemon)
    else:
        thread = threading.Thread(target=target, args=args, name=name, daemon=daemon)
    thread.start()
    return thread


def execute_function_multithreaded(
    fn: Callable[..., Any],
    args_list: List[List[Any]],
    block_until_all_done: bool = True,
    max_concurrent_executions: int = 1000,
) -> Optional[Dict[int, Any]]:
    """Runs `fn(*arguments)` for each list of arguments, in at most `max_concurrent_executions` threads.

    Returns the results by position in `args_list`. Without `block_until_all_done`, returns None immediately. Raises
    RuntimeError if a call has raised.
    """
    results: Dict[int, Any] = {}
    numbers = itertools.count()  # the next position; next() is atomic

    def work() -> None:
        for place in numbers:
            if place >= len(args_list):
                return
            results[place] = fn(*args_list[place])

    count = min(max_concurrent_executions, len(args_list))
    threads = [in_thread(work, daemon=not block_until_all_done) for _ in range(count)]
    if not block_until_all_done:
        return None
    for thread in threads:
        thread.join()
    if len(results) != len(args_list):
        name = getattr(fn, "__name__", repr(fn))
        raise RuntimeError(f"{len(args_list) - len(results)} of {len(args_list)} calls of {name} did not complete")
    return results


def on_event(
    event: threading.Event,
    func: Callable[..., Any],
    args: tuple = (),
    stop: Optional[threading.Event] = None,
    check_stop_interval_s: float = 1.0,
    daemon: bool = True,
    silent: bool = False,
) -> threading.Thread:
    """Runs `func(*args)` in a new thread when `event` is set, unless `stop` is set before. Returns the thread.

    check_stop_interval_s: seconds between checks of `stop`. Without `stop`, the thread must be a daemon.
    """
    if event is None:
        raise ValueError("event must be an event, not None")
    _need_tuple(args)
    if stop is None and not daemon:
        raise ValueError("a thread that is no daemon needs a stop event")

    def wait() -> None:
        if stop is None:
            event.wait()
        else:
            while not stop.is_set() and not event.wait(check_stop_interval_s):
                pass
        if stop is None or not stop.is_set():
            func(*args)

    return in_thread(wait, daemon=daemon, silent=silent)


def _need_tuple(args: Any) -> None:
    if not isinstance(args, tuple):
        raise ValueError(f"args must be a tuple, not {type(args).__name__}; for a single argument write (argument,)")
