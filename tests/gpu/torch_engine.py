# SPDX-License-Identifier: Apache-2.0
"""usage, as each rank of a job: torch_engine.py LIBRARY_DIRECTORY SAMPLES

Passes torch's tensors and a side stream to the engine. Checks results, and measures an allreduce of ResNet-50's gradients
against torch's NCCL process group in the same processes, with and without concurrent kernels in another stream. Rank 0
prints JSON.
"""
import json
import pathlib
import random
import sys
import time

import torch
import torch.distributed

from engine_client import Engine
from torch_job import store_address

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from resnet50 import resnet50_gradient_sizes  # noqa: E402


def check_results(engine, stream):
    total = engine.size * (engine.size + 1) / 2
    for count in (1, 1000, 1 << 22):
        with torch.cuda.stream(stream):
            values = torch.full((count,), float(engine.rank + 1), device="cuda")
            pending = engine.allreduce(f"result {count}", values.data_ptr(), count, stream.cuda_stream, 0)
            engine.wait([pending])
            values.add_(1)
        stream.synchronize()
        if not torch.equal(values, torch.full_like(values, total + 1)):
            raise AssertionError(f"{count} elements: {values[:4].tolist()} instead of {total + 1}")


def step_of_engine(engine, gradients, stream):
    order = list(range(len(gradients)))
    random.shuffle(order)
    engine.wait([engine.allreduce(f"gradient {i}", gradients[i].data_ptr(), gradients[i].numel(), stream.cuda_stream, 0)
                 for i in order])


def step_of_torch(gradients):
    for work in [torch.distributed.all_reduce(gradient, async_op=True) for gradient in gradients]:
        work.wait()


def times_of(step, gradients, stream, samples, load=None):
    """Medians of the host's time per tensor, and of the time until the stream is done, both in microseconds."""
    host, whole = [], []
    for _ in range(samples):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        if load is not None:
            load()
        step()
        host.append((time.perf_counter() - begin) * 1e6 / len(gradients))
        torch.cuda.synchronize()
        whole.append((time.perf_counter() - begin) * 1e6)
    return sorted(host)[samples // 2], sorted(whole)[samples // 2]


def main():
    samples = 3 + int(sys.argv[2])
    engine = Engine(sys.argv[1])
    torch.distributed.init_process_group("nccl", init_method=store_address(), rank=engine.rank, world_size=engine.size,
                                         device_id=torch.device("cuda", 0))
    stream, beside = torch.cuda.Stream(), torch.cuda.Stream()
    check_results(engine, stream)
    gradients = [torch.zeros(count, device="cuda") for count in resnet50_gradient_sizes()]
    matrix = torch.randn(2048, 2048, device="cuda")

    def load():
        with torch.cuda.stream(beside):
            for _ in range(8):
                torch.mm(matrix, matrix)

    figures = {}
    with torch.cuda.stream(stream):
        for name, step in (("the engine", lambda: step_of_engine(engine, gradients, stream)),
                           ("torch.distributed", lambda: step_of_torch(gradients))):
            times_of(step, gradients, stream, 5)
            before = engine.counters()
            host, alone = times_of(step, gradients, stream, samples)
            _, with_load = times_of(step, gradients, stream, samples, load)
            after = engine.counters()
            figures[f"{name}: host time per tensor, us"] = host
            figures[f"{name}: a step of gradients, us"] = alone
            figures[f"{name}: a step beside matrix products, us"] = with_load
            if name == "the engine":
                figures["the engine: host waits"] = after["host_waits"] - before["host_waits"]
        _, products = times_of(load, gradients, stream, samples)
        figures["the matrix products alone, us"] = products
    if engine.rank == 0:
        print(json.dumps({key: round(value, 2) for key, value in figures.items()}))
    torch.distributed.destroy_process_group()
    engine.leave()


if __name__ == "__main__":
    main()
