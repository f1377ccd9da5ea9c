#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: jobs_test.py [LAUNCHER...]

How processes of torch join a job: torchrun, tcp, a launcher of MPI (the command LAUNCHER, which starts two processes), and
what the backend says if that cannot be.
"""

import os
import re
import socket
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

LAUNCHER = []
BEGIN = """
import os
import torch
import torch.distributed as dist
import farandole
import farandole.torch

RANK_NAMES = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "RANK")
RANK = int(next(os.environ[name] for name in RANK_NAMES if name in os.environ))

def own_address():
    # torch before 2.15 would take this address for the one of torchrun's store, and serve none here.
    os.environ.pop("TORCHELASTIC_USE_AGENT_STORE", None)
    return dict(init_method="tcp://127.0.0.1:" + os.environ["TEST_PORT"], world_size=2)

def expect_sum():
    values = torch.ones(3)
    dist.all_reduce(values)
    assert values.tolist() == [2.0, 2.0, 2.0], values
"""
TWO_JOBS = """
for job in range(2):
    dist.init_process_group("farandole", rank=RANK, **own_address())
    expect_sum()
    dist.destroy_process_group()
"""
TWO_JOBS_OF_TORCHRUN = """
for job in range(2):
    dist.init_process_group("cpu:farandole,cuda:farandole")
    expect_sum()
    dist.destroy_process_group()
"""
SHARED_JOB = """
import farandole.numpy as collectives

dist.init_process_group("farandole", rank=RANK, **own_address())
farandole.init()
assert (farandole.rank(), farandole.size()) == (RANK, 2)
dist.destroy_process_group()
assert collectives.allreduce([1.0], op=farandole.Sum)[0] == 2.0
dist.init_process_group("farandole", rank=RANK, **own_address())
expect_sum()
"""  # the group ends with the interpreter
EXCHANGED_RANKS = """
dist.init_process_group("farandole", rank=1 - RANK, **own_address())
"""
# Rank 1 does not come, or rank 0; then a rank that the world does not have. One process tries one after the other.
ABSENT_RANKS = """
import time
from datetime import timedelta

def expect(kind, parts, **arguments):
    begin = time.monotonic()
    try:
        dist.init_process_group("farandole", timeout=timedelta(seconds=1), **arguments)
    except kind as error:
        took = time.monotonic() - begin
        assert isinstance(error, dist.DistBackendError) and took < 3, (took, error)
        for part in parts:
            assert part in str(error), f"'{part}' is not in '{error}'"
        assert not dist.is_initialized()
        return
    raise AssertionError(f"no {kind.__name__}")

WORDS = ["the deadline of 1 s (the timeout of init_process_group)", "world_size", "init_method"]
DIRECTORY = os.path.dirname(os.path.abspath(__file__))
for number, rank in enumerate((0, 1)):
    late = "process 1 has not come" if rank == 0 else "rank 1 of 2 waits for rank 0"
    address = f"file://{DIRECTORY}/store{number}"
    expect(farandole.torch.Timeout, [*WORDS, late], init_method=address, rank=rank, world_size=2)
