# SPDX-License-Identifier: Apache-2.0
"""farandole.run, as a function and as a command line, from a program of one process. FARANDOLE_MPI selects the MPI."""

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
from farandole import errors

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

    def test_refuses_what_no_rank_can_call(self):
        with self.assertRaisesRegex(errors.InvalidArgument, "must be a function that each rank calls, not 3"):
            farandole.run(3, np=2)

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
        self.assertNotIn("launch/_task.py", trace)
        with self.assertRaisesRegex(RuntimeError, "no result came from rank 0|SystemExit: 3"):
            farandole.run(sys.exit, (3,))

    def test_a_rank_that_is_killed(self):
        def dies():
            os.kill(os.getpid(), signal.SIGKILL)

        with self.assertRaisesRegex(RuntimeError, "no result came from rank 0"):
            farandole.run(dies)

    def test_invalid_arguments(self):
        with self.assertRaisesRegex(errors.InvalidArgument, "4 processes were asked for, but localhost:2 takes 2"):
            farandole.run(print, np=4, hosts="localhost:2")
        with self.assertRaisesRegex(errors.InvalidArgument, "pickled"):
            farandole.run(print, (sys._getframe(),))
        with self.assertRaisesRegex(errors.InvalidArgument, "either hosts or a hostfile"):
            farandole.run(print, hosts="a", hostfile="b")

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
        done = run("-n", "2", "-H", "localhost:2", "--fusion-threshold-mb", "2", "--verbose", sys.executable, "-c", program)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(done.stdout.split("\n")), ["", "0 2097152", "1 2097152"])
        self.assertRegex(done.stderr, r"2 ranks on localhost:2 by mpi(run|exec) of \S.*, because FARANDOLE_MPI is ")
        self.assertRegex(done.stderr, r"env FARANDOLE_FUSION_BYTES=2097152 (TF_CPP_MIN_LOG_LEVEL=2 )?\S*mpi(run|exec)\S* .*-np 2 ")

    def test_printed_command_runs_in_a_shell(self):
        program = "import os, sys; print(os.environ['FARANDOLE_LOG'], sys.argv[1:])"
        printed = run("--print", "-np", "1", "--log-level", "ERROR", sys.executable, "-c", program, "a b", "$HOME", "it's")
        self.assertEqual((printed.returncode, printed.stderr), (0, ""))
        done = subprocess.run(
            ["sh", "-c", printed.stdout], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS
        )
        self.assertEqual(done.stdout, """error ['a b', '$HOME', "it's"]\n""", done.stderr)

    def test_output_of_each_rank(self):
        with tempfile.TemporaryDirectory() as directory:
            done = run("-np", "2", "--output-filename", f"{directory}/logs", "echo", "said")
            self.assertEqual(done.returncode, 0, done.stderr)
            said = [
                os.path.join(place, name) for place, _, names in os.walk(directory) for name in names if "stdout" in name
            ]
            self.assertEqual(len(said), 2)
            for name in said:
                with open(name) as file:
                    self.assertEqual(file.read(), "said\n")

    def test_arguments_of_ssh_reach_it(self):
        with tempfile.TemporaryDirectory() as directory:
            ssh = os.path.join(directory, "ssh")
            with open(ssh, "w") as file:
                # The host is asked whether it answers, and then to start a daemon: there the launcher ends.
                file.write('#!/bin/sh\necho "$*" >>"$0.log"\ncase $* in *" true") exit 0 ;; esac\nkill -TERM $PPID\n')
            os.chmod(ssh, 0o755)
            environment = {**os.environ, "PATH": f"{directory}:{os.environ['PATH']}"}
            run("-np", "1", "-H", "elsewhere.invalid", "-p", "2222", "-i", "key", "true", env=environment)
            with open(f"{ssh}.log") as file:
                asked, *started = file.read().splitlines()
        self.assertTrue(asked.startswith("-o BatchMode=yes") and asked.endswith("elsewhere.invalid true"), asked)
        self.assertRegex(started[0], r"-p 2222 -i key elsewhere")

    def test_a_host_that_cannot_be_reached(self):
        done = run("-np", "1", "-H", "elsewhere.invalid", "true")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"elsewhere.invalid: (ssh: Could not resolve.*resolver|there is no ssh on PATH)")

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
        # One write per line: with two writes, the output of two ranks could interleave.
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
            ("-np", "2", "--hostfile", "/missing", "python"): "/missing",
        }.items():
            done = run(*arguments)
            self.assertEqual(done.returncode, 2, done.stdout)
            self.assertIn(text, done.stderr)
        shown = run("--help").stdout
        for name in ("-np", "--hosts", "--timeline-filename", "--mpi-args"):
            self.assertIn(name, shown)

    def test_statuses(self):
        for arguments, status, text in (
            (["-np", "3", "-H", "localhost:1", "true"], 2, "3 processes were asked for"),
            (["-np", "1", __file__], 2, "did you mean: python -m farandole.run -np 1 python "),
            (["-np", "1", "no-such-program"], 2, "there is no program no-such-program"),
            (["-np", "1", "-H", "elsewhere.invalid", "true"], 1, "elsewhere.invalid: "),
        ):
            done = run(*arguments)
            self.assertEqual(done.returncode, status, done.stderr)
            self.assertIn(text, done.stderr)
            self.assertTrue(done.stderr.startswith("python -m farandole.run: "), done.stderr)

    def test_check_build(self):
        shown = run("--check-build").stdout
        for label, text in (("version", farandole.__version__), ("plug-ins", ".*mpi_"), ("launcher", "mpi(run|exec) of ")):
            self.assertRegex(shown, f"(?m)^{label} +{text}")
        self.assertLessEqual(max(map(len, shown.splitlines())), 120)
        given = subprocess.run(
            [sys.executable, "-c", "from farandole._info import farandole_info; farandole_info()", "--json"],
            env={**os.environ, "FARANDOLE_LOG": "error"}, capture_output=True, text=True, timeout=SECONDS,
        )  # fmt: skip
        self.assertEqual(json.loads(given.stdout)["settings"]["FARANDOLE_LOG"], "error")

    def test_info_program(self):
        def ends(status, arguments=(), **variables):
            done = subprocess.run(
                [sys.executable, "-c", "from farandole._info import farandole_info; farandole_info()", *arguments],
                env={**os.environ, **variables}, capture_output=True, text=True, timeout=SECONDS,
            )  # fmt: skip
            self.assertEqual(done.returncode, status, done.stderr)
            return done.stdout if status == 0 else done.stderr

        settings = ends(0, ["--config"], FARANDOLE_LOG="error")
        self.assertRegex(settings, r"(?m)^FARANDOLE_ALLREDUCE=auto$")
        self.assertRegex(settings, r"(?m)^FARANDOLE_LOG=error$")
        self.assertIn("docs/configuration.md", settings)
        refused = ends(2, ["--explain", "allreduce", "1MiB", "--size", "4"])
        self.assertRegex(refused, r"^farandole-info: Unsupported: --explain needs the C\+\+ program farandole-info")

        wrong = "FARANDOLE_ALREDUCE is no setting of Farandole (did you mean FARANDOLE_ALLREDUCE?)"
        for arguments in ([], ["--json"], ["--config"]):
            refused = ends(2, arguments, FARANDOLE_ALREDUCE="ring")
            self.assertTrue(refused.startswith("farandole-info: InvalidArgument: "), refused)
            self.assertIn(wrong, refused)
        for question in ("info", "mpi_built", "mpi_enabled"):
            attempt = f"try: farandole.{question}()\nexcept farandole.errors.InvalidArgument as error: print(error)"
            program = f"import farandole\n{attempt}"
            done = subprocess.run(
                [sys.executable, "-c", program], env={**os.environ, "FARANDOLE_ALREDUCE": "ring"}, capture_output=True,
                text=True, timeout=SECONDS,
            )  # fmt: skip
            self.assertIn(wrong, done.stdout, done.stderr)

    def test_tensorflow_logs_errors_only_by_default(self):
        environment = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
        program = "import os; print(os.environ.get('TF_CPP_MIN_LOG_LEVEL'))"
        for command_line, given, expected in (
            (command("-np", "1", sys.executable, "-c", program), {}, "2"),
            (command("-np", "1", sys.executable, "-c", program), {"TF_CPP_MIN_LOG_LEVEL": "0"}, "0"),
            (command("-np", "1", "printenv", "TF_CPP_MIN_LOG_LEVEL"), {}, ""),
        ):
            done = subprocess.run(
                command_line, env={**environment, **given}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                timeout=SECONDS,
            )  # fmt: skip
            self.assertEqual(done.stdout.strip(), expected)

    def test_examples_say_how_to_get_their_data(self):
        program = "import fashion_mnist, pathlib; fashion_mnist.load(pathlib.Path('/missing'), 'train')"
        examples = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "python")
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=examples, capture_output=True, text=True, timeout=SECONDS
        )
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "^/missing/train-images.*no such file.*apt-get install .*--data-dir")


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


if __name__ == "__main__":
    unittest.main()
