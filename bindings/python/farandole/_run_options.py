# SPDX-License-Identifier: Apache-2.0
"""horovodrun's command line, as options for mpirun and variables for the ranks."""

import argparse
import re
from typing import Any, Dict, List, NoReturn, Optional, Sequence, Tuple

from . import _built, _mpirun, errors

_DESCRIPTION = """Starts PROGRAM as the ranks of a job, with the mpirun of this machine. Takes the options of horovodrun."""
_EPILOG = """examples:
  python -m farandole.run -np 2 python train.py
  python -m farandole.run -np 4 -H node1:2,node2:2 python train.py
  python -m farandole.run -np 2 python -m farandole.as_horovod train.py     (a program that imports horovod)

The ranks inherit the environment. Their exit status, signals and output are the business of mpirun. Options of
horovodrun that set a variable HOROVOD_… set it here too; rank 0 names those that have no effect."""

# Options that set a variable, by groups of the help; those of "flag" have a --no-… too.
_VARIABLES: Dict[str, List[Tuple[str, str, Any]]] = {
    "fusion and agreement": [
        ("fusion-threshold-mb", "HOROVOD_FUSION_THRESHOLD", int),
        ("cycle-time-ms", "HOROVOD_CYCLE_TIME", float),
        ("cache-capacity", "HOROVOD_CACHE_CAPACITY", int),
        ("hierarchical-allreduce", "HOROVOD_HIERARCHICAL_ALLREDUCE", "flag"),
        ("hierarchical-allgather", "HOROVOD_HIERARCHICAL_ALLGATHER", "flag"),
    ],
    "autotuning": [
        ("autotune", "HOROVOD_AUTOTUNE", "flag"),
        ("autotune-log-file", "HOROVOD_AUTOTUNE_LOG", str),
        ("autotune-warmup-samples", "HOROVOD_AUTOTUNE_WARMUP_SAMPLES", int),
        ("autotune-steps-per-sample", "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", int),
        ("autotune-bayes-opt-max-samples", "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", int),
        ("autotune-gaussian-process-noise", "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", float),
    ],
    "timeline": [
        ("timeline-filename", "HOROVOD_TIMELINE", str),
        ("timeline-mark-cycles", "HOROVOD_TIMELINE_MARK_CYCLES", "flag"),
    ],
    "late ranks": [
        ("stall-check-warning-time-seconds", "HOROVOD_STALL_CHECK_TIME_SECONDS", int),
        ("stall-check-shutdown-time-seconds", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", int),
    ],
    "libraries": [
        ("mpi-threads-disable", "HOROVOD_MPI_THREADS_DISABLE", "flag"),
        ("num-nccl-streams", "HOROVOD_NUM_NCCL_STREAMS", int),
        ("thread-affinity", "HOROVOD_THREAD_AFFINITY", str),
        ("gloo-timeout-seconds", "HOROVOD_GLOO_TIMEOUT_SECONDS", int),
    ],
}
# Options that are refused, with what to do instead.
_REFUSED = {
    "--config-file": "give its options on the command line",
    "--host-discovery-script": "the ranks of a job stay the same; give the hosts with -H or --hostfile",
    "--jsrun": "start the program with jsrun itself, or leave the option out for mpirun",
}
_LOG_LEVELS = ("TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL")


class _Refuse(argparse.Action):
    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Optional[str] = None) -> NoReturn:
        parser.error(f"{option_string} is not supported: {_REFUSED[self.option_strings[0]]}")


class _Interfaces(argparse.Action):
    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Optional[str] = None) -> None:
        named = getattr(namespace, self.dest) or []
        setattr(namespace, self.dest, named + [each for each in values.split(",") if each and each not in named])


