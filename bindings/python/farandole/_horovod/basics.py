# SPDX-License-Identifier: Apache-2.0
"""Horovod's `HorovodBasics`, the object behind `hvd.mpi_ops._basics`."""

from typing import Any, Dict, List, Optional, Sequence

from .. import _built, _engine, _lifecycle, errors, process_sets


class HorovodBasics:
    """Start and end of the job, place of this process, build options, and queries of process sets by id.

    The arguments locate Horovod's library, and are ignored.
    """

    Average, Sum, Adasum = _engine.Average, _engine.Sum, _engine.Adasum
    Min, Max, Product = _engine.Min, _engine.Max, _engine.Product

    def __init__(self, pkg_path: str = "", *args: str):
        del pkg_path, args

    init = staticmethod(_lifecycle.init)
    shutdown = staticmethod(_lifecycle.shutdown)
    is_initialized = staticmethod(_lifecycle.is_initialized)
    rank, size = staticmethod(_lifecycle.rank), staticmethod(_lifecycle.size)
    local_rank, local_size = staticmethod(_lifecycle.local_rank), staticmethod(_lifecycle.local_size)
    cross_rank, cross_size = staticmethod(_lifecycle.cross_rank), staticmethod(_lifecycle.cross_size)
    is_homogeneous = staticmethod(_lifecycle.is_homogeneous)
    start_timeline = staticmethod(_lifecycle.start_timeline)
    stop_timeline = staticmethod(_lifecycle.stop_timeline)
    mpi_threads_supported = staticmethod(_built.mpi_threads_supported)
    mpi_built, mpi_enabled = staticmethod(_built.mpi_built), staticmethod(_built.mpi_enabled)
    gloo_built, gloo_enabled = staticmethod(_built.gloo_built), staticmethod(_built.gloo_enabled)
    nccl_built, ddl_built = staticmethod(_built.nccl_built), staticmethod(_built.ddl_built)
    ccl_built = staticmethod(_built.ccl_built)
    cuda_built, rocm_built = staticmethod(_built.cuda_built), staticmethod(_built.rocm_built)

    def _process_set_rank(self, process_set_id: int) -> int:
        """Index of this process in a set. Raises ValueError if
        this process is not a member, or there is no such set."""
        ranks = self._ranks(process_set_id)
        own = _lifecycle.rank()
        if own not in ranks:
            raise errors.InvalidArgument(f"rank {own} is not part of process set {process_set_id}, which has {ranks}")
        return ranks.index(own)

    def _process_set_size(self, process_set_id: int) -> int:
        """Number of ranks in a set. Works in processes that are
        not members. Raises ValueError if there is no such set."""
        return len(self._ranks(process_set_id))

    @staticmethod
    def _ranks(process_set_id: int) -> List[int]:
        _engine.need_initialized()
        ranks = _engine.process_set_ranks(process_set_id)
        if ranks is None:
            raise errors.InvalidArgument(
                f"Process set {process_set_id} does not exist or has not been registered; there are "
                f"{_engine.process_sets()}"
            )
        return ranks

    def _get_process_set_ids_and_ranks(self) -> Dict[int, List[int]]:
        """Ranks of all sets by id, including the set of all ranks (id 0)."""
        _engine.need_initialized()
        return {number: self._ranks(number) for number in sorted(_engine.process_sets())}

    def _add_process_set_impl(self, ranks: Sequence[int]) -> Optional[int]:
        """add_process_set that returns the set's id; None if there is a set of these ranks already."""
        return process_sets.add_new(sorted(ranks))

    def _remove_process_set_impl(self, process_set_id: int) -> Optional[int]:
        """remove_process_set that returns the set's id; None for 0 and for an unknown id."""
        if process_set_id == _engine.GLOBAL_SET or process_set_id not in _engine.process_sets():
            return None
        process_sets.remove_process_set(process_sets.process_set_by_id(process_set_id))
        return process_set_id

    def _comm_process_set_id(self, comm: Any) -> int:
        """Id of the set with the processes of an mpi4py communicator. Raises ValueError if there is no such set.
        Collective over these processes."""
        ranks = sorted(comm.allgather(_lifecycle.rank()))
        for number, members in self._get_process_set_ids_and_ranks().items():
            if members == ranks:
                return number
        raise errors.InvalidArgument(f"no process set has the ranks {ranks} of this MPI communicator")


basics = HorovodBasics()
