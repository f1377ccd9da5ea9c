#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank that dies, aborts or does not come: what the other ranks of the backend `farandole` raise, and when.

Each case starts two ranks. Rank 1 is at fault; rank 0 must raise the expected error within the time given.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from datetime import timedelta
from typing import Callable

CASES = {}


def case(function: Callable[[int], None]) -> Callable[[int], None]:
    CASES[function.__name__] = function
    return function


def expect(kind: str, parts, seconds: float, action: Callable[[], object]) -> None:
    import torch.distributed as dist

    import farandole.torch
    from farandole import errors

    begin = time.monotonic()
    try:
        action()
    except getattr(errors, kind) as error:
        took = time.monotonic() - begin
        assert isinstance(error, dist.DistBackendError) and isinstance(error, getattr(farandole.torch, kind))
        for part in parts:
            assert part in str(error), f"'{part}' is not in '{error}'"
        assert took < seconds, f"{took} s"
        return
    raise AssertionError(f"no {kind}")


def die(after: float) -> None:
    time.sleep(after)
    os.kill(os.getpid(), signal.SIGKILL)


def reduce_with_rank_1(how: str) -> object:
    import torch
    import torch.distributed as dist

    values = torch.ones(1 << 20)
    if how == "blocking":
        return dist.all_reduce(values)
    work = dist.all_reduce(values, async_op=True)
    return work.wait() if how == "work" else work.get_future().wait()


def lost_while_waiting(rank: int, how: str) -> None:
    if rank == 1:
        die(after=0.3)
    expect("PeerLost", ["rank 1"], 0.3 + 1.5, lambda: reduce_with_rank_1(how))
    expect("PeerLost", ["rank 1"], 0.5, lambda: reduce_with_rank_1(how))


@case
def dies_in_a_blocking_call(rank: int) -> None:
    lost_while_waiting(rank, "blocking")


@case
def dies_in_a_work(rank: int) -> None:
    lost_while_waiting(rank, "work")


@case
def dies_in_a_future(rank: int) -> None:
    lost_while_waiting(rank, "future")


@case
def dies_before_it_sends(rank: int) -> None:
    import torch
    import torch.distributed as dist

    if rank == 1:
        die(after=0.3)
    expect("PeerLost", ["rank 1"], 0.3 + 1.5, lambda: dist.recv(torch.ones(3), 1))


@case
def dies_in_the_backward_pass(rank: int) -> None:
    import torch

    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 2))
    loss = model(torch.ones(4, 3)).sum()
    if rank == 1:
        die(after=0.3)
    expect("PeerLost", ["rank 1"], 0.3 + 1.5, loss.backward)


@case
def aborts(rank: int) -> None:
    import torch
    import torch.distributed as dist

    if rank == 1:
        time.sleep(0.3)
        dist.group.WORLD.abort()
        expect("PeerLost", ["torch aborted"], 1, lambda: dist.all_reduce(torch.ones(3)))
    else:
        expect("PeerLost", ["rank 1", "torch aborted"], 1.5, lambda: dist.all_reduce(torch.ones(3)))


@case
def raises(rank: int) -> None:
    """An uncaught exception of rank 1 ends the job while rank 0 computes, and rank 1 does not wait for rank 0."""
    import torch
    import torch.distributed as dist

    if rank == 1:
        raise ValueError("no such file: data.bin")
    time.sleep(4)
    expect("PeerLost", ["rank 1", "ValueError", "data.bin"], 1, lambda: dist.all_reduce(torch.ones(3)))


@case
def exits_with_a_status(rank: int) -> None:
    """SystemExit, which is no uncaught exception for Python, ends the job, too."""
    import torch
    import torch.distributed as dist

    if rank == 1:
        raise SystemExit(3)
    expect("PeerLost", ["rank 1", "exit status 3"], 4, lambda: dist.all_reduce(torch.ones(3)))


@case
def raises_before_destroying_the_groups(rank: int) -> None:
    import torch
    import torch.distributed as dist

    if rank == 0:
        expect("PeerLost", ["rank 1", "ValueError: bad sample"], 2, lambda: dist.all_reduce(torch.ones(3)))
        return
    dist.all_reduce(torch.ones(3), group=short, async_op=True)  # is never done
    begin = time.monotonic()
    try:
        raise ValueError("bad sample")
    finally:
        dist.destroy_process_group()
        assert time.monotonic() - begin < 1, "destroy_process_group waits for ranks"


