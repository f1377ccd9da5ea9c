# SPDX-License-Identifier: Apache-2.0
"""Checks before a job starts: finds the launcher, and tests whether the hosts are reachable. A launcher itself responds
to an unreachable host with a prompt, a hang or a page of text."""

import os
import shlex
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import List, Mapping, Optional, Sequence

from .. import errors
from .._info import info
from . import _hosts
from ._commands import ssh_arguments
from ._launchers import Launcher, Options, find_launcher, refuse_ranks

_SECONDS_FOR_SSH = 30  # horovodrun's --start-timeout
_MAX_CONCURRENT = 32
# Variables in which the launcher finds the program to call instead of ssh.
_AGENTS = {
    "openmpi": "OMPI_MCA_plm_rsh_agent",
    "mpich": "HYDRA_LAUNCHER_EXEC",
    "intelmpi": "I_MPI_HYDRA_BOOTSTRAP_EXEC",
}


def find(options: Options) -> Launcher:
    """Finds the launcher for a job. Raises InvalidArgument if
    this process is a rank, and the errors of find_launcher."""
    environment = {**os.environ, **options.settings}
    refuse_ranks(environment)
    return find_launcher(environment, options.launcher, lambda: info()["plugins"])


_INTERPRETERS = {".py": "python", ".sh": "bash"}


def check_program(program: Sequence[str], name: str, options: Sequence[str]) -> None:
    """Checks the program of a job on this host, because launchers answer a wrong program with a page of text.

    name, options: the words of the command line before `program`, for messages.

    Raises InvalidArgument for a program that does not exist, or that needs an interpreter.
    """
    path = shutil.which(program[0]) or program[0]
    if not os.path.isfile(path):
        missing = f"there is no program {program[0]}, neither on PATH nor in this directory"
        if program[0] == "python" and shutil.which("python3"):
            missing += f"; did you mean: {name} {shlex.join([*options, 'python3', *program[1:]])}"
        raise errors.InvalidArgument(missing)
    interpreter = _INTERPRETERS.get(os.path.splitext(path)[1])
    problem = _why_not_executable(path, interpreter)
    if problem and interpreter:
        meant = f"{name} {shlex.join([*options, interpreter, *program])}"
        raise errors.InvalidArgument(f"{program[0]} {problem}; did you mean: {meant}")
    if problem:
        raise errors.InvalidArgument(f"{program[0]} {problem}; chmod +x {shlex.quote(path)} changes that")


def _why_not_executable(path: str, interpreter: Optional[str]) -> str:
    if not os.access(path, os.X_OK):
        return "is not executable"
    if interpreter is None:
        return ""
    with open(path, "rb") as file:
        return "" if file.read(2) == b"#!" else "has no first line with #! and its interpreter"


def prepare(launcher: Launcher, options: Options, environment: Mapping[str, str]) -> None:
    """Creates the directory for output, and connects to each host that the launcher will reach by ssh.

    Raises Unsupported with the unreachable hosts, OSError if the directory cannot be created.
    """
    if options.output_filename:
        os.makedirs(options.output_filename, exist_ok=True)
    if _reaches_by_ssh(launcher, environment):
        _check_ssh(launcher, options, environment)


def _reaches_by_ssh(launcher: Launcher, environment: Mapping[str, str]) -> bool:
    # Within a Slurm allocation, mpirun and mpiexec start their daemons by srun.
    if launcher.kind == "srun" or environment.get("SLURM_JOB_ID"):
        return False
    agent = shlex.split(environment.get(_AGENTS[launcher.flavour], "")) or ["ssh"]
    return os.path.basename(agent[0]) == "ssh"


def _check_ssh(launcher: Launcher, options: Options, environment: Mapping[str, str]) -> None:
    remote = [name for name, _ in options.hosts if not _hosts.is_this_one(name)]
    if not remote:
        return
    seconds = options.start_seconds or _SECONDS_FOR_SSH
    ssh = ["ssh", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={seconds}"]
    ssh += ssh_arguments(launcher, options, environment)
    with ThreadPoolExecutor(min(len(remote), _MAX_CONCURRENT)) as pool:
        answers = [each for each in pool.map(lambda host: _why_unreachable(ssh, host, seconds), remote) if each]
    if answers:
        raise errors.Unsupported("\n  ".join(["ssh does not reach all hosts without a question:", *answers]))


def _why_unreachable(ssh: List[str], host: str, seconds: int) -> Optional[str]:
    """None if the host is reachable. Otherwise a line with ssh's message and the remedy."""
    try:
        asked = subprocess.run(
            [*ssh, host, "true"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds + 5
        )
    except FileNotFoundError:
        return f"{host}: there is no ssh on PATH; install openssh-client"
    except subprocess.TimeoutExpired:
        return f"{host}: no answer in {seconds + 5} s; see whether the host is up, or give more time (--start-timeout)"
    if asked.returncode == 0:
        return None
    said = (asked.stderr.strip().splitlines() or [f"exit status {asked.returncode}"])[-1]
    return f"{host}: {said}; {_what_to_do(said, host)}"


def _what_to_do(said: str, host: str) -> str:
    if "Permission denied" in said:
        return f"it wants a password or another key: ssh-copy-id {host}, or name the key with -i FILE"
    if "Host key verification failed" in said:
        return f"log in once by hand to accept its key: ssh {host}"
    if "Could not resolve" in said:
        return "name it as this machine's resolver or ~/.ssh/config knows it"
    return f"try by hand: ssh -o BatchMode=yes {host} true"
