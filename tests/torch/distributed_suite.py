#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs torch's own tests of torch.distributed with the backend `farandole`.

The tests are those of `DistributedTest._DistTestBase`, which come with torch. Where a test asks for a backend by name, this
program lets it run as it does with gloo; a test that runs with gloo and not here counts as failed.

The ranks stay alive from test to test: each test gets a new process group of them. If a rank does not answer in time, all
ranks are killed and started again.
"""

import argparse
import json
import multiprocessing
import os
import socket
import sys
import tempfile
import time
import traceback
import unittest
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

SUITE = "torch.testing._internal.distributed.distributed_test"
PASSED, SKIPPED, FAILED = "passed", "skipped", "failed"
# Tests of a rank's end, which need a rank of their own per test.
ENDS_ITS_RANK = {"test_ddp_has_finalized"}
# Tests that cannot pass, and why.
CANNOT_PASS = {"test_ddp_logging_data_cpu": "torch's DDP log calls every backend that is not torch's own 'custom'"}
# Tests that fail with every backend where something is missing for which they do not ask.
NEEDS_MORE = {
    "test_SyncBatchNorm_process_group": "torchvision",
    "test_all_to_all_cuda": "GPUs",
    "test_all_to_all_cuda_complex": "GPUs",
    "test_all_to_all_full_group_cuda": "GPUs",
    "test_batch_isend_irecv_mixed_backend_err": "NCCL",
    "test_batch_isend_irecv_op_err": "GPUs",
    "test_new_subgroups_with_group_param": "4 ranks",
}


class Outcome(NamedTuple):
    """Result of a test on one rank, or on all. text: why it was skipped, or how it failed."""

    status: str
    text: str = ""


class NameLikeGloo(str):
    """Name of the backend, which also equals "gloo": bodies of tests compare names, too."""

    def __eq__(self, other: object) -> bool:
        return other == "gloo" or str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


def make_suite(backend: str):
    """The class of tests, and the module that defines it."""
    # The decorators of tests compare the backend's name when the module is imported.
    os.environ["BACKEND"] = "gloo"
    from torch.testing._internal import common_distributed, common_utils

    for feature in ("ddp", "subgroup", "plugin"):
        common_distributed.DistTestCases.backend_feature[feature].add(backend)
    import importlib

    module = importlib.import_module(SUITE)
    module.BACKEND = NameLikeGloo(backend)
    if backend == "farandole":
        import farandole.torch

        module.dist.monitored_barrier = farandole.torch.monitored_barrier  # torch's refuses every backend but gloo

    class Suite(module.DistributedTest._DistTestBase, common_utils.TestCase):
        rank = 0

        @property
        def world_size(self):
            return int(os.environ["WORLD_SIZE"])

        @property
        def init_method(self):
            return f"file://{self.file_name}"

        @property
        def is_master(self):
            return self.rank == 0

    return Suite, module, common_distributed


def run_test(suite, common, name: str, rank: int, store: str, backend: str, seconds: int) -> Outcome:
    import torch
    import torch.distributed as dist

    test = suite(name)
    test.rank, test.file_name = rank, store
    names = {skip.exit_code: skip.message for skip in common.TEST_SKIPS.values()}
    torch.manual_seed(0)
    from datetime import timedelta

    dist.init_process_group(
        backend,
        init_method=f"file://{store}",
        rank=rank,
        world_size=int(os.environ["WORLD_SIZE"]),
        timeout=timedelta(seconds=seconds),
    )
    try:
        test.setUp()
        getattr(test, name)()
        test.tearDown()
        test.doCleanups()
        outcome = Outcome(PASSED)
    except unittest.SkipTest as skip:
        outcome = Outcome(SKIPPED, str(skip))
    except SystemExit as end:
        outcome = Outcome(SKIPPED, names[end.code]) if end.code in names else Outcome(FAILED, f"exit with {end.code}")
    except BaseException:  # noqa: B902: whatever a test throws is a result
        outcome = Outcome(FAILED, traceback.format_exc())
    if dist.is_initialized():
        dist.destroy_process_group()
    return outcome


def serve(rank: int, size: int, backend: str, directory: str, port: int, barrier, pipe) -> None:
    """A rank: runs the tests that arrive in the pipe."""
    # Some tests leave and join by these variables; torch uses the port once per test.
    os.environ.update(WORLD_SIZE=str(size), TEMP_DIR=directory, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    sys.argv = sys.argv[:1]
    suite, module, common = make_suite(backend)
    # Theirs polls files, 100 ms each time.
    by_files = module.Barrier.sync

    def sync(wait_for=None, timeout=10):
        return barrier.wait(timeout) if wait_for in (None, size) else by_files(wait_for, timeout)

    module.Barrier.sync = sync
    pipe.send([name for name in dir(suite) if name.startswith("test_")])
    for name, store, seconds in iter(pipe.recv, None):
        log = Path(directory, f"log.{rank}")
        with open(log, "w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        pipe.send(run_test(suite, common, name, rank, store, backend, seconds))


class Ranks:
    """The processes of the ranks."""

    def __init__(self, size: int, backend: str):
        self.size, self.backend = size, backend
        self._directory = tempfile.TemporaryDirectory()
        for name in ("barrier", "test_dir", "init_dir"):
            os.mkdir(os.path.join(self._directory.name, name))
        context = multiprocessing.get_context("spawn")
        barrier = context.Barrier(size)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._pipes, self._processes = [], []
        for rank in range(size):
            mine, its = context.Pipe()
            arguments = (rank, size, backend, self._directory.name, port, barrier, its)
            process = context.Process(target=serve, args=arguments, daemon=False)
            process.start()
            its.close()
            self._pipes.append(mine)
            self._processes.append(process)
        self.tests = [pipe.recv() for pipe in self._pipes][0]

    def run(self, name: str, seconds: int) -> List[Outcome]:
        """Outcomes by rank."""
        store = os.path.join(self._directory.name, f"store.{time.monotonic_ns()}")
        for pipe in self._pipes:
            pipe.send((name, store, seconds))
        end = time.monotonic() + seconds
        return [self._answer(rank, end) for rank in range(self.size)]

    def _answer(self, rank: int, end: float) -> Outcome:
        pipe = self._pipes[rank]
        try:
            if pipe.poll(max(0.1, end - time.monotonic())):
                return pipe.recv()
            return Outcome(FAILED, f"rank {rank} has not answered in time\n{self._log(rank)}")
        except EOFError:
            self._processes[rank].join()
            return Outcome(FAILED, f"rank {rank} ended with {self._processes[rank].exitcode}\n{self._log(rank)}")

    def _log(self, rank: int) -> str:
        log = Path(self._directory.name, f"log.{rank}")
        return log.read_text(errors="replace")[-4000:] if log.exists() else ""

    def end(self, kill: bool) -> None:
        for pipe, process in zip(self._pipes, self._processes):
            if kill:
                process.kill()
            else:
                pipe.send(None)
            process.join()
        self._directory.cleanup()


def joined(outcomes: List[Outcome]) -> Outcome:
    """The outcome of a test on all ranks: failed if a rank failed, skipped if all ranks skipped it."""
    failed = [f"rank {rank}: {outcome.text}" for rank, outcome in enumerate(outcomes) if outcome.status == FAILED]
    if failed:
        return Outcome(FAILED, "\n".join(failed))
    return next((outcome for outcome in outcomes if outcome.status == PASSED), outcomes[0])


def run_all(size: int, backend: str, names: Optional[List[str]], seconds: int) -> Dict[str, Tuple[str, str, float]]:
    ranks = Ranks(size, backend)
    results = {}
    for name in names or [test for test in ranks.tests if test not in ENDS_ITS_RANK]:
        begin = time.monotonic()
        outcome = joined(ranks.run(name, seconds)) if name in ranks.tests else Outcome(FAILED, "torch has no such test")
        took = time.monotonic() - begin
        results[name] = (outcome.status, outcome.text, round(took, 2))
        first_line = outcome.text.strip().splitlines()[-1] if outcome.text.strip() else ""
        print(f"{outcome.status:8}{took:7.2f} s  {name}  {first_line[:150]}", flush=True)
        if outcome.status == FAILED:
            ranks.end(kill=True)
            ranks = Ranks(size, backend)
    ranks.end(kill=False)
    return results


def main(arguments: List[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--backend", default="farandole")
    parser.add_argument("--tests", type=Path, help="file with a name per line; all tests if not given")
    parser.add_argument("--only", nargs="*", help="names of tests")
    parser.add_argument("--seconds", type=int, default=90, help="limit of one test")
    parser.add_argument("--json", type=Path, help="file for the results")
    parser.add_argument("--as", dest="reference", type=Path, help="results with gloo, by --json: what runs there must pass, what fails there may fail")
    options = parser.parse_args(arguments)
    names = options.only
    if options.tests:
        lines = (line.split("#")[0].strip() for line in options.tests.read_text().splitlines())
        names = [line for line in lines if line]
    results = run_all(options.ranks, options.backend, names, options.seconds)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))
    failed = {
        name: text
        for name, (status, text, _) in results.items()
        if status == FAILED and name not in CANNOT_PASS and name not in NEEDS_MORE
    }
    if options.reference:
        reference: Dict[str, Any] = json.loads(options.reference.read_text())
        failed = {name: text for name, text in failed.items() if reference.get(name, [PASSED])[0] != FAILED}
        for name, (status, text, _) in results.items():
            if status == SKIPPED and reference.get(name, [SKIPPED])[0] == PASSED:
                failed[name] = f"skipped, and runs with gloo: {text}"
    for name, text in failed.items():
        print(f"\n=== {name}\n{text}")
    counts = {status: sum(result[0] == status for result in results.values()) for status in (PASSED, SKIPPED, FAILED)}
    print(f"{options.backend}, {options.ranks} ranks: {counts}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
