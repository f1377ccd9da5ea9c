# SPDX-License-Identifier: Apache-2.0
"""Process sets: groups of ranks that run collectives among themselves. The names are Horovod's."""

import ctypes
from typing import Any, Dict, Iterable, List, Optional, Sequence, Union

from . import _engine, errors
from ._horovod.common_util import is_iterable


class ProcessSet:
    """A group of ranks of the job.

        even = farandole.add_process_set([0, 2])
        if even.included():
            total = collectives.allreduce(x, process_set=even)

    Create a set from any iterable of ranks, in any order, then register it by `init(process_sets=[…])` or
    `add_process_set`. Registration sets `process_set_id`. The id is None before, and again after `remove_process_set`.
    `ranks` is sorted.
    """

    def __init__(self, ranks_or_comm: Iterable[int]):
        if hasattr(ranks_or_comm, "py2f"):
            raise errors.Unsupported(
                "a process set from an MPI communicator is not supported; pass the ranks: "
                "ProcessSet(comm.allgather(hvd.rank()))"
            )
        is_list = is_iterable(ranks_or_comm) and not isinstance(ranks_or_comm, (str, bytes))
        ranks = list(ranks_or_comm) if is_list else []  # an iterator can be read only once
        if not is_list or not all(_is_integer(rank) for rank in ranks):
            given = ranks if is_list else ranks_or_comm
            raise errors.InvalidArgument(f"a process set is made from a list of ranks, not from {given!r}")
        self.process_set_id: Optional[int] = None
        self.ranks: Optional[List[int]] = sorted(int(rank) for rank in ranks)
        self.mpi_comm: Any = None

    @classmethod
    def of_id(cls, process_set_id: int) -> "ProcessSet":
        """The set with this id. Raises InvalidArgument if no set has the id."""
        _engine.need_initialized()
        ranks = _engine.process_set_ranks(process_set_id)
        if ranks is None:
            raise errors.InvalidArgument(
                f"there is no process set {process_set_id}; there are {_engine.process_sets()}"
            )
        made = cls(ranks)
        made.process_set_id = process_set_id
        return made

    def size(self) -> Optional[int]:
        """Number of ranks in the set. None if the set is not registered. Raises InvalidArgument before init()."""
        ranks = self._current_ranks()
        return None if ranks is None else len(ranks)

    def rank(self) -> Optional[int]:
        """Index of this process in the set. None if the set is not registered. Raises InvalidArgument if this process
        is not a member.

        Collectives with a root, such as broadcast, take the rank in the job, not this index.
        """
        ranks = self._current_ranks()
        if ranks is None:
            return None
        own = _engine.place().rank
        if own not in ranks:
            raise errors.InvalidArgument(f"rank {own} is not in process set {self.process_set_id}, which has {ranks}")
        return ranks.index(own)

    def included(self) -> Optional[bool]:
        """True if this process is a member. None if the ranks are not known yet."""
        if self.process_set_id is None and self.ranks is None:
            return None
        ranks = self.ranks if self.process_set_id is None else self._current_ranks()
        return _engine.place().rank in ranks

    def _current_ranks(self) -> Optional[List[int]]:
        if self.process_set_id is None:
            return None
        _engine.need_initialized()
        ranks = _engine.process_set_ranks(self.process_set_id)
        if ranks is None:
            raise errors.InvalidArgument(f"process set {self.process_set_id} has been removed")
        return ranks

    def __repr__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks}, mpi_comm={self.mpi_comm})"


def _is_integer(value: Any) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool)


global_process_set = ProcessSet([])
global_process_set.process_set_id = _engine.GLOBAL_SET
# Sets that add_process_set or init have registered, by id.
_registered: Dict[int, ProcessSet] = {}


def id_of(process_set: ProcessSet) -> int:
    """Returns the id of a registered set. Raises InvalidArgument if the set is not registered."""
    if process_set.process_set_id is None:
        raise errors.InvalidArgument(f"{process_set} is not registered; pass it to init() or add_process_set() first")
    return process_set.process_set_id


def add_process_set(process_set: Union[ProcessSet, Iterable[int]]) -> ProcessSet:
    """Registers a process set and returns it. Collective over the whole job: all ranks call it with the same ranks,
    including ranks that are not members. Blocks until all have.

    Raises InvalidArgument if a set of these ranks exists already.
    """
    _engine.need_initialized()
    if not isinstance(process_set, ProcessSet):
        process_set = ProcessSet(process_set)
    if process_set.ranks is None:
        raise errors.InvalidArgument("this process set has been removed; make a new one from a list of ranks")
    if not process_set.ranks:
        raise errors.InvalidArgument("a process set needs ranks; for all ranks use global_process_set")
    number = add_new(process_set.ranks)
    if number is None:
        raise errors.InvalidArgument(f"there is a process set of ranks {process_set.ranks} already: this is a duplicate")
    process_set.process_set_id = number
    _registered[number] = process_set
    return process_set


def add_new(ranks: Sequence[int]) -> Optional[int]:
    """Registers a set of ranks in ascending order and returns its id. None if there is such a set already."""
    known = _engine.process_sets()
    made = ctypes.c_int32()
    _engine.call("farandole_add_process_set", (ctypes.c_int32 * len(ranks))(*ranks), len(ranks), ctypes.byref(made))
    return None if made.value in known else made.value  # the same on all ranks


def remove_process_set(process_set: ProcessSet) -> bool:
    """Removes a process set. Collective over the whole job; blocks until all ranks have called it. Pending collectives
    in the set fail.

    Returns False, and does nothing, for the set of all ranks and for a set that is not registered.
    """
    number = process_set.process_set_id
    if number is None or number == _engine.GLOBAL_SET:
        return False
    _engine.call("farandole_remove_process_set", number)
    process_set.process_set_id = None
    registered = _registered.pop(number, None)
    if registered is not None:
        registered.process_set_id = None
    return True


def process_set_by_id(process_set_id: int) -> ProcessSet:
    """The registered set with this id. Raises InvalidArgument if no set has the id."""
    if process_set_id == _engine.GLOBAL_SET:
        return global_process_set
    return _registered.get(process_set_id) or ProcessSet.of_id(process_set_id)


def process_sets() -> List[ProcessSet]:
    """All process sets in the order of their ids."""
    return [process_set_by_id(number) for number in sorted(_engine.process_sets())]


def is_process_set_included(process_set: ProcessSet = global_process_set) -> bool:
    """True if this process is a member of the set."""
    return bool(process_set.included())


def register_all(sets: Sequence[ProcessSet]) -> None:
    """After the engine has started: sets the ranks of the global set
    and registers the sets of init(), which the ranks have compared."""
    global_process_set.ranks = _engine.process_set_ranks(_engine.GLOBAL_SET)
    for each in sets:
        add_process_set(each)


def forget_all() -> None:
    """After the engine has stopped: only the global set keeps its id."""
    for each in _registered.values():
        each.process_set_id = None
    _registered.clear()
    global_process_set.ranks = []
