# SPDX-License-Identifier: Apache-2.0
"""Makes the command line of a job, for each launcher. Pure functions, so tests need no launcher."""

import os
import re
import shlex
from dataclasses import dataclass, field
from typing import Callable, Dict, List, Mapping, Sequence

from .. import errors
from . import _hosts
from ._launchers import Launcher, Options

_EXPORTED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Variables of this session and this host; ranks on other hosts have their own.
_NOT_EXPORTED = re.compile(r"(OLDPWD|PWD|SHLVL|HOSTNAME|TERM|_|(SSH|XDG|DBUS|OMPI|PMIX|PMI|HYDRA|SLURM)_.*)")
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL", re.IGNORECASE)


@dataclass
class Command:
    """The command that starts a job. `words` never contain values
    of variables, because all users of a machine can read them."""

    words: List[str]
    settings: Dict[str, str] = field(default_factory=dict)  # variables of the launcher; override this process's
    notes: List[str] = field(default_factory=list)  # options that have no effect, and why

    def text(self) -> str:
        """The command for a shell. Replaces values that may be secrets by a reference to the shell's variable."""
        settings = [
            f'{name}="${name}"' if _SECRET.search(name) else f"{name}={shlex.quote(value)}"
            for name, value in sorted(self.settings.items())
        ]
        return " ".join([*(["env", *settings] if settings else []), shlex.join(self.words)])


def make_command(
    launcher: Launcher, options: Options, program: Sequence[str], environment: Mapping[str, str]
) -> Command:
    """Makes the command that starts `program`. environment: of this process.

    Raises InvalidArgument if the hosts have too few slots, Unsupported for options that the launcher does not support.
    """
    _check_slots(launcher, options, environment)
    command = Command([launcher.path], dict(options.settings))
    _choose_network(command, options)
    maker: Callable[[Command, Launcher, Options, Mapping[str, str]], None] = _MAKERS[launcher.kind]
    maker(command, launcher, options, environment)
    command.words += shlex.split(options.arguments or "")
    if launcher.flavour == "intelmpi" and options.hosts:
        command.words += _argument_sets(options, program)
    else:
        command.words += program
    return command


# Variables from which each launcher takes further arguments of ssh. An administrator or the user may have set them for
# all jobs.
_SSH_VARIABLES = {
    "openmpi": "OMPI_MCA_plm_rsh_args",
    "mpich": "HYDRA_LAUNCHER_EXTRA_ARGS",
    "intelmpi": "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS",
}


def _own_ssh_arguments(options: Options) -> List[str]:
    port = ["-p", str(options.ssh_port)] if options.ssh_port else []
    return port + (["-i", options.ssh_identity_file] if options.ssh_identity_file else [])


def ssh_arguments(launcher: Launcher, options: Options, environment: Mapping[str, str]) -> List[str]:
    """Arguments that the launcher passes to ssh before the host: first
    the arguments configured for all jobs, then this job's port and key."""
    return [*shlex.split(environment.get(_SSH_VARIABLES[launcher.flavour], "")), *_own_ssh_arguments(options)]


def _check_slots(launcher: Launcher, options: Options, environment: Mapping[str, str]) -> None:
    if options.ranks < 1:
        raise errors.InvalidArgument(f"the number of processes must be at least 1, not {options.ranks}")
    if options.hosts:
        slots = sum(count for _, count in options.hosts)
        if slots < options.ranks:
            raise errors.InvalidArgument(
                f"{options.ranks} processes were asked for, but {_hosts.text_of(options.hosts)} takes {slots}; "
                "ask for fewer, or give more hosts or slots (HOST:SLOTS)"
            )
    elif launcher.kind == "srun" and environment.get("SLURM_JOB_ID"):
        tasks = _hosts.slots_of_slurm(environment)
        if tasks is not None and tasks < options.ranks:
            raise errors.InvalidArgument(
                f"{options.ranks} processes were asked for, but the allocation {environment['SLURM_JOB_ID']} takes {tasks} "
                f"tasks (SLURM_TASKS_PER_NODE={environment['SLURM_TASKS_PER_NODE']}); ask for fewer, or allocate more "
                f"(salloc -n {options.ranks})"
            )


def _choose_network(command: Command, options: Options) -> None:
    """Chooses the network of Farandole's own connections between hosts. The function of each launcher (_MAKERS) chooses
    MPI's network."""
    if options.tcp_only:
        command.settings.setdefault("FARANDOLE_NETWORK", "tcp")
    if len(options.network_interfaces) == 1:
        command.settings.setdefault("FARANDOLE_NETWORK_INTERFACE", options.network_interfaces[0])
    elif options.network_interfaces:
        names = ",".join(options.network_interfaces)
        command.notes.append(
            f"{names} hold for MPI only: Farandole's own connections use the route to each host; a single name holds for both"
        )


def _refuse(launcher: Launcher, what: str, instead: str) -> None:
    raise errors.Unsupported(f"{launcher.path} has no {what}; {instead}")


def _output_files(options: Options, rank: str) -> List[str]:
    directory = os.path.abspath(options.output_filename or "")
    return [f"{directory}/rank.{rank}.{stream}" for stream in ("stdout", "stderr")]