@case
def leaves_early(rank: int) -> None:
    """Rank 1 makes fewer calls than rank 0, and leaves without an error."""
    import torch
    import torch.distributed as dist

    if rank == 1:
        dist.destroy_process_group()
        return
    parts = ["rank 1", "has left the job", "fewer calls", "join.Join", "drop_last"]
    expect("PeerLost", parts, 4, lambda: dist.all_reduce(torch.ones(3)))


@case
def comes_late(rank: int) -> None:
    import torch
    import torch.distributed as dist

    if rank == 1:
        time.sleep(3)
        expect("Timeout", ["rank 0"], 2, lambda: dist.all_reduce(torch.ones(3), group=short))
    else:
        expect("Timeout", ["rank 1", "init_process_group(timeout="], 2.5, lambda: dist.all_reduce(torch.ones(3), group=short))


short = None


def run_rank(name: str, rank: int, store: str) -> None:
    global short
    import torch.distributed as dist

    import farandole.torch  # noqa: F401: registers the backend

    dist.init_process_group("farandole", init_method=f"file://{store}", rank=rank, world_size=2)
    short = dist.new_group([0, 1], timeout=timedelta(seconds=1))
    dist.barrier()
    CASES[name](rank)
    os._exit(0)  # the job has failed, and cannot be left


def run_child(rank: int, store: str, how: str) -> None:
    """A process that multiprocessing has started: rank 1 fails, and rank 0 waits for it."""
    import torch
    import torch.distributed as dist

    import farandole.torch  # noqa: F401: registers the backend

    dist.init_process_group("farandole", init_method=f"file://{store}", rank=rank, world_size=2)
    dist.barrier()
    if rank == 1 and how == "raises":
        raise ValueError("bad sample 17")
    if rank == 1:
        sys.exit("no data")
    dist.all_reduce(torch.ones(3))


class FaultsTest(unittest.TestCase):
    def expect_child(self, method: str, how: str, expected: str) -> None:
        import torch.multiprocessing
        from torch.multiprocessing import ProcessExitedException, ProcessRaisedException

        with tempfile.TemporaryDirectory() as directory:
            arguments = (os.path.join(directory, "store"), how)
            begin = time.monotonic()
            with self.assertRaises((ProcessRaisedException, ProcessExitedException)) as caught:
                torch.multiprocessing.start_processes(run_child, arguments, nprocs=2, start_method=method)
            self.assertLess(time.monotonic() - begin, 40)
            self.assertEqual(caught.exception.error_index, 1, caught.exception)
            self.assertIn(expected, str(caught.exception))

    def test_multiprocessing_reports_the_exception_of_the_failed_process(self):
        self.expect_child("spawn", "raises", "ValueError: bad sample 17")

    def test_multiprocessing_reports_the_failed_process_of_a_fork(self):
        self.expect_child("fork", "raises", "ValueError: bad sample 17")

    def test_multiprocessing_reports_the_process_that_exits(self):
        self.expect_child("spawn", "exits", "process 1 terminated with exit code 1")

    def run_case(self, name: str) -> None:
        with tempfile.TemporaryDirectory() as directory:
            command = [sys.executable, __file__, name]
            ranks = [
                subprocess.Popen(
                    [*command, str(rank), os.path.join(directory, "store")],
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                )
                for rank in range(2)
            ]  # fmt: skip
            if name == "raises":
                ranks[1].wait(60)
                self.assertIsNone(ranks[0].poll(), "rank 1 has ended after rank 0")
            for rank, process in enumerate(ranks):
                output = process.communicate(timeout=60)[0]
                at_fault = {"dies": -signal.SIGKILL, "raises": 1, "exits": 3}.get(name.split("_")[0], 0)
                expected = at_fault if rank == 1 else 0
                self.assertEqual(process.returncode, expected, f"rank {rank}: {output}")
                self.assertNotIn("leaving the job failed", output)


def make_test(name: str):
    return lambda self: self.run_case(name)


for each in CASES:
    setattr(FaultsTest, f"test_{each}", make_test(each))

if __name__ == "__main__":
    if len(sys.argv) == 4:
        run_rank(sys.argv[1], int(sys.argv[2]), sys.argv[3])
    else:
        unittest.main()