def _add_places(parser: argparse.ArgumentParser) -> None:
    """Where the ranks run, and how mpirun starts them there."""
    hosts = parser.add_argument_group("hosts (without them, this one)")
    either = hosts.add_mutually_exclusive_group()
    either.add_argument("-H", "--hosts", metavar="HOST:SLOTS,…", help="and the processes that each takes")
    either.add_argument("-hostfile", "--hostfile", metavar="FILE", help="lines of the form: HOST slots=SLOTS")
    for name in ("--network-interfaces", "--network-interface"):
        hosts.add_argument(name, dest="network_interfaces", action=_Interfaces, metavar="NAME,…", help="of MPI")
    hosts.add_argument("-p", "--ssh-port", type=int, metavar="PORT", help="of all hosts")
    hosts.add_argument("-i", "--ssh-identity-file", metavar="FILE", help="private key")

    mpi = parser.add_argument_group("mpirun")
    mpi.add_argument("--mpi-args", metavar="TEXT", help="further arguments of mpirun: --mpi-args='--report-bindings'")
    mpi.add_argument("--binding-args", metavar="TEXT", help="instead of: no binding")
    mpi.add_argument("--tcp", action="store_true", help="MPI's messages over TCP only (Open MPI)")


def _add_variables(parser: argparse.ArgumentParser) -> None:
    for title, options in _VARIABLES.items():
        group = parser.add_argument_group(title)
        for name, variable, kind in options:
            if kind == "flag":
                group.add_argument(f"--{name}", action="store_true", default=None, help=variable)
                group.add_argument(
                    f"--no-{name}", dest=name.replace("-", "_"), action="store_false", help=argparse.SUPPRESS
                )
            else:
                group.add_argument(f"--{name}", type=kind, metavar=kind.__name__.upper(), help=variable)
        if title == "late ranks":
            group.add_argument("--no-stall-check", action="store_true", default=None, help="HOROVOD_STALL_CHECK_DISABLE")
            group.add_argument("--stall-check", dest="no_stall_check", action="store_false", help=argparse.SUPPRESS)
    log = parser.add_argument_group("log")
    log.add_argument("--log-level", type=str.upper, choices=_LOG_LEVELS, help="HOROVOD_LOG_LEVEL")


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m farandole.run",
        usage="python -m farandole.run -np RANKS [-H HOST:SLOTS,…] [options] PROGRAM [ARGUMENT …]",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("-v", "--version", action="version", version=_built.version_line("farandole.run"))
    add("-np", "--num-proc", dest="ranks", type=int, metavar="RANKS", help="number of processes")
    add("-cb", "--check-build", action="store_true", help="show what is built, found and chosen, and end")
    add("--verbose", action="store_true", help="print the command line of mpirun")
    add("--output-filename", metavar="DIR", help="files of the ranks' output, as mpirun names them")
    add("-prefix-timestamp", "--prefix-output-with-timestamp", action="store_true", help="(Open MPI)")
    add("command", nargs=argparse.REMAINDER, metavar="PROGRAM …", help="the program and its arguments")

    _add_places(parser)
    _add_variables(parser)
    same = parser.add_argument_group("accepted, and without effect: the ranks of a job stay the same, mpirun starts them")
    for name in ("--disable-cache", "--mpi", "--gloo", "--log-with-timestamp", "--log-without-timestamp"):
        same.add_argument(name, action="store_true")
    same.add_argument("--start-timeout", type=int, metavar="INT")
    same.add_argument("--min-np", "--min-num-proc", dest="min_ranks", type=int, metavar="INT")
    same.add_argument("--max-np", "--max-num-proc", dest="max_ranks", type=int, metavar="INT")
    for name in ("--slots-per-host", "--elastic-timeout", "--reset-limit"):
        same.add_argument(name, type=int, metavar="INT")
    same.add_argument("--blacklist-cooldown-range", type=int, nargs=2, metavar="INT")

    refused = parser.add_argument_group("refused")
    for name, instead in _REFUSED.items():
        refused.add_argument(name, action=_Refuse, nargs=0 if name == "--jsrun" else None, help=instead)
    return parser


