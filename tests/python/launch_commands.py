# SPDX-License-Identifier: Apache-2.0
"""Command lines of farandole-run and the resulting commands. Needs no launcher; only small files are written."""

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import support

support.need("numpy")

from farandole import _quiet, errors
from farandole._horovod import run_script
from farandole.launch import _checks, _commands, _config, _hosts, _launchers, _options, _pages

ALLOCATION = {"SLURM_JOB_ID": "7", "SLURM_TASKS_PER_NODE": "2(x2)"}
FREE = "--bind-to none --map-by slot"
ALL = "--export=ALL --kill-on-bad-exit=1"
# MPI, options, environment, and the command for a shell.
COMMANDS = [
    ("openmpi", "-np 2", {}, f"L --allow-run-as-root -np 2 -H localhost:2 {FREE} P"),
    ("openmpi", "-np 2 -H localhost:4", {"A": "1"}, f"L --allow-run-as-root -np 2 -H localhost:4 {FREE} P"),
    (
        "openmpi", "-np 3 -H a:2,b -p 2222 -i key",
        {"PATH": "/bin", "SSH_TTY": "x", "BASH_FUNC_x%%": "x", "NCCL_DEBUG": "INFO"},
        f"L --allow-run-as-root -np 3 -H a:2,b:1 {FREE} --mca plm_rsh_args '-p 2222 -i key' -x NCCL_DEBUG -x PATH P",
    ),
    (
        "openmpi", "-np 2 -H a,b --fusion-threshold-mb 2 --log-level debug --timeline-filename 't 1.json'",
        {"AWS_TOKEN": "s"},
        "env FARANDOLE_FUSION_BYTES=2097152 FARANDOLE_LOG=debug FARANDOLE_TIMELINE='t 1.json' L --allow-run-as-root -np 2 "
        f"-H a:1,b:1 {FREE} -x AWS_TOKEN -x FARANDOLE_FUSION_BYTES -x FARANDOLE_LOG -x FARANDOLE_TIMELINE P",
    ),
    (
        "openmpi", "-np 1 --nics eth0,eth1 --tcp --start-timeout 9", {},
        f"env FARANDOLE_NETWORK=tcp L --allow-run-as-root -np 1 -H localhost:1 {FREE} --mca pml ob1 --mca btl self,tcp --mca orte_startup_timeout 9 "
        "--mca btl_tcp_if_include eth0,eth1 --mca oob_tcp_if_include eth0,eth1 P",
    ),
    (
        "openmpi", "-np 2 -H a,b --nics eth0", {},
        f"env FARANDOLE_NETWORK_INTERFACE=eth0 L --allow-run-as-root -np 2 -H a:1,b:1 {FREE} --mca btl_tcp_if_include eth0 "
        "--mca oob_tcp_if_include eth0 -x FARANDOLE_NETWORK_INTERFACE P",
    ),
    (
        "openmpi",
        "-np 1 --output-filename /logs -prefix-timestamp --binding-args '--bind-to core' --mpi-args='--report-bindings'", {},
        "L --allow-run-as-root -np 1 -H localhost:1 --bind-to core --output-filename /logs --timestamp-output "
        "--report-bindings P",
    ),
    # The launcher of an MPIJob, and mpirun within an allocation: the hosts come from elsewhere.
    (
        "openmpi", "-np 4", {"OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile", "PATH": "/bin"},
        f"L --allow-run-as-root -np 4 {FREE} -x PATH P",
    ),
    ("openmpi", "-np 4", {**ALLOCATION, "PATH": "/bin"}, f"L --allow-run-as-root -np 4 {FREE} -x PATH P"),
    ("mpich", "-np 2", {}, "L -np 2 P"),
    (
        "mpich", "-np 3 -H a:2,b -p 2222 --network-interface eth0 --output-filename /logs", {},
        "env FARANDOLE_NETWORK_INTERFACE=eth0 HYDRA_LAUNCHER_EXTRA_ARGS='-p 2222' L -np 3 -hosts a:2,b:1 -iface eth0 -outfile-pattern /logs/rank.%r.stdout "
        "-errfile-pattern /logs/rank.%r.stderr P",
    ),
    (
        "mpich", "-np 1 -H a -i key", {"HYDRA_LAUNCHER_EXTRA_ARGS": "-v"},
        "env HYDRA_LAUNCHER_EXTRA_ARGS='-v -i key' L -np 1 -hosts a:1 P",
    ),
    ("mpich", "-np 1 --tcp", {}, "env FARANDOLE_NETWORK=tcp L -np 1 P"),
    ("intelmpi", "-np 2", {}, "L -np 2 P"),
    ("intelmpi", "-np 3 -H a:2,b:4", {}, "L -host a -n 2 P : -host b -n 1 P"),
    (
        "intelmpi", "-np 1 -H a -p 22", {},
        "env I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS='-p 22' L -host a -n 1 P",
    ),
    ("slurm:mpich", "-np 4", ALLOCATION, f"env FARANDOLE_MPI=mpich L -n 4 --mpi=pmi2 {ALL} --cpu-bind=none P"),
    (
        "slurm:openmpi", "-np 4 -H a:2,b:2", ALLOCATION,
        f"env FARANDOLE_MPI=openmpi L -n 4 --mpi=pmix {ALL} -N 2 -w a,b --ntasks-per-node=2 --cpu-bind=none P",
    ),
    (
        "slurm:mpich", "-np 3 -H a:2,b:2 --output-filename /logs", ALLOCATION,
        f"env FARANDOLE_MPI=mpich L -n 3 --mpi=pmi2 {ALL} -N 2 --distribution=arbitrary -w a,a,b --cpu-bind=none "
        "--output=/logs/rank.%t.stdout --error=/logs/rank.%t.stderr P",
    ),
    (
        "slurm:openmpi", "-np 1 --nics eth0 --tcp --mpi-args=--mpi=pmix_v4", {},
        "env FARANDOLE_MPI=openmpi FARANDOLE_NETWORK=tcp FARANDOLE_NETWORK_INTERFACE=eth0 OMPI_MCA_btl=self,tcp "
        f"OMPI_MCA_btl_tcp_if_include=eth0 OMPI_MCA_pml=ob1 L -n 1 --mpi=pmix {ALL} --cpu-bind=none --mpi=pmix_v4 P",
    ),
    ("slurm:pmix", "-np 2", {}, f"env FARANDOLE_MPI=pmix L -n 2 --mpi=pmix {ALL} --cpu-bind=none P"),
]  # fmt: skip
REFUSED = [
    ("openmpi", "-np 3 -H a:1,b:1", {}, "3 processes were asked for, but a:1,b:1 takes 2"),
    ("openmpi", "-np 0", {}, "at least 1, not 0"),
    ("slurm:mpich", "-np 5", ALLOCATION, r"the allocation 7 takes 4 tasks \(SLURM_TASKS_PER_NODE=2\(x2\)\).*salloc -n 5"),
    ("slurm:openmpi", "-np 1 -prefix-timestamp", {}, "no timestamps"),
    ("mpich", "-np 1 --nics eth0,eth1", {}, "several network interfaces.*name one"),
    ("mpich", "-np 1 -prefix-timestamp", {}, "--launcher mpirun"),
]
# Options with which the program ends, each with a part of its message.
ERRORS = [
    ("", "number of processes is missing: -np RANKS"),
    ("-np 2", "the program is missing: farandole-run -np RANKS python train.py"),
    ("-np 2 python a.py : -np 1 python b.py", "':', with which mpirun, mpiexec and srun begin a second program"),
    ("python x.py", "number of processes is missing"),
    ("--fusion-treshold-mb 2 -np 2 python", "no option --fusion-treshold-mb; did you mean --fusion-threshold-mb"),
    ("-np 2 --zzz python", "there is no option --zzz (--help"),
    ("--np 2 python", "there is no option --np; did you mean -np? (--help"),
    ("-npx python", "there is no option -npx (--help"),
    ("-np two python", "invalid int value: 'two'"),
    ("-np 2 -H 'a b' python", "hosts are written HOST:SLOTS"),
    ("-np 2 -H '' python", "hosts are written HOST:SLOTS"),
    ("-np 2 -H a:0 python", "a in 'a:0' has no slot"),
    ("-np 2 -H a -hostfile b python", "not allowed with"),
    ("-np 2 --hostfile /missing python", "/missing"),
    ("-np 2 --launcher lsf python", "invalid choice: 'lsf'"),
    ("-np 2 --host-discovery-script x python", "name them with -H or --hostfile"),
    ("-np 2 --min-np 1 python", "--min-np 1 is not supported: the ranks of a job stay the same, and -np says 2"),
    ("-np 2 --max-np 4 python", "--max-np 4 is not supported"),
    ("-np 2 --jsrun python", "with jsrun itself"),
]
NOTES = {
    "-np 2 --min-np 2 --mpi --no-autotune --log-with-timestamp": [],
    "-np 2 --gloo": ["--gloo has no effect: Farandole has no Gloo"],
    "-np 2 --cycle-time-ms 1 --disable-cache": ["--cycle-time-ms has no effect", "--disable-cache has no effect"],
    "-np 2 --autotune --autotune-log-file x": ["--autotune, --autotune-log-file have no effect: choices come from"],
}


