# SPDX-License-Identifier: Apache-2.0
"""Start and end of the job, and this process's place in the job."""

import atexit
import contextlib
import os
import signal
import sys
import threading
from ctypes import byref
from typing import Any, Dict, Iterator, List, Optional, Sequence, Set, Tuple, Union

from . import _engine, _missing_scope, _uncaught, _work, errors, objects
from ._horovod import environment
from .process_sets import ProcessSet, forget_all, register_all

_warned: Set[str] = set()  # texts that warn_once has logged
_hooks_of = 0  # id of the process that has installed the hooks below
_MAX_ABORT_BYTES = 1900  # the message has 2019 bytes, which also hold the rank, the host and the process


def init(
    comm: Any = None,
    process_sets: Optional[Union[str, Sequence[ProcessSet]]] = None,
    expected_size: int = 0,
) -> None:
    """Joins the job that mpirun or Slurm started. Without these launchers, joins the job that environment variables
    describe: torchrun's, or FARANDOLE_RANK, FARANDOLE_SIZE and FARANDOLE_JOB (on several hosts FARANDOLE_RENDEZVOUS).
    Without these variables, starts a job of this process alone.

        farandole.init()
        print(farandole.rank(), farandole.size())

    Collective: all processes call it. Blocks until all have. No-op if the job is joined already.

    comm: None for all processes, or an mpi4py communicator whose processes become the job.
    process_sets: process sets to create, the same on all ranks; add_process_set can create more later. "dynamic" is
        accepted and means none. If some rank's list is invalid, or lists differ, all ranks raise the error.
    expected_size: required number of ranks; 0 for any.

    After `init`, an uncaught exception of this process ends the job on all ranks with the exception's text, and the end
    of the interpreter leaves the job by a clean shutdown.

    A process that is forked from this process is not a rank, and every call in the child raises InvalidArgument. The
    child may call `init` itself: it becomes a job of one process, or, with its own FARANDOLE_RANK, FARANDOLE_SIZE and
    FARANDOLE_JOB, joins another job.

    Raises InvalidArgument, Mismatch, Unsupported, TransportError.
    """
    sets, problem = _given_sets(process_sets)
    options = _checked_options(comm, expected_size)
    if _engine.is_initialized():
        if problem:
            raise errors.InvalidArgument(problem)
        if sets:
            raise errors.InvalidArgument("the job is joined already; make further process sets with add_process_set()")
        return
    ignored = environment.apply()
    forget_all()  # a forked child still has its parent's process sets
    _work.names.clear()
    with _interrupts_end_the_process():
        _engine.call("farandole_init", byref(options))
    _install_hooks()
    try:
        _after_start(ignored)
        refused = _refused_sets(sets, problem)
        if refused is None:
            register_all(sets)
    except BaseException as reason:
        _engine.lib.farandole_abort(f"init() failed: {reason}".encode())
        raise
    if refused is not None:  # on all ranks alike, so the job ends by a clean shutdown
        shutdown()
        raise refused


