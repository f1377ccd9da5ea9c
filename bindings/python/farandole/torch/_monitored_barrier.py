# SPDX-License-Identifier: Apache-2.0
"""A barrier that names the ranks which are late."""

import collections
import time
from datetime import timedelta
from typing import Any, Counter, List, Optional

import torch.distributed as dist

from ._errors import Timeout
from ._library import backend

_calls: Counter[str] = collections.Counter()  # by group
_ANSWER_SECONDS = 10.0  # that other ranks wait for rank 0's answer after the timeout


def monitored_barrier(
    group: Optional[dist.ProcessGroup] = None, timeout: Optional[timedelta] = None, wait_all_ranks: bool = False
) -> None:
    """Waits until all ranks of the group have called. Raises Timeout, on all ranks that have, if some are late; the text
    names them. After a Timeout the group stays usable.

        farandole.torch.monitored_barrier(timeout=timedelta(seconds=30))

    `torch.distributed.monitored_barrier` works with gloo only. This one takes place in the group's store, so it works
    with every backend, and costs some milliseconds.

    timeout: of each rank, from its call; the group's default of 30 minutes if None.
    wait_all_ranks: accepted as torch's; the text always names all late ranks.

    Collective: all ranks of the group, in the same order as other monitored barriers. Blocks.
    """
    group = group or dist.group.WORLD
    rank = dist.get_rank(group)
    if rank < 0:
        return
    seconds = (timeout or dist.default_pg_timeout).total_seconds()
    call = _calls[group.group_name]
    _calls[group.group_name] += 1
    store = dist.PrefixStore(f"farandole/monitored_barrier/{call}", group.get_group_store())
    if rank == 0:
        problem = _wait_for_ranks(store, group, seconds)
        store.set("answer", problem)
    else:
        store.set(str(rank), "here")
        problem = _answer_of_rank_0(store, group, seconds)
    if problem:
        raise Timeout(problem)


def _wait_for_ranks(store: dist.Store, group: dist.ProcessGroup, seconds: float) -> str:
    """Waits until all ranks have announced themselves. Returns a text that names those that have not, or ""."""
    end = time.monotonic() + seconds
    late: List[int] = []
    for rank in range(1, group.size()):
        if not _has(store, str(rank), end - time.monotonic()):
            late.append(rank)
    return _names(group, late, seconds)


def _answer_of_rank_0(store: dist.Store, group: dist.ProcessGroup, seconds: float) -> str:
    if _has(store, "answer", seconds + _ANSWER_SECONDS):
        return store.get("answer").decode()
    return _names(group, [0], seconds)


def _has(store: Any, key: str, seconds: float) -> bool:
    """Waits for a key of the store."""
    if seconds > 0:
        try:
            store.wait([key], timedelta(seconds=seconds))
        except RuntimeError:  # the timeout, of classes that differ from store to store
            pass
    return store.check([key])


def _names(group: dist.ProcessGroup, late: List[int], seconds: float) -> str:
    if not late:
        return ""
    own = group._get_backend(dist.distributed_c10d._get_pg_default_device(group))
    names = ", ".join(backend.describe(own, rank) or f"rank {rank}" for rank in late)
    return f"monitored_barrier: {names} of process group {group.group_name} did not call it within {seconds:g} s"
