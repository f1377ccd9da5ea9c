# SPDX-License-Identifier: Apache-2.0
"""Implements `farandole.run`: runs a Python function on all ranks of a new job."""

import contextlib
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from .. import _quiet, errors
from . import _checks, _commands, _options, _task

_SECONDS_TO_END = 10  # for the launcher to end its ranks
# Executes a program to which the kernel sends SIGTERM when its parent ends in any way. 1 is PR_SET_PDEATHSIG.
_WITH_PARENT = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 15, 0, 0, 0); os.execvp(sys.argv[1], sys.argv[1:])"
)


def run(
    func: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Optional[Mapping[str, Any]] = None,
    num_proc: int = 1,
    min_num_proc: Optional[int] = None,
    max_num_proc: Optional[int] = None,
    slots: Optional[int] = None,
    reset_limit: Optional[int] = None,
    cooldown_range: Optional[Tuple[int, int]] = None,
    hosts: Optional[str] = None,
    hostfile: Optional[str] = None,
    host_discovery_script: Optional[str] = None,
    start_timeout: Optional[int] = None,
    ssh_port: Optional[int] = None,
    ssh_identity_file: Optional[str] = None,
    disable_cache: Optional[bool] = None,
    output_filename: Optional[str] = None,
    verbose: Optional[bool] = None,
    use_gloo: Optional[bool] = None,
    use_mpi: Optional[bool] = None,
    mpi_args: Optional[str] = None,
    network_interface: Optional[str] = None,
    network_interfaces: Optional[Sequence[str]] = None,
    executable: Optional[str] = None,
    np: Optional[int] = None,
    min_np: Optional[int] = None,
    max_np: Optional[int] = None,
    *,
    env: Optional[Mapping[str, str]] = None,
) -> List[Any]:
    """Starts a job, calls `func(*args, **kwargs)` on each of its ranks, and returns the results in the order of the
    ranks.

        def train(epochs):
            farandole.init()
            …
            return loss
        losses = farandole.run(train, args=(10,), np=4)

    Uses the launcher that farandole-run would use. Blocks until the job has ended. Call it in a program that is not a
    rank itself; `func` calls `init`.

    num_proc, np: number of ranks.
    hosts: "host1:2,host2:2", names and numbers of ranks. Without `hosts` and `hostfile`, this host.
    hostfile: path of a file with lines "host slots=2".
    host_discovery_script: raises InvalidArgument, because the hosts of a job are fixed; use `hosts` or `hostfile`.
    ssh_port, ssh_identity_file, network_interface ("eth0,eth1"), mpi_args: passed to the launcher.
    network_interfaces: older form of network_interface, a list of names.
    output_filename: directory for files with the ranks' output, named by the launcher. None: the ranks write to this
        process's output.
    verbose: prints the launcher's command line.
    executable: Python interpreter of the ranks; None: this interpreter.
    env: variables that are added to this process's environment for the ranks.
    All other arguments are Horovod's, without effect: the ranks of a job are fixed, and a launcher starts them.

    The function, its arguments and the results travel as pickles, through files that only this user can read.
    cloudpickle makes the pickles, so functions of the main program and lambdas are possible. The files are in the
    directory for temporary files or, with other hosts, in the current directory, which all hosts must share.

    Raises RuntimeError with the text of the first error if a rank fails, InvalidArgument for arguments that cannot
    work, and Unsupported if no launcher is installed.
    """
    ranks = np if np is not None and num_proc == 1 else num_proc
    _warn_fixed_ranks(min_num_proc or min_np, max_num_proc or max_np, ranks)
    _check_arguments(func, host_discovery_script, use_gloo, use_mpi)
    options = _options.make_options(
        hosts=hosts,
        hostfile=hostfile,
        ranks=ranks,
        settings={**_quiet.settings({**os.environ, **(env or {})}), **(env or {})},
        ssh_port=ssh_port,
        ssh_identity_file=ssh_identity_file,
        network_interfaces=[each for each in _names(network_interface or network_interfaces) if each],
        output_filename=output_filename,
        arguments=mpi_args,
        verbose=bool(verbose),
    )
    launcher = _checks.find(options)
    is_this_host_only = options.is_local() and not launcher.knows_hosts(os.environ)
    with _private_directory(None if is_this_host_only else os.getcwd()) as directory:
        _task.write_call(directory, func, args, kwargs or {})
        program = _task.program(executable or sys.executable, directory)
        options.settings["PYTHONPATH"] = _with_this_package(
            options.settings.get("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
        )
        command = _commands.make_command(launcher, options, program, os.environ)
        if options.verbose:
            print(command.text(), file=sys.stderr, flush=True)
        _checks.prepare(launcher, options, os.environ)
        status = _run(command.words, {**os.environ, **command.settings})
        return _results(directory, ranks, status, getattr(func, "__name__", repr(func)))


def _warn_fixed_ranks(minimum: Optional[int], maximum: Optional[int], ranks: int) -> None:
    if any(each is not None and each != ranks for each in (minimum, maximum)):
        warnings.warn(f"the job has {ranks} ranks to its end; min_num_proc and max_num_proc have no effect", stacklevel=3)


def _check_arguments(
    func: Any, host_discovery_script: Optional[str], use_gloo: Optional[bool], use_mpi: Optional[bool]
) -> None:
    if not callable(func):
        raise errors.InvalidArgument(f"the first argument must be a function that each rank calls, not {func!r}")
    if host_discovery_script is not None:
        raise errors.InvalidArgument(
            "the ranks of a job stay the same, so host_discovery_script has nothing to find; name the hosts with hosts or "
            "hostfile"
        )
    if use_gloo and use_mpi:
        raise errors.InvalidArgument("give either use_gloo or use_mpi; with either, a launcher of MPI or Slurm starts the ranks")


def _names(interfaces: Any) -> Sequence[str]:
    return interfaces.split(",") if isinstance(interfaces, str) else list(interfaces or [])


@contextlib.contextmanager
def _private_directory(parent: Optional[str]) -> Any:
    directory = tempfile.mkdtemp(prefix=".farandole-run-", dir=parent)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _with_this_package(path: str) -> str:
    own = str(Path(__file__).absolute().parents[2])
    return os.pathsep.join([own, *(each for each in path.split(os.pathsep) if each and each != own)])


def _run(command: List[str], environment: Dict[str, str]) -> int:
    job = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _WITH_PARENT, *command], stdin=subprocess.DEVNULL, env=environment
    )
    try:
        return job.wait()
    except BaseException:
        # Ctrl-C in a terminal reaches the launcher, too. Other exceptions do not, so the launcher must be ended.
        job.terminate()
        try:
            job.wait(_SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            job.kill()
            job.wait()
        raise


def _results(directory: str, ranks: int, status: int, name: str) -> List[Any]:
    outcomes = [_task.read_outcome(directory, rank) for rank in range(ranks)]
    failed = [(rank, each) for rank, each in enumerate(outcomes) if each is not None and each.error]
    # The cause comes first, before ranks that failed because of another rank.
    failed.sort(key=lambda pair: (pair[1].is_consequence, pair[0]))
    for rank, outcome in failed:
        raise RuntimeError(f"{name} failed on rank {rank} of {ranks}: {outcome.error}\n\n{outcome.trace}")
    missing = [rank for rank, each in enumerate(outcomes) if each is None]
    if missing or status != 0:
        ended = f"signal {-status}" if status < 0 else f"status {status}"
        which = f"no result came from rank {', '.join(map(str, missing))}" if missing else "all ranks had returned"
        raise RuntimeError(f"{name}: the launcher ended with {ended}; {which}. What the ranks printed says more")
    return [pickle.loads(outcome.result) for outcome in outcomes if outcome is not None]
