# SPDX-License-Identifier: Apache-2.0
"""horovodrun's command line, as options of a launcher and settings of Farandole."""

import argparse
import difflib
import re
import shutil
import textwrap
from typing import Any, Dict, List, NamedTuple, NoReturn, Optional, Sequence, Tuple

from .. import _built, errors
from .._horovod import environment
from . import _config, _hosts, _launchers

DESCRIPTION = (
    "Starts PROGRAM as the ranks of a job, with a launcher that is installed: mpirun of Open MPI, mpiexec of MPICH or Intel "
    "MPI, or Slurm's srun. Takes the options of horovodrun."
)
EXAMPLES = (
    ("Two ranks on this host:", "farandole-run -np 2 python train.py"),
    ("Four ranks on two hosts:", "farandole-run -np 4 -H node1:2,node2:2 python train.py"),
    ("The same, to see the command instead of running it:", "farandole-run --print -np 4 -H node1:2,node2:2 python train.py"),
    ("Within an allocation of Slurm (salloc, sbatch), where srun starts the ranks:", "farandole-run -np 4 python train.py"),
    ("A program that imports horovod:", "farandole-run -np 2 python -m farandole.as_horovod train.py"),
)
NOTES = (
    "The ranks inherit the environment; values of variables are never on a command line. The job's exit status, signals and "
    "output are the launcher's, which takes the place of this process. Exit status 2 means wrong usage, and 1 that the job "
    "could not be started."
)

# Options that set a variable of Horovod, by group of the help. The variable is then interpreted as if it were in the
# environment. Options of type "flag" also exist as --no-….
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
        ("thread-affinity", "HOROVOD_THREAD_AFFINITY", int),
        ("ccl-bgt-affinity", "HOROVOD_CCL_BGT_AFFINITY", int),
        ("gloo-timeout-seconds", "HOROVOD_GLOO_TIMEOUT_SECONDS", int),
    ],
}
_TUNED = "choices come from a cost model, or from what farandole-bench --tune has measured"
_FIXED = "the ranks of a job stay the same"
# Reasons why options have no effect. Options that ask for the normal behaviour are not listed.
_REASONS = {
    "cycle-time-ms": "there are no cycles: ranks negotiate as soon as tensors are ready",
    "cache-capacity": "Farandole remembers every name; its cache has no fixed size",
    "hierarchical-allreduce": "it is chosen where it is faster; FARANDOLE_ALLREDUCE=hierarchical forces it",
    "hierarchical-allgather": "the algorithm is chosen by cost; FARANDOLE_ALLGATHER names another",
    "autotune": _TUNED,
    "autotune-log-file": _TUNED,
    "autotune-warmup-samples": _TUNED,
    "autotune-steps-per-sample": _TUNED,
    "autotune-bayes-opt-max-samples": _TUNED,
    "autotune-gaussian-process-noise": _TUNED,
    "mpi-threads-disable": "Farandole takes the thread level that the program's MPI has",
    "num-nccl-streams": "a process set has one stream, in which its collectives on a GPU run in order",
    "thread-affinity": "threads of Farandole are not bound to cores",
    "ccl-bgt-affinity": "oneCCL is not used",
    "gloo-timeout-seconds": "Gloo is not used; --stall-check-shutdown-time-seconds sets a deadline",
    "gloo": "Farandole has no Gloo: a launcher of MPI or Slurm starts the ranks all the same",
    "disable-cache": "nothing is remembered: the hosts are asked before each start",
    "log-without-timestamp": "lines of the log have their time",
    "slots-per-host": "hosts have the slots that -H or --hostfile gives them",
    "elastic-timeout": _FIXED,
    "reset-limit": _FIXED,
    "blacklist-cooldown-range": _FIXED,
}
# Options that are rejected, with an alternative.
_REFUSED = {
    "--host-discovery-script": f"{_FIXED}, so hosts cannot come and go; name them with -H or --hostfile, keep checkpoints, "
    "and start again from the newest one when a host is lost (docs/clusters.md)",
    "--jsrun": "start the program with jsrun itself, or leave the option out",
}
_LOG_LEVELS = ("TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL")
_RANKS_IN_WORD = re.compile("(-np|-n)([0-9]+)")  # as in -np2, which mpirun's users write
_MIN_SIMILARITY = 0.7  # of a suggestion, see difflib
_ACTIONS = ("print", "check-build", "as-horovod", "man-page", "bash-completion")