def launcher_of(name):
    kind = "srun" if name.startswith("slurm:") else "mpirun" if name == "openmpi" else "mpiexec"
    return _launchers.Launcher(kind, name.split(":")[-1], "L")


def make(name, options, environment):
    request = _options.parse([*shlex.split(options), "P"])
    return _commands.make_command(launcher_of(name), request.options, request.program, environment)


def ended(options):
    """The message of the parser, which must end the program with status 2."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            _options.parse(shlex.split(options))
    except SystemExit as end:
        return said.getvalue() if end.code == 2 else f"status {end.code}"
    return "nothing was refused"


class CommandsTest(unittest.TestCase):
    def test_commands(self):
        for name, options, environment, expected in COMMANDS:
            with self.subTest(mpi=name, options=options):
                self.assertEqual(make(name, options, environment).text(), expected)

    def test_refused(self):
        for name, options, environment, text in REFUSED:
            with self.subTest(mpi=name, options=options), self.assertRaisesRegex(errors.Error, text):
                make(name, options, environment)

    def test_a_shell_takes_the_text(self):
        command = _commands.Command(["printf", "%s|", "a b", "$HOME", "it's", "*"], {"VALUE": "x y"})
        done = subprocess.run(["sh", "-c", command.text()], capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout, "a b|$HOME|it's|*|")
        secret = _commands.Command(["true"], {"API_TOKEN": "hush"})
        self.assertEqual(secret.text(), 'env API_TOKEN="$API_TOKEN" true')

    def test_options_without_effect_of_launchers(self):
        self.assertIn("srun starts the ranks by", make("slurm:mpich", "-np 1 -p 22", {}).notes[0])
        self.assertIn("srun tells MPI no network interface", make("slurm:mpich", "-np 1 --nics eth0", {}).notes[0])
        self.assertIn("eth0,eth1 hold for MPI only", make("openmpi", "-np 1 --nics eth0,eth1", {}).notes[0])
        self.assertEqual(make("openmpi", "-np 1 -p 22 --nics eth0", {}).notes, [])


class OptionsTest(unittest.TestCase):
    def test_errors(self):
        for options, text in ERRORS:
            with self.subTest(options=options):
                message = ended(options)
                self.assertIn(text, message)
                self.assertRegex(message, r"\Afarandole-run: [^\n]*\n\Z")

    def test_notes(self):
        for options, texts in NOTES.items():
            with self.subTest(options=options):
                notes = _options.parse([*shlex.split(options), "x"]).notes
                self.assertEqual(len(notes), len(texts), notes)
                for note, text in zip(notes, texts):
                    self.assertIn(text, note)

    def test_the_program_keeps_its_options(self):
        for options in ("-np 2", "-np=2 --", "-n 2", "-n=2", "-np 2 --mpi"):
            request = _options.parse([*options.split(), "python", "train.py", "-np", "9", "--gloo"])
            self.assertEqual(request.program, ["python", "train.py", "-np", "9", "--gloo"])
            self.assertEqual((request.options.ranks, request.notes), (2, []))
            self.assertEqual(request.arguments, [each for each in options.split() if each != "--"])

    def test_ranks_in_the_same_word(self):
        for option in ("-np2", "-n2"):
            request = _options.parse([option, "--mpi", "python", "train.py", "-n3"])
            self.assertEqual((request.options.ranks, request.program), (2, ["python", "train.py", "-n3"]))

    def test_settings(self):
        request = _options.parse(
            "-np 1 --timeline-filename t.json --timeline-mark-cycles --no-stall-check --no-autotune --log-level debug x".split()
        )
        self.assertEqual(
            request.options.settings,
            {
                "FARANDOLE_TIMELINE": "t.json", "FARANDOLE_TIMELINE_CYCLES": "on", "FARANDOLE_WARN_AFTER": "604800",
                "FARANDOLE_LOG": "debug",
            },
        )  # fmt: skip

    def test_actions(self):
        self.assertEqual(_options.parse(["--check-build"]).action, "check-build")
        self.assertEqual(_options.parse(["--print", "-np", "1", "x"]).action, "print")
        self.assertEqual(_options.parse(["-np", "1", "x"]).action, "run")

    def test_every_option_of_horovodrun(self):
        known = _options.make_parser()._option_string_actions
        for name in HOROVODRUN.split():
            self.assertIn(name, known)


# Of Horovod 0.28.1.
HOROVODRUN = """-h --help -v --version -np --num-proc -cb --check-build --disable-cache --start-timeout --network-interfaces
--network-interface --output-filename --verbose --config-file -p --ssh-port -i --ssh-identity-file --fusion-threshold-mb
--cycle-time-ms --cache-capacity --hierarchical-allreduce --no-hierarchical-allreduce --hierarchical-allgather
--no-hierarchical-allgather --autotune --no-autotune --autotune-log-file --autotune-warmup-samples
--autotune-steps-per-sample --autotune-bayes-opt-max-samples --autotune-gaussian-process-noise --min-np --min-num-proc
--max-np --max-num-proc --slots-per-host --elastic-timeout --reset-limit --blacklist-cooldown-range --timeline-filename
--timeline-mark-cycles --no-timeline-mark-cycles --no-stall-check --stall-check --stall-check-warning-time-seconds
--stall-check-shutdown-time-seconds --mpi-threads-disable --no-mpi-threads-disable --mpi-args --tcp --binding-args
--num-nccl-streams --thread-affinity --gloo-timeout-seconds --log-level --log-with-timestamp --log-without-timestamp
-prefix-timestamp --prefix-output-with-timestamp -H --hosts -hostfile --hostfile --host-discovery-script --gloo --mpi
--jsrun"""


class ProgramTest(unittest.TestCase):
    """Programs that no launcher could start."""

    def refused(self, *program):
        with self.assertRaises(errors.InvalidArgument) as caught:
            _checks.check_program(program, "farandole-run", ["-np", "2"])
        return str(caught.exception)

    def test_scripts_without_an_interpreter(self):
        with tempfile.TemporaryDirectory() as directory:
            self.addCleanup(os.chdir, os.getcwd())
            os.chdir(directory)
            for name, text in (("sum.py", "print(1)"), ("sum.sh", "echo"), ("data", "x"), ("good.py", "#!/bin/true")):
                with open(name, "w") as file:
                    file.write(text)
            os.chmod("good.py", 0o755)
            self.assertEqual(
                self.refused("sum.py", "a b"),
                "sum.py is not executable; did you mean: farandole-run -np 2 python sum.py 'a b'",
            )
            self.assertIn("farandole-run -np 2 bash ./sum.sh", self.refused("./sum.sh"))
            self.assertEqual(self.refused("data"), "data is not executable; chmod +x data changes that")
            os.chmod("sum.py", 0o755)
            self.assertRegex(self.refused("sum.py"), r"^sum.py has no first line with #!.*python sum.py$")
            self.assertIn("there is no program train.py,", self.refused("train.py"))
            with mock.patch.dict(os.environ, PATH=directory):
                self.assertNotIn("did you mean", self.refused("python", "x.py"))
                os.symlink("good.py", "python3")
                self.assertTrue(self.refused("python", "x.py").endswith("did you mean: farandole-run -np 2 python3 x.py"))
            for program in ("./good.py", "good.py", "true", sys.executable):
                _checks.check_program([program], "farandole-run", [])

    def test_log_of_tensorflow(self):
        self.assertEqual(_quiet.settings({}), {"TF_CPP_MIN_LOG_LEVEL": "2"})
        self.assertEqual(_quiet.settings({"TF_CPP_MIN_LOG_LEVEL": "0"}), {})
        for program, expected in (("python3.11 x.py", True), ("/env/bin/python", True), ("farandole-train", False)):
            self.assertEqual(run_script.is_python(program.split()), expected)


class HostsTest(unittest.TestCase):
    def test_hosts(self):
        self.assertEqual(_hosts.parse_hosts("a:2,b"), [("a", 2), ("b", 1)])
        self.assertEqual(_hosts.parse_hosts("a,a,b:3"), [("a", 2), ("b", 3)])

    def test_hostfiles(self):
        for text in ("a slots=2  # two\n\nb\n", "a:2\nb:1\n", "a slots=2 max_slots=4\nb max-slots=2", "a\na\nb"):
            self.assertEqual(_hosts.parse_hostfile(text, "hosts"), [("a", 2), ("b", 1)], text)
        for text, expected in {
            "a\nb many=2": "hosts:2: lines are written HOST slots=SLOTS",
            "# none\n": "hosts names no host",
            "a slots=0": "a in hosts has no slot",
        }.items():
            with self.assertRaisesRegex(errors.InvalidArgument, re.escape(expected)):
                _hosts.parse_hostfile(text, "hosts")

    def test_places(self):
        self.assertEqual(_hosts.places([("a", 2), ("b", 2), ("c", 1)], 3), [("a", 2), ("b", 1)])

    def test_slots_of_slurm(self):
        for text, slots in {"2(x3),1": 7, "4": 4, "1,2(x2),3": 8, "": None}.items():
            self.assertEqual(_hosts.slots_of_slurm({"SLURM_TASKS_PER_NODE": text}), slots)


class ConfigTest(unittest.TestCase):
    def test_arguments(self):
        content = {
            "controller": "gloo",
            "params": {"fusion_threshold_mb": 32, "hierarchical_allreduce": False, "cycle_time_ms": None},
            "stall_check": {"enabled": False},
            "autotune": {"enabled": True, "log_file": "a b.csv"},
            "logging": {"level": "INFO", "with_timestamp": False},
        }
        arguments = _config.arguments_of(content, "c.yaml")
        self.assertEqual(
            arguments,
            [
                "--gloo", "--fusion-threshold-mb=32", "--no-hierarchical-allreduce", "--no-stall-check", "--autotune",
                "--autotune-log-file=a b.csv", "--log-level=INFO", "--log-without-timestamp",
            ],
        )  # fmt: skip
        _options.make_parser().parse_args(arguments)

    def test_all_options_exist(self):
        known = _options.make_parser()._option_string_actions
        for options in _config._SECTIONS.values():
            for option in options.values():
                for name in option if isinstance(option, tuple) else [option]:
                    self.assertIn(name, known)

    def test_refused(self):
        for content, text in {
            "[]": "holds no sections",
            "{'parms': {}}": "no section 'parms'; did you mean params",
            "{'params': {'fusion_mb': 1}}": "no name in params 'fusion_mb'; did you mean fusion_threshold_mb",
            "{'params': 3}": "holds names with values, not 3",
            "{'controller': 'lsf'}": "controller is mpi or gloo",
        }.items():
            with self.assertRaisesRegex(errors.InvalidArgument, text):
                _config.arguments_of(eval(content), "c.yaml")

    def test_the_command_line_goes_before_the_file(self):
        try:
            import yaml  # noqa: F401
        except ImportError:
            self.assertIn("--config-file needs PyYAML", ended("-np 2 --config-file x python"))
            self.skipTest("PyYAML is not there")
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "c.yaml")
            with open(path, "w") as file:
                file.write("params:\n  fusion_threshold_mb: 32\nlogging:\n  level: INFO\n")
            request = _options.parse(["-np", "1", "--fusion-threshold-mb", "1", "--config-file", path, "x"])
        self.assertEqual(request.options.settings, {"FARANDOLE_FUSION_BYTES": "1048576", "FARANDOLE_LOG": "info"})


class LauncherTest(unittest.TestCase):
    """The choice of the launcher among scripts that print the same as the real launchers."""

    SAY = {
        "openmpi": "mpirun (Open MPI) 4.1.4",
        "mpich": "HYDRA build details:",
        "intelmpi": "Intel(R) MPI Library for Linux",
        "srun": "",
    }

    def setUp(self):
        self.directory = tempfile.mkdtemp()
        self.addCleanup(lambda: subprocess.run(["rm", "-r", self.directory], check=True))

    def install(self, **programs):
        for name, says in programs.items():
            path = os.path.join(self.directory, name)
            with open(path, "w") as file:
                file.write(f"#!/bin/sh\necho '{self.SAY[says]}'\n")
            os.chmod(path, 0o755)

    def found(self, wanted="auto", plugins=(), **environment):
        launcher = _launchers.find_launcher({"PATH": self.directory, **environment}, wanted, lambda: list(plugins))
        return launcher.kind, launcher.flavour, os.path.basename(launcher.path)

    def test_installed_launchers(self):
        self.install(mpirun="mpich", mpiexec="openmpi", srun="srun")
        self.assertEqual(self.found(), ("mpiexec", "mpich", "mpirun"))
        self.assertEqual(self.found("mpirun"), ("mpirun", "openmpi", "mpiexec"))
        self.assertEqual(self.found(FARANDOLE_MPI="openmpi"), ("mpirun", "openmpi", "mpiexec"))
        self.assertEqual(self.found(SLURM_JOB_ID="7"), ("srun", "pmix", "srun"))
        self.assertEqual(self.found(FARANDOLE_MPI="pmix"), ("mpirun", "openmpi", "mpiexec"))
        self.assertEqual(self.found(SLURM_JOB_ID="7", FARANDOLE_MPI="pmix"), ("srun", "pmix", "srun"))
        self.assertEqual(self.found(SLURM_JOB_ID="7", FARANDOLE_MPI="openmpi"), ("srun", "openmpi", "srun"))
        self.assertEqual(self.found("mpiexec", SLURM_JOB_ID="7"), ("mpiexec", "mpich", "mpirun"))
        self.assertEqual(self.found("srun", plugins=["mpi_openmpi"]), ("srun", "openmpi", "srun"))
        self.assertEqual(self.found("srun", plugins=["mpi_openmpi", "mpi_mpich"]), ("srun", "mpich", "srun"))

    def test_intel(self):
        self.install(mpirun="intelmpi")
        self.assertEqual(self.found(FARANDOLE_MPI="mpich"), ("mpiexec", "intelmpi", "mpirun"))

    def test_none(self):
        with self.assertRaisesRegex(errors.Unsupported, "no mpirun of Open MPI or mpiexec of MPICH.* is on PATH; install one"):
            self.found()
        with self.assertRaisesRegex(errors.Unsupported, "no srun is on PATH"):
            self.found("srun")
        self.install(mpirun="mpich")
        with self.assertRaisesRegex(errors.Unsupported, r"mpirun is that of MPICH\); install"):
            self.found("mpirun")
        with self.assertRaisesRegex(errors.InvalidArgument, "--launcher mpirun and FARANDOLE_MPI=mpich contradict"):
            self.found("mpirun", FARANDOLE_MPI="mpich")

    def test_ranks_are_refused(self):
        with self.assertRaisesRegex(errors.InvalidArgument, "rank 1 of a job already"):
            _launchers.refuse_ranks({"PMI_RANK": "1"})


class SshTest(unittest.TestCase):
    """An ssh that answers as its host's name asks it to."""

    SSH = """#!/bin/sh
for host; do last=$host; [ "$host" = true ] || name=$host; done
[ "$last" = true ] && [ "$1 $2" = '-o BatchMode=yes' ] || { echo "unexpected: $*" >&2; exit 9; }
case $name in
  password) echo 'me@password: Permission denied (publickey,password).' >&2; exit 255 ;;
  stranger) echo 'Host key verification failed.' >&2; exit 255 ;;
  *) echo "$*" >>"$0.log" ;;
esac
"""

    def setUp(self):
        self.directory = tempfile.mkdtemp()
        self.ssh = os.path.join(self.directory, "ssh")
        with open(self.ssh, "w") as file:
            file.write(self.SSH)
        os.chmod(self.ssh, 0o755)
        before = os.environ["PATH"]
        os.environ["PATH"] = f"{self.directory}:{before}"
        self.addCleanup(os.environ.update, PATH=before)
        self.addCleanup(lambda: subprocess.run(["rm", "-r", self.directory], check=True))

    def prepare(self, mpi, options, **environment):
        request = _options.parse([*shlex.split(options), "x"])
        _checks.prepare(launcher_of(mpi), request.options, environment)
        if not os.path.exists(f"{self.ssh}.log"):
            return ""
        with open(f"{self.ssh}.log") as file:
            return file.read()

    def test_hosts_that_ask(self):
        with self.assertRaisesRegex(
            errors.Unsupported,
            r"(?s)password: .*Permission denied .*ssh-copy-id password.*stranger: Host key .*accept its key: ssh stranger",
        ):
            self.prepare("openmpi", "-np 3 -H password,good,stranger")

    def test_hosts_that_do_not(self):
        asked = self.prepare("openmpi", "-np 2 -H good,localhost -p 22 -i key", OMPI_MCA_plm_rsh_args="-v")
        self.assertEqual(asked, "-o BatchMode=yes -o ConnectTimeout=30 -v -p 22 -i key good true\n")

    def test_launches_that_need_no_ssh(self):
        self.assertEqual("", self.prepare("slurm:mpich", "-np 1 -H password"))
        self.assertEqual("", self.prepare("openmpi", "-np 1 -H password", SLURM_JOB_ID="7"))
        self.assertEqual("", self.prepare("openmpi", "-np 1 -H password", OMPI_MCA_plm_rsh_agent="/etc/mpi/kubexec.sh"))


