# SPDX-License-Identifier: Apache-2.0
"""usage, as each rank of a job: torch_backend.py [--device cuda|cpu] GROUP...

Runs groups of the cases of torch_backend_cases.py, which use the backend `farandole` of torch.distributed on tensors of a
device, and prints a line for each case. A case that fails ends the job. GROUP: collectives, streams, training, graph. On
--device cpu, which tests these programs where no GPU is, the groups streams and graph have no cases.
"""
import argparse
import contextlib
import datetime
import os
import sys
import traceback

import torch
import torch.distributed as dist

import farandole.torch  # noqa: F401  registers the backend
import torch_backend_cases
from torch_job import store_address

TIMEOUT = datetime.timedelta(seconds=30)  # of a call
LONG_KERNEL_CYCLES = 400_000_000  # 0.2 s at 2 GHz


class Cpu:
    """Tensors of the processor. Subclasses describe devices: where tensors are, streams, long kernels, and graphs."""

    device = torch.device("cpu")
    backend = "farandole"
    groups = ("collectives", "training")

    def start(self, rank):
        """Prepares this process. Called before it joins the job."""
        torch.set_num_threads(1)

    def synchronize(self):
        """Until all streams are done."""

    def check_at_end(self):
        """Called when the process group is gone."""


class Cuda(Cpu):
    device = torch.device("cuda", 0)
    groups = ("collectives", "streams", "training", "graph")

    def start(self, rank):
        torch.cuda.set_device(self.device)
        # Sums in full precision, the same in every run.
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.deterministic = True

    def synchronize(self):
        torch.cuda.synchronize()

    def stream(self):
        return torch.cuda.Stream()

    def using(self, stream):
        """Context in which `stream` is the current stream."""
        return torch.cuda.stream(stream)

    @contextlib.contextmanager
    def busy(self):
        """Context that begins with a long kernel in the current stream."""
        torch.cuda._sleep(LONG_KERNEL_CYCLES)
        yield

    def capture(self, stream, body):
        """Captures the work of `body` into a graph. Returns (replay in the current stream, destroy)."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            body()
        return graph.replay, graph.reset


def run_groups(place, groups, rank, size, address):
    """Joins the job, runs the cases of these groups on this rank, and leaves the job. Rank 0 prints."""
    place.start(rank)
    dist.init_process_group(place.backend, init_method=address, rank=rank, world_size=size, timeout=TIMEOUT)
    run_cases(place, groups)
    dist.destroy_process_group()
    place.check_at_end()


def run_cases(place, groups):
    cases = torch_backend_cases.CASES

    def say(text):
        if dist.get_rank() == 0:
            print(text, flush=True)

    for group in groups:
        if group not in place.groups:
            say(f"{group}: no cases on {place.device.type}")
            continue
        for case in cases[group]:
            try:
                note = case(place)
            except Exception:
                print(f"rank {dist.get_rank()}: {case.__name__}: failed\n{traceback.format_exc()}", flush=True)
                raise
            dist.barrier()
            say(f"{case.__name__}: passed{', ' + note if note else ''}")
    place.synchronize()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("groups", nargs="+", choices=tuple(torch_backend_cases.CASES), metavar="GROUP")
    arguments = parser.parse_args()
    place = Cuda() if arguments.device == "cuda" else Cpu()
    rank, size = int(os.environ["FARANDOLE_RANK"]), int(os.environ["FARANDOLE_SIZE"])
    run_groups(place, arguments.groups, rank, size, store_address())


if __name__ == "__main__":
    sys.exit(main())