class Request(NamedTuple):
    options: _launchers.Options
    program: List[str]
    arguments: List[str]  # the command line before the program
    action: str  # one of _ACTIONS, or "run"
    notes: List[str]  # options that have no effect, and why


class _Refuse(argparse.Action):
    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Optional[str] = None) -> NoReturn:
        parser.error(f"{option_string} is not supported: {_REFUSED[self.option_strings[0]]}")


class _Interfaces(argparse.Action):
    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Optional[str] = None) -> None:
        named = getattr(namespace, self.dest) or []
        setattr(namespace, self.dest, named + [each for each in values.split(",") if each and each not in named])


def _add_places(parser: argparse.ArgumentParser) -> None:
    """Options for the hosts of the ranks, and for the launcher."""
    hosts = parser.add_argument_group("hosts (default: this host, or the hosts of the allocation)")
    either = hosts.add_mutually_exclusive_group()
    either.add_argument("-H", "--hosts", metavar="HOST:SLOTS,…", help="hosts, with the number of processes on each")
    either.add_argument("-hostfile", "--hostfile", metavar="FILE", help="lines of the form HOST slots=SLOTS or HOST:SLOTS")
    hosts.add_argument(
        "--network-interfaces", "--network-interface", "--nics", dest="network_interfaces", action=_Interfaces,
        metavar="NAME,…", help="for messages between hosts; a single name also sets FARANDOLE_NETWORK_INTERFACE",
    )  # fmt: skip
    hosts.add_argument("-p", "--ssh-port", type=int, metavar="PORT", help="port of ssh on all hosts")
    hosts.add_argument("-i", "--ssh-identity-file", metavar="FILE", help="private key for ssh")
    hosts.add_argument(
        "--start-timeout", type=int, metavar="SECONDS", help="limit for hosts to answer and ranks to start (default with ssh: 30)"
    )

    start = parser.add_argument_group("launcher")
    start.add_argument(
        "--launcher", choices=("auto", *_launchers.KINDS), default="auto",
        help="mpirun of Open MPI, mpiexec of MPICH or Intel MPI, srun; auto: srun within an allocation of Slurm, else the launcher "
        "of the MPI in FARANDOLE_MPI, else the first launcher that is installed",
    )  # fmt: skip
    start.add_argument("--mpi-args", metavar="TEXT", help="further arguments of the launcher: --mpi-args='--report-bindings'")
    start.add_argument("--binding-args", metavar="TEXT", help="arguments of the launcher for binding (default: no binding)")
    start.add_argument("--tcp", action="store_true", help="messages between hosts over TCP only: sets FARANDOLE_NETWORK")
    start.add_argument("--mpi", action="store_true", help="no effect: a launcher of MPI or Slurm is always used")


def _add_variables(parser: argparse.ArgumentParser) -> None:
    for title, options in _VARIABLES.items():
        group = parser.add_argument_group(title)
        for name, variable, kind in options:
            setting = environment.setting_of(variable)
            text = f"sets {setting}" if setting else f"no effect: {_REASONS[name]}"
            if kind == "flag":
                group.add_argument(f"--{name}", action="store_true", default=None, help=text)
                group.add_argument(
                    f"--no-{name}", dest=name.replace("-", "_"), action="store_false", help=argparse.SUPPRESS
                )
            else:
                group.add_argument(f"--{name}", type=kind, metavar=_METAVARS[kind], help=text)
        if title == "late ranks":
            group.add_argument(
                "--no-stall-check", action="store_true", default=None, help="no warnings of late ranks (FARANDOLE_WARN_AFTER)"
            )
            group.add_argument("--stall-check", dest="no_stall_check", action="store_false", help=argparse.SUPPRESS)
    log = parser.add_argument_group("log")
    log.add_argument("--log-level", type=str.upper, choices=_LOG_LEVELS, help="sets FARANDOLE_LOG")
    log.add_argument("--log-with-timestamp", action="store_true", help="no effect: log lines always have their time")


_METAVARS = {int: "N", float: "X", str: "FILE"}


