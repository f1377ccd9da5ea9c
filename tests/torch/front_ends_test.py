#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: front_ends_test.py [BACKEND [CASE...]]

What builds on torch.distributed works with the backend `farandole` as it is, and its numbers are those of one process:
DistributedDataParallel and its options, FSDP2, ZeroRedundancyOptimizer, DTensor and tensor parallelism, pipelining,
distributed checkpoints, SyncBatchNorm, torch.compile. Two ranks, started by torch.multiprocessing.
"""

import inspect
import os
import shutil
import sys
import tempfile
import warnings
from typing import Callable, Dict, Iterable, List

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn
from torch.nn.parallel import DistributedDataParallel

RANKS, BATCH, STEPS = 2, 8, 4


def make_model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4))


def batch(step: int) -> torch.Tensor:
    return torch.randn(BATCH, 12, generator=torch.Generator().manual_seed(step))


def own(values: torch.Tensor) -> torch.Tensor:
    """This rank's half of a batch."""
    return values.chunk(RANKS)[dist.get_rank()]


def loss_of(outputs: torch.Tensor) -> torch.Tensor:
    return outputs.square().mean()


def make_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def train_alone(steps: int = STEPS) -> nn.Module:
    """The model after the training of one process on whole batches."""
    model = make_model()
    optimizer = make_optimizer(model)
    for step in range(steps):
        optimizer.zero_grad()
        loss_of(model(batch(step))).backward()
        optimizer.step()
    return model


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: Iterable[int] = range(STEPS)) -> None:
    for step in steps:
        optimizer.zero_grad()
        loss_of(model(own(batch(step)))).backward()
        optimizer.step()


def expect_same(model: nn.Module, tolerance: float = 1e-6) -> None:
    for (name, expected), (_, found) in zip(train_alone().state_dict().items(), model.state_dict().items()):
        torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance, msg=lambda text: f"{name}: {text}")


def ddp(**options) -> DistributedDataParallel:
    return DistributedDataParallel(make_model(), **options)


def case_ddp() -> None:
    for options in ({}, {"gradient_as_bucket_view": True}, {"bucket_cap_mb": 0.001}, {"find_unused_parameters": True},
                    {"static_graph": True}):
        model = ddp(**options)
        train(model, make_optimizer(model))
        expect_same(model.module)


def case_ddp_accumulates() -> None:
    model = ddp()
    optimizer = make_optimizer(model)
    for step in range(STEPS):
        optimizer.zero_grad()
        first, second = own(batch(step)).chunk(2)
        with model.no_sync():
            (loss_of(model(first)) / 2).backward()
        (loss_of(model(second)) / 2).backward()
        optimizer.step()
    expect_same(model.module)


def case_ddp_join() -> None:
    """Ranks with different numbers of batches."""
    model = ddp()
    optimizer = make_optimizer(model)
    with model.join():
        for step in range(2 + dist.get_rank()):
            optimizer.zero_grad()
            loss_of(model(own(batch(step)))).backward()
            optimizer.step()
    parameters = torch.cat([values.detach().flatten() for values in model.parameters()])
    both = [torch.empty_like(parameters) for _ in range(RANKS)]
    dist.all_gather(both, parameters)
    assert torch.equal(both[0], both[1])


def case_ddp_hooks() -> None:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    for hook, tolerance in ((default_hooks.allreduce_hook, 1e-6), (default_hooks.fp16_compress_hook, 1e-3),
                            (default_hooks.bf16_compress_hook, 1e-2)):
        model = ddp()
        model.register_comm_hook(None, hook)
        train(model, make_optimizer(model))
        expect_same(model.module, tolerance)
    model = ddp()
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=2)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    train(model, make_optimizer(model))


def case_fsdp2() -> None:
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import DTensor

    model = make_model()
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh())
    fully_shard(model, mesh=mesh())
    model.set_allocate_memory_from_process_group_for_comm(True)
    train(model, make_optimizer(model))
    for (_, expected), found in zip(train_alone().named_parameters(), model.parameters()):
        assert isinstance(found, DTensor)
        torch.testing.assert_close(found.full_tensor(), expected.detach(), atol=1e-6, rtol=1e-6)


def mesh():
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh("cpu", (RANKS,))


def case_zero() -> None:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = ddp()
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.SGD, lr=0.1, momentum=0.9)
    train(model, optimizer)
    expect_same(model.module)
    optimizer.consolidate_state_dict(to=0)


def case_tensor_parallel() -> None:
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    model = make_model()
    parallelize_module(model, mesh(), {"0": ColwiseParallel(), "2": RowwiseParallel()})
    optimizer = make_optimizer(model)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(model(batch(step))).backward()
        optimizer.step()
    torch.testing.assert_close(model(batch(99)), train_alone()(batch(99)), atol=1e-5, rtol=1e-5)


