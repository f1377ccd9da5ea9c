# SPDX-License-Identifier: Apache-2.0
"""Finds the launcher that starts a job: Open MPI's mpirun, mpiexec of MPICH or Intel MPI, or Slurm's srun."""

import re
import shutil
import subprocess
from dataclasses import dataclass, field
from typing import Callable, Dict, List, Mapping, Optional

from .. import errors
from . import _hosts

KINDS = ("mpirun", "mpiexec", "srun")
_CANDIDATES = {
    "mpirun": ("mpirun", "mpirun.openmpi", "mpiexec"),
    "mpiexec": ("mpirun", "mpiexec", "mpirun.mpich", "mpiexec.hydra"),
}
# Patterns in the output of `--version`, tried in this order. MPICH's output may name only its process manager, Hydra.
# Intel MPI uses Hydra, too, and comes first.
_BANNERS = {
    "openmpi": re.compile(r"Open MPI|OpenRTE"),
    "intelmpi": re.compile(r"Intel\(R\) MPI"),
    "mpich": re.compile(r"HYDRA|MPICH", re.IGNORECASE),
}
# pmix: ranks without MPI, which find each other through the launcher's PMIx server.
_KIND_OF = {"openmpi": "mpirun", "mpich": "mpiexec", "intelmpi": "mpiexec", "pmix": "mpirun"}
_NAMES = {"openmpi": "Open MPI", "mpich": "MPICH", "intelmpi": "Intel MPI", "pmix": "a job without MPI"}
_SECONDS_FOR_A_BANNER = 30
_RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")
# Variables from which a launcher takes its hosts if none are named.
_HOSTS_FROM_ELSEWHERE = {
    "mpirun": ("SLURM_JOB_ID", "OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile"),
    "mpiexec": ("SLURM_JOB_ID", "HYDRA_HOST_FILE", "I_MPI_HYDRA_HOST_FILE"),
    "srun": ("SLURM_JOB_ID",),
}


@dataclass
class Options:
    """Options of a job. hosts: the hosts that the user has named. Empty: this host, or the launcher's own choice."""

    ranks: int = 1
    hosts: _hosts.Hosts = field(default_factory=list)
    launcher: str = "auto"  # or one of KINDS
    settings: Dict[str, str] = field(default_factory=dict)  # variables for the ranks; override this process's
    ssh_port: Optional[int] = None
    ssh_identity_file: Optional[str] = None
    start_seconds: Optional[int] = None  # time limit for the hosts to answer, and for the ranks to start
    network_interfaces: List[str] = field(default_factory=list)
    output_filename: Optional[str] = None
    with_timestamps: bool = False
    tcp_only: bool = False
    binding: Optional[str] = None  # arguments of the launcher that bind ranks to cores
    arguments: Optional[str] = None  # further arguments of the launcher
    verbose: bool = False

    def is_local(self) -> bool:
        """True if no host other than this host was named."""
        return all(_hosts.is_this_one(name) for name, _ in self.hosts)


@dataclass(frozen=True)
class Launcher:
    kind: str  # one of KINDS
    flavour: str  # the ranks' MPI: openmpi, mpich or intelmpi; with srun also pmix, for none
    path: str
    reason: str = "it was asked for"  # why this launcher was chosen

    def described(self) -> str:
        of = "Slurm" if self.kind == "srun" else _NAMES[self.flavour]
        return f"{self.kind} of {of} ({self.path}), because {self.reason}"

    def knows_hosts(self, environment: Mapping[str, str]) -> bool:
        """True if the launcher finds hosts by itself: from an allocation, or from a hostfile that is configured for
        all jobs."""
        return any(environment.get(name) for name in _HOSTS_FROM_ELSEWHERE[self.kind])


def find_launcher(environment: Mapping[str, str], wanted: str = "auto", plugins: Callable[[], List[str]] = list) -> Launcher:
    """Chooses the launcher of a job. wanted: mpirun, mpiexec, srun or auto. "auto" takes Slurm's launcher within an
    allocation, otherwise the launcher of FARANDOLE_MPI, otherwise the first that is installed. plugins: returns the
    names of the installed plug-ins, which decide the ranks' MPI with srun unless FARANDOLE_MPI does.

    Raises Unsupported if there is no launcher, InvalidArgument if FARANDOLE_MPI belongs to a different launcher.
    """
    mpi = environment.get("FARANDOLE_MPI", "auto")
    if wanted in _CANDIDATES and mpi in _KIND_OF and _KIND_OF[mpi] != wanted:
        raise errors.InvalidArgument(
            f"--launcher {wanted} and FARANDOLE_MPI={mpi} contradict each other: {_NAMES[mpi]} is started by {_KIND_OF[mpi]}"
        )
    in_allocation = wanted == "auto" and environment.get("SLURM_JOB_ID")
    if wanted == "srun" or in_allocation:
        path = shutil.which("srun", path=environment.get("PATH"))
        if path:
            reason = f"this is within the allocation {environment['SLURM_JOB_ID']}" if in_allocation else "it was asked for"
            return Launcher("srun", _flavour_for_slurm(mpi, plugins()), path, reason)
        if wanted == "srun":
            raise errors.Unsupported("no srun is on PATH; install slurm-client, or leave --launcher out")
    return _find_mpi(environment, wanted, mpi)


def _flavour_for_slurm(mpi: str, plugins: List[str]) -> str:
    # Every Slurm has PMI-2, which MPICH uses; PMIx, which Open MPI uses, is optional in builds of Slurm.
    if mpi in _KIND_OF:
        return mpi
    return next((each for each in ("mpich", "openmpi") if f"mpi_{each}" in plugins), "pmix")


def _find_mpi(environment: Mapping[str, str], wanted: str, mpi: str) -> Launcher:
    kinds = [wanted] if wanted in _CANDIDATES else [_KIND_OF[mpi]] if mpi in _KIND_OF else list(_CANDIDATES)
    reason = "it is the first that is installed"
    if wanted in _CANDIDATES:
        reason = "it was asked for"
    elif mpi in _KIND_OF:
        reason = f"FARANDOLE_MPI is {mpi}"
    seen = []
    for name in dict.fromkeys(name for kind in kinds for name in _CANDIDATES[kind]):
        path = shutil.which(name, path=environment.get("PATH"))
        flavour = _flavour_of(path) if path else None
        if path and flavour and _KIND_OF[flavour] in kinds:
            return Launcher(_KIND_OF[flavour], flavour, path, reason)
        if path:
            seen.append(f"{path} is {'that of ' + _NAMES[flavour] if flavour else 'of an unknown MPI'}")
    tried = " or ".join({"mpirun": "mpirun of Open MPI", "mpiexec": "mpiexec of MPICH or Intel MPI"}[kind] for kind in kinds)
    raise errors.Unsupported(
        f"no {tried} is on PATH{' (' + '; '.join(seen) + ')' if seen else ''}; install one (Debian: openmpi-bin, mpich), or "
        "start the processes without MPI as docs/quickstart.md says"
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
    """The rank that a launcher has assigned to this process; None if no launcher has started the process."""
    return next((int(environment[name]) for name in _RANKS if environment.get(name, "").isdigit()), None)


def refuse_ranks(environment: Mapping[str, str]) -> None:
    """Raises InvalidArgument if this process is a rank: launchers do not start within a job of their own."""
    rank = own_rank(environment)
    if rank is not None:
        raise errors.InvalidArgument(
            f"this process is rank {rank} of a job already; start a further job from a program of one process"
        )
