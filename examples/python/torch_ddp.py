#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small network with torch's DistributedDataParallel on the backend `farandole`.

    python examples/python/torch_ddp.py                         # two processes of this host
    torchrun --nproc-per-node 4 examples/python/torch_ddp.py    # processes of torchrun

The data are made up: points on a plane, with the label of the quadrant that they lie in.
"""

import argparse
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch.nn.parallel import DistributedDataParallel

import farandole.torch  # noqa: F401: registers the backend


def batch(size: int, generator: torch.Generator):
    points = torch.rand(size, 2, generator=generator) * 2 - 1
    return points, (points[:, 0] > 0).long() * 2 + (points[:, 1] > 0).long()


def train(steps: int) -> None:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    generator = torch.Generator().manual_seed(rank)  # each rank has data of its own
    for _ in range(steps):
        points, labels = batch(128 // ranks, generator)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(points), labels).backward()
        optimizer.step()
    points, labels = batch(1000, generator)
    right = (model(points).argmax(1) == labels).float().mean()
    dist.all_reduce(right, dist.ReduceOp.AVG)
    if rank == 0:
        print(f"{ranks} ranks, {steps} steps: {100 * right.item():.1f} % right")


def run_rank(rank: int, ranks: int, steps: int, store: str) -> None:
    dist.init_process_group("farandole", init_method=f"file://{store}", rank=rank, world_size=ranks)
    train(steps)
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    steps = parser.parse_args().steps
    if "RANK" in os.environ:  # torchrun's
        dist.init_process_group("farandole")
        train(steps)
        dist.destroy_process_group()
        return
    with tempfile.TemporaryDirectory() as directory:
        store = os.path.join(directory, "store")
        torch.multiprocessing.spawn(run_rank, args=(2, steps, store), nprocs=2)


if __name__ == "__main__":
    main()
