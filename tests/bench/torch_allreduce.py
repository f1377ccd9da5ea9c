#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures torch.distributed with the backends `farandole` and `gloo` in the same two processes, in alternating rounds.

    tests/bench/torch_allreduce.py             # dist.all_reduce, by size
    tests/bench/torch_allreduce.py --ddp       # a DistributedDataParallel training step: exposed communication

Medians over all rounds. Exposed communication is the time of a training step minus that of a step in which
DistributedDataParallel fills its buckets, and a communication hook returns them as they are. Run it on an idle machine.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from typing import Callable, Dict, List

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import farandole.torch  # noqa: F401: registers the backend

BACKENDS = ("gloo", "farandole")
SIZES = (4, 1 << 10, 48 << 10, 1 << 20, 8 << 20, 64 << 20)


def median_us(action: Callable[[], None], repetitions: int) -> float:
    """Median time of an action that all ranks do together, in microseconds."""
    times = []
    for _ in range(repetitions):
        begin = time.perf_counter()
        action()
        times.append((time.perf_counter() - begin) * 1e6)
    return statistics.median(times)


def alternating(actions: Dict[str, Callable[[], float]], rounds: int) -> Dict[str, float]:
    """Medians of the measurements of each name, which take turns."""
    found: Dict[str, List[float]] = {name: [] for name in actions}
    for _ in range(rounds):
        for name, action in actions.items():
            found[name].append(action())
    return {name: statistics.median(values) for name, values in found.items()}


def measure_allreduce(groups, rounds: int) -> None:
    if dist.get_rank() == 0:
        print("| bytes | gloo, µs | farandole, µs | gloo / farandole |\n| --- | --- | --- | --- |")
    for size in SIZES:
        values = torch.zeros(size // 4)
        repetitions = max(5, min(2000, (16 << 20) // size))

        def measure(group):
            dist.all_reduce(values, group=group)
            dist.barrier(group)
            return median_us(lambda: dist.all_reduce(values, group=group), repetitions)

        found = alternating({name: lambda group=group: measure(group) for name, group in groups.items()}, rounds)
        if dist.get_rank() == 0:
            gloo, own = found["gloo"], found["farandole"]
            print(f"| {size} | {gloo:.1f} | {own:.1f} | {gloo / own:.1f} |", flush=True)


class Residual(nn.Module):
    """A block of ResNet-18."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        short = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        self.short = nn.Identity() if inputs == outputs and stride == 1 else short

    def forward(self, values):
        return torch.relu(self.body(values) + self.short(values))


def resnet18() -> nn.Module:
    """ResNet-18 for small images; 11.2 million parameters."""
    widths = (64, 64, 128, 256, 512)
    blocks = []
    for stage in range(4):
        blocks.append(Residual(widths[stage], widths[stage + 1], 1 if stage == 0 else 2))
        blocks.append(Residual(widths[stage + 1], widths[stage + 1], 1))
    begin = (nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2))
    return nn.Sequential(*begin, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def transformer() -> nn.Module:
    """An encoder of 9.5 million parameters."""
    layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True)
    return nn.Sequential(nn.TransformerEncoder(layer, 12, enable_nested_tensor=False), nn.Linear(256, 10))


def average_nothing(_: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def step_ms(model: DistributedDataParallel, inputs: torch.Tensor, steps: int) -> float:
    def step():
        model.zero_grad()
        model(inputs).square().mean().backward()

    step()
    dist.barrier()
    return median_us(step, steps) / 1000


def measure_ddp(groups, rounds: int) -> None:
    if dist.get_rank() == 0:
        print("| model | no averaging, ms | gloo, ms | farandole, ms | exposed, ms: gloo, farandole |")
        print("| --- | --- | --- | --- | --- |")
    for name, model, inputs in (
        ("ResNet-18, 4 images of 32x32", resnet18(), torch.randn(4, 3, 32, 32)),
        ("transformer, 2 sequences of 32", transformer(), torch.randn(2, 32, 256)),
    ):
        models = {backend: DistributedDataParallel(model, process_group=group) for backend, group in groups.items()}
        models["nothing"] = DistributedDataParallel(model, process_group=groups["gloo"])
        models["nothing"].register_comm_hook(None, average_nothing)
        found = alternating({key: lambda m=m: step_ms(m, inputs, 5) for key, m in models.items()}, rounds)
        if dist.get_rank() == 0:
            gloo, own = (max(0.0, found[backend] - found["nothing"]) for backend in BACKENDS)
            print(
                f"| {name} | {found['nothing']:.1f} | {found['gloo']:.1f} | {found['farandole']:.1f} | "
                f"{gloo:.1f}, {own:.1f}: {own / gloo:.2f} |",
                flush=True,
            )


def run_rank(rank: int, options: argparse.Namespace, store: str) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("farandole", init_method=f"file://{store}", rank=rank, world_size=options.ranks)
    groups = {name: dist.new_group(backend=name) for name in BACKENDS}
    (measure_ddp if options.ddp else measure_allreduce)(groups, options.rounds)
    dist.destroy_process_group()


def main(arguments: List[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ddp", action="store_true", help="measure training steps of DistributedDataParallel")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        torch.multiprocessing.spawn(run_rank, args=(options, os.path.join(directory, "store")), nprocs=options.ranks)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
