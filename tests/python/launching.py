# SPDX-License-Identifier: Apache-2.0
"""farandole.run, the function and the command line, from a program of one process. FARANDOLE_MPI says with which MPI."""

import importlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest

import support

support.need("numpy", "cloudpickle")

import farandole
from farandole import _mpirun, _run_options, errors

HOSTS = [("a", 2), ("b", 1)]
SECONDS = 60


def sum_over_ranks(value, *, scale):
    import farandole.numpy as collectives

    farandole.init()
    return farandole.rank(), float(collectives.allreduce([value], op=farandole.Sum)[0] * scale), os.environ.get("MINE")


def fails(on):
    farandole.init()
    if farandole.rank() == on:
        raise KeyError("no such thing")
    importlib.import_module("farandole.numpy").barrier()


def through_horovod():
    import horovod.common

    return horovod.common.global_process_set.__class__.__module__


def runs(process):
    """Whether it is there, and not just waiting to be reaped by whoever inherits orphans."""
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def command(*arguments):
    return [sys.executable, "-m", "farandole.run", *arguments]


def run(*arguments, **named):
    return subprocess.run(
        command(*arguments), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS, **named
    )


class FunctionTest(unittest.TestCase):
    def test_results_in_the_order_of_ranks(self):
        results = farandole.run(sum_over_ranks, (2.0,), {"scale": 3}, np=3, env={"MINE": "x"})
        self.assertEqual(results, [(rank, 18.0, "x") for rank in range(3)])
        importlib.import_module("farandole.run")  # the module of the command line is the function too
        self.assertEqual(farandole.run(lambda: 7), [7])

    def test_horovods_name(self):
        farandole.install_as_horovod()
        import horovod

        self.assertEqual(horovod.run(through_horovod, num_proc=2, use_mpi=True), ["farandole.process_sets"] * 2)

    def test_the_error_of_a_rank(self):
        with self.assertRaisesRegex(RuntimeError, r"fails failed on rank 1 of 2: KeyError: 'no such thing'") as caught:
            farandole.run(fails, (1,), np=2)
        trace = str(caught.exception)
        self.assertIn("launching.py", trace)
        self.assertIn('raise KeyError("no such thing")', trace)
        self.assertNotIn("_run_task.py", trace)
        with self.assertRaisesRegex(RuntimeError, "no result came from rank 0|SystemExit: 3"):
            farandole.run(sys.exit, (3,))

    def test_a_rank_that_is_killed(self):
        def dies():
            os.kill(os.getpid(), signal.SIGKILL)

        with self.assertRaisesRegex(RuntimeError, "no result came from rank 0"):
            farandole.run(dies)

    def test_what_can_not_work(self):
        with self.assertRaisesRegex(errors.InvalidArgument, "4 processes were asked for, but localhost:2 takes 2"):
            farandole.run(print, np=4, hosts="localhost:2")
        with self.assertRaisesRegex(errors.InvalidArgument, "pickled"):
            farandole.run(print, (sys._getframe(),))
        with self.assertRaisesRegex(errors.InvalidArgument, "either hosts or a hostfile"):
            farandole.run(print, hosts="a", hostfile="b")
        with self.assertRaisesRegex(errors.InvalidArgument, "rank 1 of a job already"):
            _mpirun.job_environment(_mpirun.Options(), {"PMI_RANK": "1"})

    def test_nothing_is_left(self):
        with tempfile.TemporaryDirectory() as directory:
            before, tempfile.tempdir = tempfile.tempdir, directory
            try:
                farandole.run(os.getpid)
            finally:
                tempfile.tempdir = before
            self.assertEqual(os.listdir(directory), [])


