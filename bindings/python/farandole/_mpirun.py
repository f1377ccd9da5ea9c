# SPDX-License-Identifier: Apache-2.0
"""The mpirun of this machine: which MPI it belongs to, and its command line for a job."""

import os
import re
import shlex
import shutil
import socket
import subprocess
from dataclasses import dataclass, field
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from . import errors

_CANDIDATES = {
    "openmpi": ("mpirun", "mpirun.openmpi", "mpiexec"),
    "mpich": ("mpirun", "mpirun.mpich", "mpiexec.hydra", "mpiexec"),
}
# What `--version` says of them.
_BANNERS = {"openmpi": re.compile(r"Open MPI|OpenRTE"), "mpich": re.compile(r"HYDRA|MPICH", re.IGNORECASE)}
_SECONDS_FOR_A_BANNER = 30
_RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")
_EXPORTED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Of this session and this host; the others of a job have their own.
_NOT_EXPORTED = re.compile(r"(OLDPWD|PWD|SHLVL|HOSTNAME|TERM|_|(SSH|XDG|DBUS|OMPI|PMIX|PMI)_.*)")


@dataclass
class Options:
    """How a job is started. Hosts are pairs of a name and the number of processes that it takes, none for this one."""

    ranks: int = 1
    hosts: List[Tuple[str, int]] = field(default_factory=list)
    settings: Dict[str, str] = field(default_factory=dict)  # variables for the ranks, over those of this process
    ssh_port: Optional[int] = None
    ssh_identity_file: Optional[str] = None
    network_interfaces: List[str] = field(default_factory=list)
    output_filename: Optional[str] = None
    with_timestamps: bool = False
    tcp_only: bool = False
    binding: Optional[str] = None  # arguments of mpirun
    arguments: Optional[str] = None  # further ones
    verbose: bool = False

    def is_local(self) -> bool:
        """Whether all ranks run on this host."""
        own = socket.gethostname()
        return all(name in ("localhost", "127.0.0.1", own, own.split(".")[0]) for name, _ in self.hosts)


@dataclass(frozen=True)
class Launcher:
    flavour: str  # "openmpi" or "mpich"
    path: str


def find_launcher(environment: Mapping[str, str]) -> Launcher:
    """The launcher of FARANDOLE_MPI where that is set, else the first that is found, Open MPI's or MPICH's.

    Raises Unsupported if there is none.
    """
    wanted = environment.get("FARANDOLE_MPI", "auto")
    flavours = [wanted] if wanted in _CANDIDATES else list(_CANDIDATES)
    for name in dict.fromkeys(name for flavour in flavours for name in _CANDIDATES[flavour]):
        path = shutil.which(name, path=environment.get("PATH"))
        flavour = _flavour_of(path) if path else None
        if path and flavour in flavours:
            return Launcher(flavour, path)
    tried = " or ".join({"openmpi": "Open MPI", "mpich": "MPICH"}[flavour] for flavour in flavours)
    raise errors.Unsupported(
        f"no mpirun of {tried} is on PATH; install one, or start the processes without MPI as docs/quickstart.md says"
    )