expect(farandole.torch.Timeout, [*WORDS, "process 1 has not come"], store=dist.HashStore(), rank=0, world_size=2)
port = os.environ["TEST_PORT"]
store_of_torchrun = dist.TCPStore("127.0.0.1", int(port), None, True, wait_for_workers=False)
os.environ.update(RANK="0", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
os.environ.update(TORCHELASTIC_USE_AGENT_STORE="True", TORCHELASTIC_RESTART_COUNT="0")
expect(farandole.torch.Timeout, [*WORDS, "process 1 has not come"])
words = ["rank is 5 and world_size 2"]
expect(farandole.torch.InvalidArgument, words, store=dist.HashStore(), rank=5, world_size=2)
"""
FAILING_RANK = """
dist.init_process_group("farandole")
dist.barrier()
if RANK == 1:
    raise ValueError("bad sample 17")
expect_sum()
"""
PART_OF_THE_JOB = """
dist.init_process_group("gloo", rank=RANK, **own_address())
part = dist.new_group([0], backend="farandole")
"""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class JobsTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)

    def run_it(self, launcher, program, **environment):
        path = self.directory / "program.py"
        path.write_text(program)
        environment = {**os.environ, "TEST_PORT": str(free_port()), "OMP_NUM_THREADS": "1", **environment}
        return subprocess.run(
            [*launcher, str(path)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120
        )  # fmt: skip

    def expect_success(self, launcher, program, **environment):
        done = self.run_it(launcher, program, **environment)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertNotIn("farandole warning", done.stdout)

    def torchrun(self):
        port = str(free_port())
        return [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", f"--master-port={port}"]

    def test_jobs_of_torchrun(self):
        self.expect_success(self.torchrun(), BEGIN + TWO_JOBS_OF_TORCHRUN)

    def test_jobs_that_meet_at_an_address(self):
        self.expect_success(self.torchrun(), BEGIN + TWO_JOBS)

    def test_groups_and_engine_share_the_job(self):
        self.expect_success(self.torchrun(), BEGIN + SHARED_JOB)

    def test_ranks_that_do_not_come(self):
        begin = BEGIN[: BEGIN.index("RANK_NAMES")]
        done = self.run_it([sys.executable], begin + ABSENT_RANKS, FARANDOLE_WARN_AFTER="0.3")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertRegex(done.stdout, "farandole warning.*process 1 .*every rank must call init_process_group")

    def test_torchrun_names_the_rank_that_fails(self):
        done = self.run_it(self.torchrun(), BEGIN + FAILING_RANK)
        self.assertNotEqual(done.returncode, 0)
        root_cause = done.stdout[done.stdout.index("Root Cause") :]
        self.assertRegex(root_cause, r"rank +: 1 ")
        self.assertNotIn("leaving the job failed", done.stdout)

    def test_a_part_of_the_job_is_no_first_group(self):
        done = self.run_it(self.torchrun(), BEGIN + PART_OF_THE_JOB)
        self.assertIn("the first process group of the backend farandole must have all 2 ranks, and this one has 1", done.stdout)

    def test_torch_finds_the_backend_by_name(self):
        import torch

        if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 14):
            self.skipTest("torch before 2.14 does not look for backends")
        project = (Path(__file__).resolve().parents[2] / "pyproject.toml").read_text()
        entry = re.search(r'^\[project\.entry-points\."(torch\.distributed\.backends)"\]\n(.*) = "(.*)"', project, re.M)
        about = self.directory / "farandole-0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: farandole\nVersion: 0\n")
        (about / "entry_points.txt").write_text(f"[{entry[1]}]\n{entry[2]} = {entry[3]}\n")
        path = os.pathsep.join([str(self.directory), os.environ.get("PYTHONPATH", "")])
        begin = BEGIN.replace("import farandole.torch\n", "").replace("import farandole\n", "")
        self.expect_success(self.torchrun(), begin + TWO_JOBS_OF_TORCHRUN.replace("cpu:farandole,cuda:farandole", "farandole"),
                            PYTHONPATH=path)  # fmt: skip

    def need_launcher(self):
        if not LAUNCHER:
            self.skipTest("no launcher was given")
        return [*LAUNCHER, sys.executable]

    def test_jobs_of_a_launcher(self):
        self.expect_success(self.need_launcher(), BEGIN + TWO_JOBS)

    def test_groups_and_engine_share_a_launchers_job(self):
        self.expect_success(self.need_launcher(), BEGIN + SHARED_JOB)

    def test_ranks_must_be_the_launchers(self):
        done = self.run_it(self.need_launcher(), BEGIN + EXCHANGED_RANKS)
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stdout, "the program says that this process is number [01] of 2, but it is number [01] of 2")


if __name__ == "__main__":
    LAUNCHER = sys.argv[1:]
    unittest.main(argv=sys.argv[:1])