def parse(arguments: Sequence[str]) -> Tuple[_mpirun.Options, List[str], bool]:
    """The options, the program with its arguments, and whether only what is built is asked for.

    Ends the process with a text, as argparse does, if they can not be understood.
    """
    parser = make_parser()
    given = parser.parse_args(arguments)
    program = given.command[1:] if given.command[:1] == ["--"] else given.command
    if not given.check_build:
        if given.ranks is None:
            parser.error("the number of processes is missing: -np RANKS")
        if not program:
            parser.error("the program is missing: python -m farandole.run -np RANKS python train.py")
    try:
        options = make_options(
            ranks=given.ranks or 1,
            hosts=given.hosts,
            hostfile=given.hostfile,
            settings=_settings(given),
            ssh_port=given.ssh_port,
            ssh_identity_file=given.ssh_identity_file,
            network_interfaces=given.network_interfaces or [],
            output_filename=given.output_filename,
            with_timestamps=given.prefix_output_with_timestamp,
            tcp_only=given.tcp,
            binding=given.binding_args,
            arguments=given.mpi_args,
            verbose=given.verbose,
        )
    except (errors.InvalidArgument, OSError) as error:
        parser.error(str(error))
    return options, program, given.check_build


def make_options(hosts: Optional[str] = None, hostfile: Optional[str] = None, **others: Any) -> _mpirun.Options:
    """Raises InvalidArgument for hosts that can not be understood, OSError if the file can not be read."""
    if hosts is not None and hostfile is not None:
        raise errors.InvalidArgument("give either hosts or a hostfile")
    if hosts is not None:
        pairs = parse_hosts(hosts)
    elif hostfile is not None:
        with open(hostfile, encoding="utf-8") as file:
            pairs = parse_hostfile(file.read(), hostfile)
    else:
        pairs = []
    return _mpirun.Options(hosts=pairs, **others)


def parse_hosts(text: str) -> List[Tuple[str, int]]:
    """ "a:2,b" -> [("a", 2), ("b", 1)]. Raises InvalidArgument."""
    pairs = []
    for each in text.split(","):
        found = re.fullmatch(r"([^\s:]+)(?::(\d+))?", each.strip())
        if found is None:
            raise errors.InvalidArgument(f"hosts are written HOST:SLOTS,HOST:SLOTS,…; {each.strip()!r} in {text!r} is not")
        pairs.append((found[1], int(found[2] or 1)))
    return pairs


def parse_hostfile(text: str, name: str) -> List[Tuple[str, int]]:
    """Lines "HOST slots=SLOTS"; empty lines and what follows # do not count. Raises InvalidArgument."""
    pairs = []
    for number, line in enumerate(text.splitlines(), 1):
        line = line.split("#", 1)[0].strip()
        found = re.fullmatch(r"(\S+?)(?:\s+slots\s*=\s*(\d+)|:(\d+))?", line)
        if line and found is None:
            raise errors.InvalidArgument(f"{name}:{number}: lines are written HOST slots=SLOTS; got {line!r}")
        if line and found is not None:
            pairs.append((found[1], int(found[2] or found[3] or 1)))
    if not pairs:
        raise errors.InvalidArgument(f"{name} names no host; its lines are written HOST slots=SLOTS")
    return pairs


def _settings(given: argparse.Namespace) -> Dict[str, str]:
    settings = {}
    for options in _VARIABLES.values():
        for name, variable, kind in options:
            value = getattr(given, name.replace("-", "_"))
            if value is not None:
                settings[variable] = str(int(value)) if kind == "flag" else str(value)
    if given.fusion_threshold_mb is not None:
        settings["HOROVOD_FUSION_THRESHOLD"] = str(given.fusion_threshold_mb << 20)
    if given.no_stall_check is not None:
        settings["HOROVOD_STALL_CHECK_DISABLE"] = str(int(given.no_stall_check))
    if given.log_level is not None:
        settings["HOROVOD_LOG_LEVEL"] = given.log_level.lower()
    return settings
