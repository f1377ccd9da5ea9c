# SPDX-License-Identifier: Apache-2.0
"""Start and end of the job, and where this process is in it."""

import atexit
import contextlib
import os
import re
import signal
import sys
import textwrap
import threading
import traceback
from ctypes import byref
from typing import Any, Dict, Iterator, List, Optional, Sequence, Set, Tuple, Union

from . import _engine, _missing_scope, _work, errors, objects
from ._horovod import environment
from .process_sets import ProcessSet, forget_all, register_all

_warned: Set[str] = set()  # texts of warn_once
_hooks_of = 0  # id of the process that has installed the hooks below
_MOST_ABORT_BYTES = 1900  # of the 2019 in the message to the other ranks, in which rank, host and process stand too
# What TensorFlow raises where an op of a function fails.
_GRAPH_ERROR = "Graph execution error:"
_FRAME = re.compile(r'^ *File "(.*)", line (\d+)', re.MULTILINE)
_IN_USER_CODE = ": in user code:"
# Files that the program's author has not written.
_LIBRARIES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}", "__autograph_generated_file", "<")


def init(
    comm: Any = None,
    process_sets: Optional[Union[str, Sequence[ProcessSet]]] = None,
    expected_size: int = 0,
) -> None:
    """Joins the job that mpirun or Slurm started, or that FARANDOLE_RANK, FARANDOLE_SIZE and FARANDOLE_JOB (over several
    hosts FARANDOLE_RENDEZVOUS), or torchrun's variables name, else a job of this process alone. All processes call it; blocks until they have. Does nothing if the job is joined already.

    comm: None for all processes, or an mpi4py communicator whose processes become the job.
    process_sets: sets to make at once, the same on all ranks; "dynamic" is accepted and means none. More can be added
        at any time. What can not be made is an InvalidArgument on all ranks, also where one rank's list is wrong.
    expected_size: number of ranks that there must be; 0 for any.

    From then on an uncaught exception of this process ends the job on all ranks with its text, and the end of the
    interpreter leaves the job by a clean shutdown.

    A process that is forked from this one is no rank: every call there raises InvalidArgument and says so, except that
    it may call `init` itself: alone, or with FARANDOLE_RANK, FARANDOLE_SIZE and FARANDOLE_JOB of its own in another job.

    Raises InvalidArgument, Unsupported, TransportError.
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
    forget_all()  # a forked child still has its parent's
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
    if refused is not None:  # on all ranks: the job ends without a fault
        shutdown()
        raise refused


@contextlib.contextmanager
def _interrupts_end_the_process() -> Iterator[None]:
    """Ctrl-C while nothing is joined yet: Python's own handler would only run once C code has returned."""
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
    """The sets that init() was given, and why they can not be made, if so: raised once all ranks know of it, as the
    others would wait for this one."""
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
    """What all ranks raise instead of making the sets: some rank's can not be made, or the ranks were given different
    ones. Collective."""
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
    """Leaves the job. Blocks until all ranks have called it; what is pending here fails.

    `init` may be called again, in a job of MPI only if the program has initialised MPI itself (with mpi4py): MPI can be
    initialised once in a process.

    After a fault of the job it does not wait. Does nothing before `init`.
    """
    if _engine.is_initialized():
        try:
            _engine.call("farandole_shutdown")
        finally:
            forget_all()


def abort(text: str) -> None:
    """Ends the job: everything that is pending or comes later fails on all ranks with PeerLost, this rank and `text`, of
    which the middle is left out where it has more than 1900 bytes. Does not block and does not end this process."""
    _engine.need_initialized()
    _engine.lib.farandole_abort(_shortened(text.encode()))


def _shortened(text: bytes) -> bytes:
    """Its beginning, which says what has happened, and its end, which says where."""
    if len(text) <= _MOST_ABORT_BYTES:
        return text
    half = _MOST_ABORT_BYTES // 2
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
            _print_cause(kind, value, trace)
            previous(kind, value, trace)
            _abort_for(kind, value, trace)

        sys.excepthook = hook
    _hooks_of = os.getpid()


def _abort_for(kind: type, value: BaseException, trace: Any) -> None:
    # After a fault of the job the others have heard of it, and of its first cause.
    if _hooks_of != os.getpid() or not _engine.is_initialized() or isinstance(value, errors.HorovodInternalError):
        return
    abort(_described(kind, value, trace))