class CommandTest(unittest.TestCase):
    def test_a_program(self):
        program = (
            "import farandole, os, sys; farandole.init(); "
            "sys.stdout.write(f'{farandole.rank()} {os.environ[\"FARANDOLE_FUSION_BYTES\"]}\\n')"
        )
        done = run("-np", "2", "-H", "localhost:2", "--fusion-threshold-mb", "2", "--verbose", sys.executable, "-c", program)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(done.stdout.split("\n")), ["", "0 2097152", "1 2097152"])
        self.assertRegex(done.stderr, r"mpi(run|exec)\S* .*-np 2 ")

    def test_a_timeline(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "timeline.json")
            program = "import farandole, farandole.numpy as c; farandole.init(); c.allreduce([1.0], name='summed')"
            done = run("-np", "2", "--timeline-filename", path, sys.executable, "-c", program)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(path) as file:
                events = json.load(file)
        self.assertIn("NEGOTIATE_ALLREDUCE", [each.get("name") for each in events])

    def test_the_status_is_that_of_the_program(self):
        self.assertEqual(run("-np", "1", sys.executable, "-c", "import sys; sys.exit(7)").returncode, 7)

    def test_ctrl_c_ends_all(self):
        # One write for each line: what two ranks write with two can interleave.
        program = "import os, time; os.write(1, b'%d\\n' % os.getpid()); time.sleep(1000)"
        job = subprocess.Popen(
            command("-np", "2", sys.executable, "-c", program),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        self.addCleanup(job.wait)
        self.addCleanup(job.terminate)
        ranks = [int(job.stdout.readline()) for _ in range(2)]
        job.send_signal(signal.SIGINT)
        status = job.wait(SECONDS)
        # MPICH's says 0 where it hears of the ranks' ends before it has dealt with the signal.
        if os.environ.get("FARANDOLE_MPI") != "mpich":
            self.assertNotEqual(status, 0)
        job.stdout.close()
        self.assertEqual([rank for rank in ranks if runs(rank)], [])

    def test_texts(self):
        for arguments, text in {
            ("-np", "2"): "the program is missing",
            ("python", "x.py"): "the number of processes is missing",
            ("-np", "2", "-H", "a b", "python"): "hosts are written HOST:SLOTS",
            ("-np", "2", "--host-discovery-script", "x", "python"): "give the hosts with -H or --hostfile",
            ("-np", "2", "--hostfile", "/missing", "python"): "/missing",
        }.items():
            done = run(*arguments)
            self.assertEqual(done.returncode, 2, done.stdout)
            self.assertIn(text, done.stderr)
        shown = run("--help").stdout
        for name in ("-np", "--hosts", "--timeline-filename", "--mpi-args"):
            self.assertIn(name, shown)
        self.assertIn('"version"', run("--check-build").stdout)


class VersionTest(unittest.TestCase):
    def test_all_programs_print_it_alike(self):
        for program in ("run", "as_horovod", "build_ops"):
            for option in ("--version", "--help"):
                done = subprocess.run(
                    [sys.executable, "-m", f"farandole.{program}", option],
                    stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS,
                )  # fmt: skip
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                if option == "--version":
                    self.assertEqual(done.stdout, f"farandole.{program} (Farandole) {farandole.__version__}\n")
                else:
                    self.assertRegex(done.stdout, r"(?s)^usage: python -m farandole\." + program + ".*--help.*--version")


class FramesTest(unittest.TestCase):
    def test_a_traceback_begins_with_the_program(self):
        with tempfile.TemporaryDirectory() as directory:
            with open(os.path.join(directory, "failing_program.py"), "w") as file:
                file.write("import horovod\n\ndef train():\n    raise KeyError('here')\n\nhorovod.init()\ntrain()\n")
            for program in (["failing_program.py"], ["-m", "failing_program"]):
                done = subprocess.run(
                    [sys.executable, "-m", "farandole.as_horovod", *program],
                    stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS, cwd=directory,
                )  # fmt: skip
                self.assertEqual(done.returncode, 1)
                frames = re.findall(r'File "(.*)", line (\d+)', done.stderr)
                self.assertEqual([(os.path.basename(name), line) for name, line in frames], [
                    ("failing_program.py", "7"), ("failing_program.py", "4")
                ])  # fmt: skip


class OptionsTest(unittest.TestCase):
    def made(self, flavour, *arguments, names=()):
        options, program, _ = _run_options.parse([*arguments, "python", "train.py", "-np", "9"])
        self.assertEqual(program, ["python", "train.py", "-np", "9"])
        return " ".join(_mpirun.command_line(_mpirun.Launcher(flavour, "mpirun"), options, program, names))

    def test_open_mpi(self):
        plain = self.made("openmpi", "-np", "2", names=["PATH"])
        self.assertRegex(plain, r"^mpirun .*-np 2 -H localhost:2 --bind-to none .* python train.py -np 9$")
        self.assertNotIn("-x", plain)
        much = self.made(
            "openmpi", "-np", "3", "-H", "a:2,b", "-p", "2222", "-i", "key", "--network-interfaces", "eth0,eth1",
            "--output-filename", "/logs", "--mpi-args=--report-bindings", "--tcp",
            names=["PATH", "SSH_TTY", "BASH_FUNC_x%%", "HOROVOD_TIMELINE"],
        )  # fmt: skip
        for part in (
            "-H a:2,b:1", "plm_rsh_args -p 2222 -i key", "btl_tcp_if_include eth0,eth1", "--output-filename /logs",
            "-x HOROVOD_TIMELINE -x PATH --report-bindings python", "btl self,tcp",
        ):  # fmt: skip
            self.assertIn(part, much)

    def test_mpich(self):
        much = self.made("mpich", "-np", "3", "-H", "a:2,b", "-p", "2222", "--network-interface", "eth0", names=["PATH"])
        for part in ("-np 3 -hosts a:2,b:1", "-iface eth0", "HYDRA_LAUNCHER_EXTRA_ARGS -p 2222"):
            self.assertIn(part, much)
        with self.assertRaisesRegex(errors.Unsupported, "FARANDOLE_MPI=openmpi"):
            self.made("mpich", "-np", "1", "--tcp")

    def test_variables(self):
        options, _, _ = _run_options.parse(
            ["-np", "1", "--timeline-filename", "t.json", "--no-stall-check", "--no-autotune", "--log-level", "debug", "x"]
        )
        self.assertEqual(
            options.settings,
            {
                "HOROVOD_TIMELINE": "t.json",
                "HOROVOD_STALL_CHECK_DISABLE": "1",
                "HOROVOD_AUTOTUNE": "0",
                "HOROVOD_LOG_LEVEL": "debug",
            },
        )

    def test_hostfile(self):
        self.assertEqual(_run_options.parse_hostfile("a slots=2  # two\n\nb\n", "hosts"), HOSTS)
        self.assertEqual(_run_options.parse_hosts("a:2,b"), HOSTS)
        with self.assertRaisesRegex(errors.InvalidArgument, re.escape("hosts:2: lines are written HOST slots=SLOTS")):
            _run_options.parse_hostfile("a\nb many=2", "hosts")


if __name__ == "__main__":
    unittest.main()