def _flavour_of(path: str) -> Optional[str]:
    try:
        asked = subprocess.run(
            [path, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SECONDS_FOR_A_BANNER
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return next((flavour for flavour, banner in _BANNERS.items() if banner.search(asked.stdout)), None)


def own_rank(environment: Mapping[str, str]) -> Optional[int]:
    """The rank that a launcher has given to this process; None if it was started by no launcher."""
    return next((int(environment[name]) for name in _RANKS if environment.get(name, "").isdigit()), None)


def job_environment(options: Options, environment: Mapping[str, str]) -> Dict[str, str]:
    """The variables that mpirun is started with, and the ranks with it.

    Raises InvalidArgument in a process that is a rank: mpirun does not start within a job of its own.
    """
    rank = own_rank(environment)
    if rank is not None:
        raise errors.InvalidArgument(
            f"this process is rank {rank} of a job already; start a further job from a program of one process"
        )
    return {**environment, **options.settings}


def command_line(launcher: Launcher, options: Options, program: Sequence[str], names: Sequence[str]) -> List[str]:
    """mpirun's arguments. `names`: the variables of its environment, which ranks on other hosts get too.

    Raises InvalidArgument where the hosts do not take the ranks, Unsupported for what this launcher does not have.
    """
    slots = sum(count for _, count in options.hosts)
    if options.ranks < 1:
        raise errors.InvalidArgument(f"the number of processes must be at least 1, not {options.ranks}")
    if options.hosts and slots < options.ranks:
        raise errors.InvalidArgument(
            f"{options.ranks} processes were asked for, but {_list_of(options.hosts)} takes {slots}; "
            "ask for fewer, or give more hosts or slots (HOST:SLOTS)"
        )
    make = _open_mpi if launcher.flavour == "openmpi" else _mpich
    return [launcher.path, *make(options, names), *shlex.split(options.arguments or ""), *program]


def _list_of(hosts: Sequence[Tuple[str, int]]) -> str:
    return ",".join(f"{name}:{count}" for name, count in hosts)


def _ssh_arguments(options: Options) -> List[str]:
    port = ["-p", str(options.ssh_port)] if options.ssh_port else []
    return port + (["-i", options.ssh_identity_file] if options.ssh_identity_file else [])


def _open_mpi(options: Options, names: Sequence[str]) -> List[str]:
    hosts = options.hosts or [("localhost", options.ranks)]
    made = ["--allow-run-as-root", "-np", str(options.ranks), "-H", _list_of(hosts)]
    made += shlex.split(options.binding) if options.binding else ["--bind-to", "none", "--map-by", "slot"]
    if options.tcp_only:
        made += ["--mca", "pml", "ob1", "--mca", "btl", "self,tcp"]
    if _ssh_arguments(options):
        made += ["--mca", "plm_rsh_args", shlex.join(_ssh_arguments(options))]
    if options.network_interfaces:
        interfaces = ",".join(options.network_interfaces)
        made += ["--mca", "btl_tcp_if_include", interfaces, "--mca", "oob_tcp_if_include", interfaces]
    if options.output_filename:
        made += ["--output-filename", os.path.abspath(options.output_filename)]
    if options.with_timestamps:
        made.append("--timestamp-output")
    if not options.is_local():
        for name in sorted(names):
            if _EXPORTED.fullmatch(name) and not _NOT_EXPORTED.fullmatch(name):
                made += ["-x", name]
    return made


def _mpich(options: Options, names: Sequence[str]) -> List[str]:
    made = ["-np", str(options.ranks)]
    if options.hosts:
        made += ["-hosts", _list_of(options.hosts)]
    if options.binding:
        made += shlex.split(options.binding)
    if len(options.network_interfaces) > 1:
        raise errors.Unsupported(
            f"MPICH's mpirun takes one network interface, not {','.join(options.network_interfaces)}; name one of them"
        )
    if options.network_interfaces:
        made += ["-iface", options.network_interfaces[0]]
    if _ssh_arguments(options):
        made += ["-genv", "HYDRA_LAUNCHER_EXTRA_ARGS", shlex.join(_ssh_arguments(options))]
    if options.output_filename:
        directory = os.path.abspath(options.output_filename)
        os.makedirs(directory, exist_ok=True)
        made += ["-outfile-pattern", f"{directory}/rank.%r.stdout", "-errfile-pattern", f"{directory}/rank.%r.stderr"]
    if options.with_timestamps or options.tcp_only:
        what = "timestamps for output" if options.with_timestamps else "option for TCP only"
        raise errors.Unsupported(f"MPICH's mpirun has no {what}; use Open MPI's (FARANDOLE_MPI=openmpi)")
    return made