def case_dtensor() -> None:
    from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor

    whole = torch.arange(40.0).reshape(8, 5)
    by_rows = distribute_tensor(whole, mesh(), [Shard(0)])
    assert torch.equal(by_rows.redistribute(mesh(), [Shard(1)]).full_tensor(), whole)
    assert torch.equal((by_rows @ by_rows.T).redistribute(mesh(), [Replicate()]).to_local(), whole @ whole.T)
    total = by_rows.sum(0)
    assert isinstance(total.placements[0], Partial)
    assert torch.equal(total.full_tensor(), whole.sum(0))


def case_pipeline() -> None:
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

    for schedule_type in (ScheduleGPipe, Schedule1F1B):
        model = make_model()
        parts = (model[:2], model[2:])
        stage = PipelineStage(parts[dist.get_rank()], dist.get_rank(), RANKS, torch.device("cpu"))
        schedule = schedule_type(stage, n_microbatches=4, loss_fn=lambda outputs, _: loss_of(outputs))
        inputs = batch(0)
        if dist.get_rank() == 0:
            schedule.step(inputs)
        else:
            schedule.step(target=torch.zeros(BATCH, 4))
        alone = make_model()
        loss_of(alone(inputs)).backward()
        expected = (alone[:2], alone[2:])[dist.get_rank()]
        for found, right in zip(parts[dist.get_rank()].parameters(), expected.parameters()):
            torch.testing.assert_close(found.grad, right.grad, atol=1e-6, rtol=1e-5)


def case_checkpoint() -> None:
    """A training that goes on from a checkpoint of FSDP2's parameters and of the optimizer's state."""
    import torch.distributed.checkpoint as checkpoint
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    from torch.distributed.fsdp import fully_shard

    def make():
        model = make_model()
        fully_shard(model, mesh=mesh())
        return model, make_optimizer(model)

    def state_of(model, optimizer):
        return dict(zip(("model", "optimizer"), get_state_dict(model, optimizer)))

    places: List[str] = [tempfile.mkdtemp() if dist.get_rank() == 0 else ""]
    dist.broadcast_object_list(places, src=0)
    model, optimizer = make()
    train(model, optimizer, range(STEPS // 2))
    checkpoint.save(state_of(model, optimizer), checkpoint_id=places[0])
    model, optimizer = make()
    state = state_of(model, optimizer)
    checkpoint.load(state, checkpoint_id=places[0])
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    train(model, optimizer, range(STEPS // 2, STEPS))
    for found, expected in zip(model.parameters(), train_alone().parameters()):
        torch.testing.assert_close(found.full_tensor(), expected.detach(), atol=1e-6, rtol=1e-6)
    dist.barrier()
    if dist.get_rank() == 0:
        shutil.rmtree(places[0])


def case_batch_norm() -> None:
    """The collectives of SyncBatchNorm, which torch itself refuses on CPUs."""
    values = own(batch(3))
    count = torch.full((1,), float(values.shape[0]))
    packed = torch.cat([values.mean(0), values.var(0, unbiased=False), count])
    gathered = torch.empty(RANKS * packed.numel())
    dist.all_gather_into_tensor(gathered, packed)
    torch.testing.assert_close(gathered.view(RANKS, -1)[:, :12].mean(0), batch(3).mean(0))


def case_compile() -> None:
    model = torch.compile(ddp(), backend="aot_eager")
    train(model, make_optimizer(model))
    expect_same(model._orig_mod.module)


def case_functional() -> None:
    """Collectives in traced functions."""
    from torch.distributed import _functional_collectives as functional

    @torch.compile(backend="aot_eager")
    def add(values):
        return functional.all_reduce(values * 2, "sum", dist.group.WORLD) + 1

    assert torch.equal(add(torch.ones(5)), torch.full((5,), 5.0))


def case_objects() -> None:
    found: List[object] = [None] * RANKS
    dist.all_gather_object(found, {"rank": dist.get_rank(), "text": "x" * (1000 * dist.get_rank())})
    assert [each["rank"] for each in found] == [0, 1]
    mine = [None]
    dist.scatter_object_list(mine, ["a", "b"] if dist.get_rank() == 0 else None, src=0)
    assert mine == ["ab"[dist.get_rank()]]
    if dist.get_rank() == 0:
        dist.send_object_list(["p2p", 7], dst=1)
    else:
        received: List[object] = [None, None]
        dist.recv_object_list(received, src=0)
        assert received == ["p2p", 7]


def cases() -> Dict[str, Callable[[], None]]:
    found = inspect.getmembers(sys.modules[__name__], inspect.isfunction)
    return {name[len("case_") :]: case for name, case in found if name.startswith("case_")}


def run_rank(rank: int, backend: str, names: List[str], store: str) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if backend == "farandole":
        import farandole.torch  # noqa: F401: registers the backend
    dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=RANKS)
    for name in names:
        if rank == 0:
            print(f"{backend}: {name}", flush=True)
        cases()[name]()
        dist.barrier()
    dist.destroy_process_group()


def main(arguments: List[str]) -> int:
    backend = arguments[0] if arguments else "farandole"
    names = arguments[1:] or list(cases())
    with tempfile.TemporaryDirectory() as directory:
        store = os.path.join(directory, "store")
        torch.multiprocessing.spawn(run_rank, args=(backend, names, store), nprocs=RANKS)
    print(f"{len(names)} cases as in one process")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