def _print_cause(kind: type, value: BaseException, trace: Any) -> None:
    """The cause in one line, before the traceback, which in libraries is long: in a job it is one of several."""
    if _hooks_of == os.getpid() and _engine.is_initialized() and size() > 1:
        print(f"rank {rank()}: {_described(kind, value, trace)}", file=sys.stderr)


def _described(kind: type, value: BaseException, trace: Any) -> str:
    """What was raised, and where in the program."""
    text = "".join(traceback.format_exception_only(kind, value)).strip()
    frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(trace)]
    if f": {_GRAPH_ERROR}" in text:
        frames += _frames_in(text)
        text = f"{kind.__name__}: {_cause_in_graph(text)}"
    elif _IN_USER_CODE in text:  # AutoGraph: the traceback of what it has made of the program
        frames += _frames_in(text)
        text = _cause_in_user_code(text)
    # Where the program was, not where it waits in here or in a library.
    own = os.path.dirname(os.path.abspath(__file__)) + os.sep
    outside = [frame for frame in frames if not frame[0].startswith(own)]
    written = [frame for frame in outside if not any(part in frame[0] for part in _LIBRARIES)]
    for name, line in (written or outside)[-1:]:
        # What has happened on another rank has a place of its own in it.
        text += f"; raised at {name}:{line}" if isinstance(value, errors.Error) else f" ({name}:{line})"
    return text


def _frames_in(text: str) -> List[Tuple[str, int]]:
    return [(name, int(line)) for name, line in _FRAME.findall(text)]


def _cause_in_user_code(text: str) -> str:
    """The error with all of its lines, which stands below the lines of code in the text of AutoGraph."""
    last = list(_FRAME.finditer(text))[-1:]
    below = text[last[0].end() :].split("\n\n", 1) if last else []
    return textwrap.dedent(below[1]).strip() if len(below) == 2 and below[1].strip() else text


def _cause_in_graph(text: str) -> str:
    """The message of an op, which TensorFlow writes below the graph's own traceback and above the name of the op."""
    lines = text.split("\n\t [[", 1)[0].splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), text)


def _at_exit() -> None:
    if _hooks_of != os.getpid():  # a forked child is not in the job
        return
    try:
        shutdown()
    except errors.Error as error:
        print(f"farandole: leaving the job: {error}", file=sys.stderr)


def is_initialized() -> bool:
    """Whether this process is in a job. False in a process that was forked from a rank."""
    return _engine.is_initialized()


def rank() -> int:
    """0-based index of this process in the job. This and what follows raise InvalidArgument before `init`."""
    return _engine.place().rank


def warn_once(text: str) -> None:
    """Rank 0 logs a warning, unless this process has logged the same one before."""
    if rank() == 0 and text not in _warned:
        _warned.add(text)
        _engine.log("warning", text)


def size() -> int:
    """Number of ranks."""
    return _engine.place().size


def local_rank() -> int:
    """Index among the ranks of this host."""
    return _engine.place().local_rank


def local_size() -> int:
    """Number of ranks of this host."""
    return _engine.place().local_size


def cross_rank() -> int:
    """Index among the ranks of all hosts that have this local rank."""
    return _engine.place().cross_rank


def cross_size() -> int:
    """Number of hosts that have a rank with this local rank."""
    return _engine.place().cross_size


def is_homogeneous() -> bool:
    """Whether every host has the same number of ranks."""
    return bool(_engine.place().is_homogeneous)


def counters() -> Dict[str, int]:
    """What the engine has done since `init`: the fields of farandole_counters in engine.h."""
    return _engine.counters()


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """From now on rank 0 writes into this file when each named tensor was negotiated, waited and moved; chrome://tracing and
    Perfetto open it, at any time. It is replaced; one that was being written is ended. On other ranks nothing happens, so all
    or only rank 0 may call it.

    mark_cycles: mark each negotiation too.

    FARANDOLE_TIMELINE does the same from `init` on. Raises InvalidArgument before `init`, and on rank 0 if the file can not
    be written.
    """
    _engine.call("farandole_start_timeline", os.fsencode(file_path), int(bool(mark_cycles)))


def stop_timeline() -> None:
    """Ends the file once all is written, as `shutdown` does. Does nothing if there is none. Raises InvalidArgument before
    `init`."""
    _engine.call("farandole_stop_timeline")
