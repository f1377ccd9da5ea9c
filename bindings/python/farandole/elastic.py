# SPDX-License-Identifier: Apache-2.0
"""Horovod's elastic API for a job with fixed ranks.

Programs written for elastic Horovod run unchanged: state is broadcast from rank 0, committed and restored. But no ranks
join later, and a lost rank ends the job with PeerLost.
"""

import functools
from typing import Any, Callable, Dict, List

from ._lifecycle import rank
from .errors import HorovodInternalError, HostsUpdatedInterrupt
from .objects import broadcast_object

__all__ = ["HorovodInternalError", "HostsUpdatedInterrupt", "ObjectState", "State", "run", "run_fn"]


class State:
    """State that must be equal on all ranks. Subclasses implement `save`, `restore` and `sync`."""

    def __init__(self, bcast_object: Callable[[Any], Any] = broadcast_object, get_rank: Callable[[], int] = rank):
        self._bcast_object = bcast_object
        self._rank = get_rank
        self._reset_callbacks: List[Callable[[], None]] = []

    def register_reset_callbacks(self, callbacks: List[Callable[[], None]]) -> None:
        """Adds functions to call when the decorated function is restarted."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def commit(self) -> None:
        """Saves the state for a later `restore`."""
        self.save()
        self.check_host_updates()

    def on_hosts_updated(self, timestamp: Any, update_res: Any) -> None:
        """No-op, because the hosts of a job are fixed."""

    def check_host_updates(self) -> None:
        """No-op, because the hosts of a job are fixed."""

    def save(self) -> None:
        """Stores a copy of the state in memory."""
        raise NotImplementedError

    def restore(self) -> None:
        """Returns to the last saved state."""
        raise NotImplementedError

    def sync(self) -> None:
        """Broadcasts the state of rank 0. Collective."""
        raise NotImplementedError

    def reset(self) -> None:
        """Called before the decorated function is restarted."""


class ObjectState(State):
    """State of plain objects: each keyword argument becomes an
    attribute. `farandole.objects` says which objects travel."""

    def __init__(self, bcast_object: Callable[[Any], Any] = broadcast_object, get_rank=rank, **kwargs: Any):
        super().__init__(bcast_object, get_rank)
        self._saved_state: Dict[str, Any] = kwargs
        self._set_attributes()

    def save(self) -> None:
        self._saved_state = {name: getattr(self, name) for name in self._saved_state}

    def restore(self) -> None:
        self._set_attributes()

    def sync(self) -> None:
        # Even without attributes: another rank may have some, and would wait.
        self._saved_state = self._bcast_object(self._saved_state)
        self._set_attributes()

    def _set_attributes(self) -> None:
        for name, value in self._saved_state.items():
            setattr(self, name, value)


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator of a function whose first argument is a `State`. Synchronises the state, then calls the function.

    A HostsUpdatedInterrupt that the program raises restarts the function. A failed job is not restarted:
    HorovodInternalError and its subclasses (PeerLost, Timeout, …) reach the caller.
    """

    @functools.wraps(func)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> Any:
        skip_sync = False
        while True:
            if not skip_sync:
                state.sync()
            try:
                return func(state, *args, **kwargs)
            except HostsUpdatedInterrupt as interrupt:
                skip_sync = interrupt.skip_sync
                state.on_reset()

    return wrapper


def run_fn(func: Callable[..., Any], reset: Callable[[], None]) -> Callable[..., Any]:
    """`run` with the name and signature of Horovod's modules for frameworks. `reset`, which restarts Horovod, is ignored."""
    del reset
    return run(func)