def _add_without_effect(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("accepted, without effect")
    for name in ("disable-cache", "gloo", "log-without-timestamp"):
        group.add_argument(f"--{name}", action="store_true", default=None, help=_REASONS[name])
    for name in ("slots-per-host", "elastic-timeout", "reset-limit"):
        group.add_argument(f"--{name}", type=int, metavar="N", help=_REASONS[name])
    group.add_argument("--blacklist-cooldown-range", type=int, nargs=2, metavar="N", help=_FIXED)

    refused = parser.add_argument_group("refused")
    for bound, dest in (("min", "least"), ("max", "most")):
        refused.add_argument(
            f"--{bound}-np", f"--{bound}-num-proc", dest=dest, type=int, metavar="N",
            help=f"unless N is the number of -np: {_FIXED}",
        )  # fmt: skip
    for name, instead in _REFUSED.items():
        refused.add_argument(name, action=_Refuse, nargs=0 if name == "--jsrun" else None, metavar="FILE", help=instead)


def _wrapped(text: str) -> str:
    return textwrap.fill(text, shutil.get_terminal_size().columns - 2, break_on_hyphens=False)


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Keeps names of options whole, so that a reader can search for them and copy them."""

    def _split_lines(self, text: str, width: int) -> List[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Exits as all programs of Farandole do: "farandole-run: InvalidArgument: …", status 2, without the usage."""
        self.exit(2, f"{self.prog}: InvalidArgument: {message}\n")


def make_parser(name: str = "farandole-run") -> argparse.ArgumentParser:
    parser = _Parser(
        prog=name,
        usage=f"{name} -np RANKS [-H HOST:SLOTS,…] [options] PROGRAM [ARGUMENT …]",
        description=_wrapped(DESCRIPTION),
        epilog="examples:\n" + "".join(f"  {command}\n" for _, command in EXAMPLES) + f"\n{_wrapped(NOTES)}",
        formatter_class=_HelpFormatter,
        allow_abbrev=False,
        add_help=False,
    )
    add = parser.add_argument
    add("-h", "--help", action="help", help="print this text and leave")
    program = name.replace("python -m ", "")
    add("-v", "--version", action="version", version=_built.version_line(program), help="print the version and leave")
    add("-np", "-n", "--num-proc", dest="ranks", type=int, metavar="RANKS", help="number of processes")
    add("--print", action="store_true", help="print the command for a shell instead of running it")
    add("--verbose", action="store_true", help="say which launcher starts the job and why, and print its command")
    add("-cb", "--check-build", action="store_true", help="show what is built, found and chosen, and leave")
    add("--config-file", metavar="FILE", help="options in horovodrun's YAML; options of the command line take precedence")
    add("--output-filename", metavar="DIR", help="files of the ranks' output, as the launcher names them")
    add("-prefix-timestamp", "--prefix-output-with-timestamp", action="store_true", help="lines of output begin with the time (Open MPI)")
    add("--as-horovod", action="store_true", help="install this program as horovodrun, too, beside this one, and leave")
    add("--man-page", action="store_true", help="print the manual page and leave: farandole-run --man-page | man -l -")
    add("--bash-completion", action="store_true", help="print the completion for bash and leave, a file to source")
    _add_places(parser)
    _add_variables(parser)
    _add_without_effect(parser)
    return parser


def parse(arguments: Sequence[str], name: str = "farandole-run") -> Request:
    """Parses the command line. Exits with a message, as argparse does, if the command line is invalid."""
    parser = make_parser(name)
    own, program = _split(parser, arguments)
    given = parser.parse_args(own)
    try:
        if given.config_file is not None:
            given = parser.parse_args([*_config.read_arguments(given.config_file), *own])
        action = next((each for each in _ACTIONS if getattr(given, each.replace("-", "_"))), "run")
        if action in ("run", "print"):
            _check(given, program, name)
        options = _options(given)
    except (errors.Error, OSError) as error:
        parser.error(str(error))
    return Request(options, program, own, action, _notes(given))


def _split(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> Tuple[List[str], List[str]]:
    """(Own options, program with its arguments). Exits for an unknown option, and suggests the most similar option."""
    known = parser._option_string_actions
    arguments = list(arguments)
    at = 0
    while at < len(arguments) and arguments[at].startswith("-") and arguments[at] != "--":
        name, equals, _ = arguments[at].partition("=")
        action = known.get(name)
        if action is None and arguments[at][:2] in ("-H", "-p", "-i"):  # the value is in the same word
            action, equals = known[arguments[at][:2]], "="
        joined = _RANKS_IN_WORD.fullmatch(arguments[at])
        if action is None and joined:
            arguments[at : at + 1] = joined.groups()
            action = known[joined[1]]
        if action is None:
            parser.error(f"there is no option {name}{_suggestion(name, known)} (--help lists all)")
        at += 1
        if not equals:
            at += 1 if action.nargs is None else int(action.nargs)
    rest = arguments[at:]
    return arguments[:at], rest[1:] if rest[:1] == ["--"] else rest


def _suggestion(name: str, known: Sequence[str]) -> str:
    if name.lstrip("-") in ("np", "n"):
        return "; did you mean -np?"
    near = difflib.get_close_matches(name, [each for each in known if each.startswith("--")], 1, _MIN_SIMILARITY)
    return f"; did you mean {near[0]}?" if near else ""


def _check(given: argparse.Namespace, program: Sequence[str], name: str) -> None:
    if given.ranks is None:
        raise errors.InvalidArgument("the number of processes is missing: -np RANKS")
    if not program:
        raise errors.InvalidArgument(f"the program is missing: {name} -np RANKS python train.py")
    if ":" in program:
        raise errors.InvalidArgument(
            "an argument of the program is ':', with which mpirun, mpiexec and srun begin a second program; all ranks of a "
            "job run the same program: join ':' with other text in one argument, or start the program by a script that adds ':'"
        )
    for option, value in (("--min-np", given.least), ("--max-np", given.most)):
        if value is not None and value != given.ranks:
            raise errors.Unsupported(
                f"{option} {value} is not supported: {_FIXED}, and -np says {given.ranks}; leave {option} out, keep "
                "checkpoints, and start again with another -np where that is needed (docs/clusters.md)"
            )


def _options(given: argparse.Namespace) -> _launchers.Options:
    return make_options(
        hosts=given.hosts,
        hostfile=given.hostfile,
        ranks=1 if given.ranks is None else given.ranks,
        launcher=given.launcher,
        settings=_settings(given),
        ssh_port=given.ssh_port,
        ssh_identity_file=given.ssh_identity_file,
        start_seconds=given.start_timeout,
        network_interfaces=given.network_interfaces or [],
        output_filename=given.output_filename,
        with_timestamps=given.prefix_output_with_timestamp,
        tcp_only=given.tcp,
        binding=given.binding_args,
        arguments=given.mpi_args,
        verbose=given.verbose,
    )


def make_options(hosts: Optional[str] = None, hostfile: Optional[str] = None, **others: Any) -> _launchers.Options:
    """Makes the options of a job. Raises InvalidArgument for invalid hosts, OSError if the hostfile cannot be read."""
    if hosts is not None and hostfile is not None:
        raise errors.InvalidArgument("give either hosts or a hostfile")
    named: _hosts.Hosts = []
    if hosts is not None:
        named = _hosts.parse_hosts(hosts)
    elif hostfile is not None:
        with open(hostfile, encoding="utf-8") as file:
            named = _hosts.parse_hostfile(file.read(), hostfile)
    return _launchers.Options(hosts=named, **others)


def _settings(given: argparse.Namespace) -> Dict[str, str]:
    """Farandole's settings. The command line overrides the environment."""
    variables = {}
    for options in _VARIABLES.values():
        for name, variable, kind in options:
            value = getattr(given, name.replace("-", "_"))
            if value is not None:
                variables[variable] = str(int(value)) if kind == "flag" else str(value)
    if given.fusion_threshold_mb is not None:
        variables["HOROVOD_FUSION_THRESHOLD"] = str(given.fusion_threshold_mb << 20)
    if given.no_stall_check is not None:
        variables["HOROVOD_STALL_CHECK_DISABLE"] = str(int(given.no_stall_check))
    if given.log_level is not None:
        variables["HOROVOD_LOG_LEVEL"] = given.log_level.lower()
    return environment.translate(variables)[0]


def _notes(given: argparse.Namespace) -> List[str]:
    """Lines about given options that have no effect, one per reason."""
    named: Dict[str, List[str]] = {}
    for name, reason in _REASONS.items():
        value = getattr(given, name.replace("-", "_"))
        if value is not None and value is not False:
            named.setdefault(reason, []).append(f"--{name}")
    return [
        f"{', '.join(names)} {'has' if len(names) == 1 else 'have'} no effect: {reason}" for reason, names in named.items()
    ]