def _open_mpi(command: Command, launcher: Launcher, options: Options, environment: Mapping[str, str]) -> None:
    made = ["--allow-run-as-root", "-np", str(options.ranks)]
    knows_hosts = launcher.knows_hosts(environment)
    if options.hosts or not knows_hosts:
        made += ["-H", _hosts.text_of(options.hosts or [("localhost", options.ranks)])]
    made += shlex.split(options.binding) if options.binding else ["--bind-to", "none", "--map-by", "slot"]
    if options.tcp_only:
        made += ["--mca", "pml", "ob1", "--mca", "btl", "self,tcp"]
    if _own_ssh_arguments(options):
        made += ["--mca", "plm_rsh_args", shlex.join(ssh_arguments(launcher, options, environment))]
    if options.start_seconds:
        made += ["--mca", "orte_startup_timeout", str(options.start_seconds)]
    if options.network_interfaces:
        interfaces = ",".join(options.network_interfaces)
        made += ["--mca", "btl_tcp_if_include", interfaces, "--mca", "oob_tcp_if_include", interfaces]
    if options.output_filename:
        made += ["--output-filename", os.path.abspath(options.output_filename)]
    if options.with_timestamps:
        made.append("--timestamp-output")
    if not options.is_local() or (knows_hosts and not options.hosts):
        # -x with a name only: mpirun takes the value from its environment.
        for name in sorted({**environment, **command.settings}):
            if _EXPORTED.fullmatch(name) and not _NOT_EXPORTED.fullmatch(name):
                made += ["-x", name]
    command.words += made


def _hydra(command: Command, launcher: Launcher, options: Options, environment: Mapping[str, str]) -> None:
    """Options for mpiexec of MPICH and Intel MPI, which exports the whole environment."""
    made = []
    if options.hosts and launcher.flavour == "mpich":
        made += ["-hosts", _hosts.text_of(options.hosts)]
    if options.binding:
        made += shlex.split(options.binding)
    if len(options.network_interfaces) > 1:
        _refuse(launcher, f"way to take several network interfaces ({','.join(options.network_interfaces)})", "name one")
    if options.network_interfaces:
        made += ["-iface", options.network_interfaces[0]]
    if _own_ssh_arguments(options):
        # mpiexec splits the variable at blanks.
        command.settings[_SSH_VARIABLES[launcher.flavour]] = " ".join(ssh_arguments(launcher, options, environment))
    if options.output_filename:
        stdout, stderr = _output_files(options, "%r")
        made += ["-outfile-pattern", stdout, "-errfile-pattern", stderr]
    if options.with_timestamps:
        _refuse(launcher, "timestamps for output", "Open MPI's mpirun has them (--launcher mpirun)")
    if options.start_seconds and options.is_local():
        command.notes.append("--start-timeout has no effect: mpiexec starts processes of this host without waiting")
    if launcher.flavour != "intelmpi" or not options.hosts:
        made = ["-np", str(options.ranks), *made]
    command.words += made


def _argument_sets(options: Options, program: Sequence[str]) -> List[str]:
    """The ranks of each host as an argument set, joined by ":". For Intel MPI, whose -hosts takes no slots."""
    words: List[str] = []
    for name, ranks in _hosts.places(options.hosts, options.ranks):
        words += [*([":"] if words else []), "-host", name, "-n", str(ranks), *program]
    return words


# Protocol by which the ranks of each MPI find each other under Slurm.
_PMI = {"openmpi": "pmix", "mpich": "pmi2", "intelmpi": "pmi2", "pmix": "pmix"}


def _slurm(command: Command, launcher: Launcher, options: Options, environment: Mapping[str, str]) -> None:
    made = ["-n", str(options.ranks), f"--mpi={_PMI[launcher.flavour]}", "--export=ALL", "--kill-on-bad-exit=1"]
    placed = _hosts.places(options.hosts, options.ranks)
    if placed:
        each = placed[0][1]
        if all(count == each for _, count in placed):
            made += ["-N", str(len(placed)), "-w", ",".join(name for name, _ in placed), f"--ntasks-per-node={each}"]
        else:
            names = ",".join(name for name, count in placed for _ in range(count))
            made += ["-N", str(len(placed)), "--distribution=arbitrary", "-w", names]
    made += shlex.split(options.binding) if options.binding else ["--cpu-bind=none"]
    if options.output_filename:
        stdout, stderr = _output_files(options, "%t")
        made += [f"--output={stdout}", f"--error={stderr}"]
    if options.with_timestamps:
        _refuse(launcher, "timestamps for output", "leave the option out, or use --launcher mpirun")
    # Tells the ranks which MPI to join, because srun's variables do not.
    command.settings.setdefault("FARANDOLE_MPI", {"intelmpi": "mpich"}.get(launcher.flavour, launcher.flavour))
    _slurm_network(command, launcher, options)
    if _own_ssh_arguments(options):
        command.notes.append("the port and the key of ssh have no effect: srun starts the ranks by Slurm's daemons")
    if options.start_seconds:
        command.notes.append("--start-timeout has no effect: Slurm has its own limits (scontrol show config | grep Timeout)")
    command.words += made


def _slurm_network(command: Command, launcher: Launcher, options: Options) -> None:
    """Chooses MPI's network under srun, which has no options for networks. Open MPI reads the parameters from the
    environment of its ranks."""
    if launcher.flavour == "openmpi":
        if options.tcp_only:
            command.settings.update(OMPI_MCA_pml="ob1", OMPI_MCA_btl="self,tcp")
        if options.network_interfaces:
            command.settings["OMPI_MCA_btl_tcp_if_include"] = ",".join(options.network_interfaces)
    elif options.network_interfaces and launcher.flavour != "pmix":
        command.notes.append("srun tells MPI no network interface; the interface is for Farandole's own connections")


_MAKERS = {"mpirun": _open_mpi, "mpiexec": _hydra, "srun": _slurm}