class HorovodrunTest(unittest.TestCase):
    def test_programs(self):
        for program, expected in {
            "python train.py -m x": "python -m farandole.as_horovod train.py -m x",
            "/bin/python3.11 -u -W ignore -m pkg.train": "/bin/python3.11 -u -W ignore -m farandole.as_horovod -m pkg.train",
            "python -c pass": "python -c pass",
            "bash -c 'python x.py'": "bash -c 'python x.py'",
            "python": "python",
        }.items():
            self.assertEqual(run_script.wrapped(shlex.split(program)), shlex.split(expected))

    def test_installed_only_where_no_other_is(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "horovodrun")
            for _ in range(2):
                self.assertIn(path, run_script.install(directory))
            done = subprocess.run([path, "-np", "2"], capture_output=True, text=True)
            self.assertEqual(done.returncode, 2)
            self.assertRegex(done.stderr, "^horovodrun: InvalidArgument: the program is missing: horovodrun -np RANKS python train.py\n$")
            os.remove(path)
            with open(path, "w") as file:
                file.write("#!/usr/bin/python3\nfrom horovod.runner.launch import run_commandline\n")
            with self.assertRaisesRegex(errors.InvalidArgument, "is not Farandole's"):
                run_script.install(directory)


class PagesTest(unittest.TestCase):
    def options(self):
        parser = _options.make_parser()
        return [each for each in parser._actions if each.help != "==SUPPRESS=="]

    def test_all_options_are_in_the_page(self):
        page = _pages.manual_page()
        for action in self.options():
            for name in action.option_strings:
                self.assertIn(f"\\fB{name}\\fR".replace("-", "\\-"), page)
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(page)
            file.flush()
            with contextlib.suppress(FileNotFoundError):
                done = subprocess.run(
                    ["groff", "-man", "-Tutf8", "-ww", "-z", file.name], capture_output=True, text=True
                )
                self.assertEqual(done.stderr, "")

    def test_completion(self):
        for words, expected in {
            "--laun": "--launcher", "--launcher s": "srun", "-np ''": "", "--log-level DE": "DEBUG",
            "--output-filename sub": "subdirectory", "--hostfile a": "a_file",
        }.items():  # fmt: skip
            with tempfile.TemporaryDirectory() as directory:
                os.mkdir(os.path.join(directory, "subdirectory"))
                open(os.path.join(directory, "a_file"), "w").close()
                script = (
                    f"{_pages.bash_completion()}\nCOMP_WORDS=(farandole-run {words})\n"
                    "COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _farandole_run; echo \"${COMPREPLY[*]-}\""
                )
                done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, cwd=directory)
            self.assertEqual((done.stdout, done.stderr), (expected + "\n", ""), words)


if __name__ == "__main__":
    unittest.main()
