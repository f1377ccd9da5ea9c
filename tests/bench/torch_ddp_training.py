#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: torch_ddp_training.py cnn|resnet18 BATCH_PER_RANK STEPS [--compile]

Images per second of PyTorch's DistributedDataParallel over gloo on two processes of this host, a thread each: the models
`cnn` and `resnet18` (for images of 32x32) of farandole-train, random images, SGD with momentum. Needs torch.
"""
import argparse
import os
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

UNTIMED = 3  # training steps that compile and allocate


class Block(nn.Module):
    """Two convolutions and a shortcut, of He et al., CVPR 2016."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.path = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs))
        self.shortcut = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, values):
        return torch.relu(self.path(values) + self.shortcut(values))


def resnet18():
    layers, channels = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()], 64
    for outputs in (64, 128, 256, 512):
        layers += [Block(channels, outputs, 1 if outputs == 64 else 2), Block(outputs, outputs, 1)]
        channels = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def cnn():
    return nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                         nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 10))


MODELS = {"cnn": (cnn, (1, 28, 28)), "resnet18": (resnet18, (3, 32, 32))}


def train(rank, options):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    make_model, shape = MODELS[options.model]
    model = nn.parallel.DistributedDataParallel(make_model())
    forward = torch.compile(model) if options.compile else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    images, labels = torch.randn(options.batch, *shape), torch.randint(0, 10, (options.batch,))
    for step in range(UNTIMED + options.steps):
        if step == UNTIMED:
            dist.barrier()
            begin = time.perf_counter()
        optimizer.zero_grad()
        nn.functional.cross_entropy(forward(images), labels).backward()
        optimizer.step()
    if rank == 0:
        print(f"{options.model}: {2 * options.batch * options.steps / (time.perf_counter() - begin):.1f} images/s")
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("batch", type=int)
    parser.add_argument("steps", type=int)
    parser.add_argument("--compile", action="store_true", help="by torch.compile")
    options = parser.parse_args()
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29534")
    mp.spawn(train, (options,), nprocs=2)


if __name__ == "__main__":
    main()
