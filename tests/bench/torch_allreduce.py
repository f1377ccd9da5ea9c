#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: torch_allreduce.py RANKS [MAX_BYTES]

Median and 99th percentile of PyTorch's allreduce over gloo (f32 sum), as a peer of allreduce_curve.sh and
gloo_between_hosts.sh. One process per rank, one thread each; samples as farandole-bench takes them. Starts the ranks, or is
one of them where RANK is set, which needs MASTER_ADDR and MASTER_PORT.
"""
import os
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing


def measure(values, samples, calls):
    times = []
    for i in range(-samples // 10 - 2, samples):
        dist.barrier()
        start = time.perf_counter()
        for _ in range(calls):
            dist.all_reduce(values)
        if i >= 0:
            times.append((time.perf_counter() - start) / calls * 1e6)
    times.sort()
    return statistics.median(times), times[min(len(times) - 1, len(times) * 99 // 100)]


def run(rank, ranks, max_bytes, rendezvous):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=ranks)
    if rank == 0:
        print(f"# torch {torch.__version__}, gloo, {ranks} ranks\n# bytes p50_us p99_us", flush=True)
    size = 4
    while size <= max_bytes:
        samples = 10 if size > 16 << 20 else 40 if size > 1 << 20 else 100 if size > 64 << 10 else 300
        p50, p99 = measure(torch.zeros(size // 4), samples, 10 if size <= 64 << 10 else 1)
        if rank == 0:
            print(f"{size} {p50:.2f} {p99:.2f}", flush=True)
        size *= 2
    dist.destroy_process_group()


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    count = int(sys.argv[1])
    largest = int(sys.argv[2]) if len(sys.argv) == 3 else 64 << 20
    if "RANK" in os.environ:
        run(int(os.environ["RANK"]), count, largest, "env://")
        sys.exit()
    with tempfile.TemporaryDirectory() as directory:
        multiprocessing.spawn(run, args=(count, largest, f"file://{directory}/rendezvous"), nprocs=count)
