#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small network with torch's FSDP2 on the backend `farandole`: each rank holds a part of every parameter. Halfway
the ranks save a checkpoint, each rank its own parts, and go on with a new network that loads the checkpoint.

    python examples/python/torch_fsdp.py                         # two processes of this host
    torchrun --nproc-per-node 4 examples/python/torch_fsdp.py    # processes of torchrun
    python examples/python/torch_fsdp.py --checkpoint DIR        # keeps the checkpoint; all hosts must see DIR

The data are made up: points on a plane, with the label of the quadrant that they lie in, as in torch_ddp.py.
"""

import argparse
import os
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
import torch.multiprocessing
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch_ddp import batch  # points and labels

import farandole.torch  # noqa: F401: registers the backend


def make_network():
    """A network whose parameters are divided among the ranks, and its optimizer, whose state is divided alike."""
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh)  # the parameters of a layer are gathered for its forward and its backward pass
    fully_shard(model, mesh=mesh)
    return model, torch.optim.Adam(model.parameters(), lr=0.02)


def train(model, optimizer, generator: torch.Generator, steps: int) -> None:
    for _ in range(steps):
        points, labels = batch(128 // dist.get_world_size(), generator)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(points), labels).backward()
        optimizer.step()


def report(model, text: str) -> None:
    points, labels = batch(1000, torch.Generator().manual_seed(1000 + dist.get_rank()))
    with torch.no_grad():
        right = (model(points).argmax(1) == labels).float().mean()
    dist.all_reduce(right, dist.ReduceOp.AVG)
    if dist.get_rank() == 0:
        print(f"{text}: {100 * right.item():.1f} % right", flush=True)


def save(model, optimizer, directory: str) -> None:
    """Each rank writes its parts of the parameters and of the optimizer's state."""
    of_model, of_optimizer = get_state_dict(model, optimizer)
    checkpoint.save({"model": of_model, "optimizer": of_optimizer}, checkpoint_id=directory)


def load(model, optimizer, directory: str) -> None:
    """Each rank reads what its parts need. The checkpoint may come from another number of ranks."""
    of_model, of_optimizer = get_state_dict(model, optimizer)
    checkpoint.load({"model": of_model, "optimizer": of_optimizer}, checkpoint_id=directory)
    set_state_dict(model, optimizer, model_state_dict=of_model, optim_state_dict=of_optimizer)


def run(steps: int, directory: str) -> None:
    generator = torch.Generator().manual_seed(dist.get_rank())  # each rank has data of its own
    model, optimizer = make_network()
    train(model, optimizer, generator, steps // 2)
    report(model, f"{dist.get_world_size()} ranks, {steps // 2} steps")
    save(model, optimizer, directory)
    model, optimizer = make_network()
    load(model, optimizer, directory)
    report(model, "loaded from the checkpoint")
    train(model, optimizer, generator, steps - steps // 2)
    report(model, f"{steps} steps")


def run_rank(rank: int, ranks: int, steps: int, directory: str, store: str) -> None:
    dist.init_process_group("farandole", init_method=f"file://{store}", rank=rank, world_size=ranks)
    run(steps, directory)
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--checkpoint", metavar="DIR", help="directory of the checkpoint; a temporary one by default")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        if "RANK" in os.environ:  # torchrun's
            dist.init_process_group("farandole")
            directories = [arguments.checkpoint or temporary]
            dist.broadcast_object_list(directories, src=0)
            run(arguments.steps, directories[0])
            dist.destroy_process_group()
            return
        directory = arguments.checkpoint or os.path.join(temporary, "checkpoint")
        store = os.path.join(temporary, "store")
        torch.multiprocessing.spawn(run_rank, args=(2, arguments.steps, directory, store), nprocs=2)


if __name__ == "__main__":
    main()