@contextlib.contextmanager
def _interrupts_end_the_process() -> Iterator[None]:
    """Lets Ctrl-C end the process during the join. Python's own handler would only run once the C code has returned."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _given_sets(sets: Any) -> Tuple[List[ProcessSet], str]:
    """Returns (the process sets passed to init(), the reason why they are invalid or ""). The caller raises the error
    only after all ranks know of it. If a rank raised alone, its peers would wait for it."""
    if sets is None or (isinstance(sets, str) and sets.lower() == "dynamic"):
        return [], ""
    try:
        made = [each if isinstance(each, ProcessSet) else ProcessSet(each) for each in sets]
    except (errors.Error, TypeError) as error:
        return [], str(error)
    ranks = [each.ranks or [] for each in made]
    if [] in ranks:
        return made, "a process set needs ranks; for all ranks use global_process_set"
    if any(len(set(each)) != len(each) for each in ranks):
        return made, f"a process set has each rank once; got {ranks}"
    if len(set(map(tuple, ranks))) != len(ranks):
        return made, f"process sets must differ; got {ranks}"
    return made, ""


def _refused_sets(sets: List[ProcessSet], problem: str) -> Optional[errors.Error]:
    """Returns the error that all ranks raise if a rank's list of process sets is invalid or lists differ. None if the
    sets can be created. Collective."""
    ranks = [each.ranks or [] for each in sets]
    everybody = list(range(size()))
    if not problem and everybody in ranks:
        problem = f"a process set of all ranks {everybody} is a duplicate of global_process_set"
    if not problem and not set().union(*ranks) <= set(everybody):
        problem = f"process sets have ranks from 0 to {size() - 1}; got {ranks}"
    of_ranks = objects.allgather_object([problem, ranks], name="process sets of init()")
    for number, (text, _) in enumerate(of_ranks):
        if text:
            return errors.InvalidArgument(f"init(process_sets=…) of rank {number}: {text}")
    first = of_ranks[0][1]
    for number, (_, others) in enumerate(of_ranks):
        if others != first:
            return errors.Mismatch(f"init(process_sets=…) is {first} on rank 0 and {others} on rank {number}")
    return None


def _checked_options(comm: Any, expected_size: int) -> _engine.InitOptions:
    if comm is None or (isinstance(comm, (list, tuple)) and not comm):
        return _engine.InitOptions(expected_size=expected_size)
    if hasattr(comm, "py2f"):
        return _engine.InitOptions(expected_size=expected_size, has_mpi_communicator=1, mpi_communicator=comm.py2f())
    if isinstance(comm, (list, tuple)):
        raise errors.Unsupported(
            f"init(comm={list(comm)}): a job of some of the ranks is made from an mpi4py communicator, "
            "comm=MPI.COMM_WORLD.Split(…); or join with all ranks and use process sets"
        )
    raise errors.InvalidArgument(f"comm must be None or an mpi4py communicator, not {type(comm).__name__}")


def _after_start(ignored: List[str]) -> None:
    place = _engine.place()
    started = environment.launched_size()
    if place.size == 1 and started > 1:
        raise errors.Unsupported(
            f"horovodrun started {started} processes that do not find each other; start them with mpirun -np {started}"
        )
    if place.rank == 0 and ignored:
        _engine.log("warning", f"these variables have no effect: {', '.join(ignored)}")
    if place.size > 1 and place.rank == 0:
        _missing_scope.watch()


def shutdown() -> None:
    """Leaves the job. Blocks until all ranks have called `shutdown`; pending collectives of this rank fail.

    `init` may be called again, but in a job of MPI only if the program has initialised MPI itself (with mpi4py),
    because MPI can be initialised only once per process.

    After a fault of the job, returns without waiting. No-op before `init`.
    """
    if _engine.is_initialized():
        try:
            _engine.call("farandole_shutdown")
        finally:
            forget_all()


def abort(text: str) -> None:
    """Ends the job: all pending and later collectives fail on all ranks with PeerLost, which names this rank and
    contains `text`. A text of more than 1900 bytes loses its middle. Non-blocking; does not end this process. Raises
    InvalidArgument before `init`."""
    _engine.need_initialized()
    _engine.lib.farandole_abort(_shortened(text.encode()))


def _shortened(text: bytes) -> bytes:
    """Cuts the middle out of a long text: the beginning says what has happened, and the end says where."""
    if len(text) <= _MAX_ABORT_BYTES:
        return text
    half = _MAX_ABORT_BYTES // 2
    note = f" [… {len(text) - 2 * half} bytes …] ".encode()
    return text[:half].decode(errors="ignore").encode() + note + text[-half:].decode(errors="ignore").encode()


def _install_hooks() -> None:
    global _hooks_of
    if _hooks_of == os.getpid():
        return
    if _hooks_of == 0:
        atexit.register(_at_exit)
        previous = sys.excepthook

        def hook(kind, value, trace):
            is_reported = _print_report(kind, value, trace)
            # A hook of the program, such as one that sends errors to a server, gets every exception.
            if not is_reported or not (previous is sys.__excepthook__ or hasattr(previous, "hides_starters")):
                previous(kind, value, trace)
            _abort_for(kind, value, trace)

        sys.excepthook = hook
    _hooks_of = os.getpid()


def _abort_for(kind: type, value: BaseException, trace: Any) -> None:
    # After a fault of the job, the other ranks know of the fault and its first cause already.
    if _hooks_of != os.getpid() or not _engine.is_initialized() or isinstance(value, errors.HorovodInternalError):
        return
    abort(_uncaught.described(kind, value, trace))


def _print_report(kind: type, value: BaseException, trace: Any) -> bool:
    """Prints the text of `_uncaught.report` and returns True. If there is no such text, prints the cause in one line
    and returns False: a traceback follows, which may be long and mixed with those of other ranks. Prints nothing and
    returns False if this process is not one of several ranks."""
    if _hooks_of != os.getpid() or not _engine.is_initialized() or size() == 1:
        return False
    text = _uncaught.report(kind, value, trace, rank())
    # One write, so that the lines of several ranks do not mix.
    sys.stderr.write(text or f"rank {rank()}: {_uncaught.described(kind, value, trace)}\n")
    sys.stderr.flush()
    return text is not None


def _at_exit() -> None:
    if _hooks_of != os.getpid():  # a forked child is not in the job
        return
    try:
        shutdown()
    except errors.Error as error:
        print(f"farandole: leaving the job: {error}", file=sys.stderr)


def is_initialized() -> bool:
    """True if this process is in a job. False in a process that was forked from a rank."""
    return _engine.is_initialized()


def rank() -> int:
    """0-based index of this process in the job. Raises InvalidArgument before `init`, as do `size` and the functions up
    to `is_homogeneous`."""
    return _engine.place().rank


def warn_once(text: str) -> None:
    """Logs a warning on rank 0, unless this process has logged the same text before."""
    if rank() == 0 and text not in _warned:
        _warned.add(text)
        _engine.log("warning", text)


def size() -> int:
    """Number of ranks in the job."""
    return _engine.place().size


def local_rank() -> int:
    """0-based index among the ranks of this host."""
    return _engine.place().local_rank


def local_size() -> int:
    """Number of ranks on this host."""
    return _engine.place().local_size


def cross_rank() -> int:
    """0-based index among the ranks, one per host, that have this local rank."""
    return _engine.place().cross_rank


def cross_size() -> int:
    """Number of hosts that have a rank with this local rank."""
    return _engine.place().cross_size


def is_homogeneous() -> bool:
    """True if every host has the same number of ranks."""
    return bool(_engine.place().is_homogeneous)


def counters() -> Dict[str, int]:
    """Statistics of the engine since `init`: the fields of farandole_counters in engine.h. All 0 before `init`."""
    return _engine.counters()


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Starts a timeline: rank 0 writes into a file when each named tensor was negotiated, waited and moved.
    chrome://tracing and Perfetto open the file at any time. Replaces the file, and ends a timeline that is being
    written. No-op on other ranks, so either all ranks or rank 0 alone may call this function.

    mark_cycles: also marks each negotiation.

    FARANDOLE_TIMELINE starts a timeline at `init`. Raises InvalidArgument before `init`, and on rank 0 if the file
    cannot be written.
    """
    _engine.call("farandole_start_timeline", os.fsencode(file_path), int(bool(mark_cycles)))


def stop_timeline() -> None:
    """Ends the timeline once everything is written, as `shutdown` does. No-op without a timeline. Raises
    InvalidArgument before `init`."""
    _engine.call("farandole_stop_timeline")
