#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: backend_test.py RANKS [CASE...]

The backend `farandole` of torch.distributed: results of all operations, types, groups, works and futures, errors, and
several jobs in a row. The ranks are started by torch.multiprocessing, so the job is made through torch's store.
"""

import inspect
import os
import sys
import tempfile
import time
from datetime import timedelta
from typing import Callable, Dict, List

import torch
import torch.distributed as dist
import torch.multiprocessing

import farandole.torch
from farandole import errors

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
COMPLEX = (torch.complex64, torch.complex128)
FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)


def values_of(rank: int, count: int = 37, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Small whole numbers that differ from rank to rank, so that sums are exact in all types."""
    return ((torch.arange(count) % 5) + rank + 1).to(dtype)


def rank() -> int:
    return dist.get_rank()


def size() -> int:
    return dist.get_world_size()


def expect(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert found.dtype == expected.dtype and torch.equal(found.double(), expected.double()), f"{found} != {expected}"


def expect_error(kind: type, part: str, action: Callable[[], object]) -> None:
    try:
        action()
    except kind as error:
        assert isinstance(error, dist.DistBackendError), type(error).__mro__
        assert part in str(error), f"'{part}' is not in '{error}'"
        return
    raise AssertionError(f"no {kind.__name__}")


def total(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return sum(values_of(each).double() for each in range(size())).to(dtype)


def case_all_reduce_of_every_type() -> None:
    for dtype in INTEGERS + FLOATS:
        values = values_of(rank(), dtype=dtype)
        dist.all_reduce(values)
        expect(values, total(dtype))
    for dtype in COMPLEX:
        values = torch.complex(values_of(rank()).double(), -values_of(rank()).double()).to(dtype)
        dist.group.WORLD.allreduce([values]).wait()  # dist.all_reduce passes a real view
        assert torch.equal(values, torch.complex(total().double(), -total().double()).to(dtype))
    truth = torch.tensor([rank() == 0, False, True])
    dist.all_reduce(truth, dist.ReduceOp.MAX)
    assert truth.tolist() == [True, False, True]


def case_every_reduction() -> None:
    alone = [values_of(each, dtype=torch.int64) for each in range(size())]
    stacked = torch.stack(alone)
    expected = {
        dist.ReduceOp.PRODUCT: stacked.prod(0),
        dist.ReduceOp.MIN: stacked.min(0).values,
        dist.ReduceOp.MAX: stacked.max(0).values,
    }
    for op, combine in ((dist.ReduceOp.BAND, "__and__"), (dist.ReduceOp.BOR, "__or__"), (dist.ReduceOp.BXOR, "__xor__")):
        bits = alone[0].clone()
        for other in alone[1:]:
            bits = getattr(bits, combine)(other)
        expected[op] = bits
    for op, result in expected.items():
        values = alone[rank()].clone()
        dist.all_reduce(values, op)
        expect(values, result)
    average = values_of(rank())
    dist.all_reduce(average, dist.ReduceOp.AVG)
    torch.testing.assert_close(average, total() / size())
    scaled = values_of(rank())
    dist.all_reduce(scaled, dist._make_nccl_premul_sum(2.0))
    expect(scaled, 2 * total())


def case_reductions_that_are_refused() -> None:
    values = torch.zeros(3, dtype=torch.float8_e5m2)
    expect_error(errors.InvalidArgument, "no reduction", lambda: dist.all_reduce(values))
    pairs = torch.zeros(3, dtype=torch.complex64)
    expect_error(errors.InvalidArgument, "complex", lambda: dist.reduce(pairs, 0, dist.ReduceOp.MAX))
    bits = torch.zeros(3)
    expect_error(errors.InvalidArgument, "", lambda: dist.all_reduce(bits, dist.ReduceOp.BAND))


def case_tensors_that_are_refused() -> None:
    shared = torch.zeros(1).expand(4)
    pieces = [shared for _ in range(size())]
    for call in (
        lambda: dist.all_reduce(shared),
        lambda: dist.all_gather(pieces, torch.ones(4)),
        lambda: dist.reduce_scatter(shared, [torch.ones(4) for _ in range(size())]),
        lambda: dist.broadcast(shared, (rank() + 1) % size()),
    ):
        expect_error(errors.InvalidArgument, "contiguous()", call)
    expect_error(errors.InvalidArgument, "root", lambda: dist.group.WORLD.broadcast(torch.zeros(1), size()))
    if rank() == 0:
        short = [torch.zeros(4) for _ in range(size() - 1)] + [torch.zeros(3)]
        expect_error(errors.InvalidArgument, "in each output", lambda: dist.gather(torch.zeros(4), short, 0))


def case_broadcast_and_reduce() -> None:
    for root in range(size()):
        for dtype in INTEGERS + FLOATS + FLOAT8 + (torch.bool,):
            values = values_of(rank(), dtype=dtype)
            dist.broadcast(values, root)
            expect(values, values_of(root, dtype=dtype))
        values = values_of(rank())
        dist.reduce(values, root)
        if rank() == root:
            expect(values, total())


def case_all_gather() -> None:
    for dtype in (torch.float32, torch.bool, torch.complex64, torch.float8_e4m3fn):
        mine = values_of(rank(), 6).to(dtype)
        lists = [torch.zeros(6, dtype=dtype) for _ in range(size())]
        adjacent = list(torch.zeros(6 * size(), dtype=dtype).chunk(size()))
        for outputs in (lists, adjacent):
            dist.all_gather(outputs, mine)
            for each, output in enumerate(outputs):
                assert torch.equal(output.view(torch.uint8), values_of(each, 6).to(dtype).view(torch.uint8))
    whole = torch.zeros(size() * 6)
    dist.all_gather_into_tensor(whole, values_of(rank(), 6))
    expect(whole, torch.cat([values_of(each, 6) for each in range(size())]))


def strided(values: torch.Tensor, kind: int) -> torch.Tensor:
    """A tensor of the same values by index: transposed in memory (0), or with gaps (1)."""
    if kind == 0:
        return values.t().contiguous().t()
    room = torch.zeros(2 * values.size(0), 3 * values.size(1), dtype=values.dtype)
    room[::2, ::3] = values
    return room[::2, ::3]


def own_strides(values: torch.Tensor) -> torch.Tensor:
    """The values with strides that differ from rank to rank; the last rank's are contiguous."""
    return values.clone() if rank() == size() - 1 else strided(values, rank() % 2)


def grid(each: int, rows: int = 4, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return (torch.arange(rows * 3).view(rows, 3) + 100 * each).to(dtype)


def case_values_go_by_index_whatever_the_strides() -> None:
    everybody = range(size())
    sums = sum(grid(each) for each in everybody)
    for is_async in (False, True):
        values = own_strides(grid(rank()))
        strides = values.stride()
        work = dist.all_reduce(values, async_op=is_async)
        if is_async:
            work.wait()
        expect(values, sums)
        assert values.stride() == strides
    values = own_strides(grid(rank()))
    dist.all_reduce(values, async_op=True).get_future().wait()
    expect(values, sums)
    for root in everybody:
        values = own_strides(grid(rank()))
        dist.broadcast(values, root)
        expect(values, grid(root))
        values = own_strides(grid(rank()))
        dist.reduce(values, root)
        expect(values, sums if rank() == root else grid(rank()))
        outputs = [own_strides(grid(-1)) for _ in everybody] if rank() == root else None
        dist.gather(own_strides(grid(rank())), outputs, root)
        for each, output in enumerate(outputs or []):
            expect(output, grid(each))
        output = own_strides(grid(-1))
        dist.scatter(output, [own_strides(grid(each)) for each in everybody] if rank() == root else None, root)
        expect(output, grid(rank()))
    images = torch.arange(48.0).view(2, 2, 3, 4).to(memory_format=torch.channels_last)
    images = images.clone() if rank() == 0 else images.contiguous()
    dist.all_reduce(images)
    expect(images, size() * torch.arange(48.0).view(2, 2, 3, 4))


def case_parts_go_by_index_whatever_the_strides() -> None:
    everybody = range(size())
    whole = torch.cat([grid(each) for each in everybody])
    outputs = [own_strides(grid(-1)) for _ in everybody]
    dist.all_gather(outputs, own_strides(grid(rank())))
    expect(torch.cat(outputs), whole)
    output = own_strides(torch.zeros_like(whole))
    dist.all_gather_into_tensor(output, own_strides(grid(rank())))
    expect(output, whole)
    output = own_strides(torch.zeros(4, 3))
    dist.reduce_scatter_tensor(output, own_strides(whole))
    expect(output, size() * grid(rank()))
    dist.reduce_scatter(output, [own_strides(grid(each)) for each in everybody])
    expect(output, size() * grid(rank()))
    output = own_strides(torch.zeros_like(whole))
    dist.all_to_all_single(output, own_strides(whole + 1000 * rank()))
    expect(output, torch.cat([grid(rank()) + 1000 * each for each in everybody]))
    outputs = [own_strides(grid(-1)) for _ in everybody]
    dist.all_to_all(outputs, [own_strides(grid(each) + 1000 * rank()) for each in everybody])
    expect(torch.cat(outputs), torch.cat([grid(rank()) + 1000 * each for each in everybody]))
    right, left = (rank() + 1) % size(), (rank() - 1) % size()
    sending = dist.isend(own_strides(grid(rank())), right)
    output = own_strides(grid(-1))
    dist.recv(output, left)
    expect(output, grid(left))
    sending.wait()
    conjugate = torch.complex(grid(rank()), grid(1)).conj()
    # torch resolves conjugates before it calls the backend of a group, and so would reduce a copy.
    dist.group.WORLD._get_backend(torch.device("cpu")).allreduce([conjugate]).wait()
    assert torch.equal(conjugate.imag, -size() * grid(1)), conjugate
    expanded = torch.full((1,), float(rank())).expand(3)  # an input may share memory
    output = torch.zeros(3 * size())
    dist.all_gather_into_tensor(output, expanded)
    expect(output, torch.arange(size()).repeat_interleave(3).float())


def case_contiguous_tensors_of_other_shapes_go_by_memory() -> None:
    values = torch.arange(6.0).view((2, 3) if rank() == 0 else (3, 2))
    dist.all_reduce(values)
    expect(values.flatten(), size() * torch.arange(6.0))


def case_all_gather_of_uneven_tensors() -> None:
    outputs = [torch.zeros(each + 1, 3) for each in range(size())]
    dist.all_gather(outputs, values_of(rank(), 3 * (rank() + 1)).view(-1, 3))
    for each, output in enumerate(outputs):
        expect(output, values_of(each, 3 * (each + 1)).view(-1, 3))


def case_reduce_scatter() -> None:
    parts = [values_of(rank(), 5) + each for each in range(size())]
    output = torch.zeros(5)
    dist.reduce_scatter(output, parts)
    expected = sum(values_of(each, 5) for each in range(size())) + size() * rank()
    expect(output, expected)
    dist.reduce_scatter_tensor(output, torch.cat(parts))
    expect(output, expected)
    uneven = [torch.full((each + 1,), float(rank())) for each in range(size())]
    output = torch.zeros(rank() + 1)
    dist.reduce_scatter(output, uneven)
    expect(output, torch.full((rank() + 1,), float(sum(range(size())))))


def case_gather_and_scatter() -> None:
    for root in range(size()):
        mine = values_of(rank(), 4)
        outputs = [torch.zeros(4) for _ in range(size())] if rank() == root else None
        dist.gather(mine, outputs, root)
        for each, output in enumerate(outputs or []):
            expect(output, values_of(each, 4))
        inputs = [values_of(each, 4) for each in range(size())] if rank() == root else None
        output = torch.zeros(4)
        dist.scatter(output, inputs, root)
        expect(output, values_of(rank(), 4))


def case_gather_into_one_tensor() -> None:
    if not hasattr(dist, "gather_into_tensor"):
        return
    whole = torch.zeros(4 * size()) if rank() == 0 else None
    dist.gather_into_tensor(values_of(rank(), 4), whole, 0)
    if rank() == 0:
        expect(whole, torch.cat([values_of(each, 4) for each in range(size())]))


def case_all_to_all() -> None:
    send = [torch.full((rank() + each + 1,), float(10 * rank() + each)) for each in range(size())]
    received = [torch.zeros(rank() + each + 1) for each in range(size())]
    dist.all_to_all(received, send)
    expected = [torch.full((rank() + each + 1,), float(10 * each + rank())) for each in range(size())]
    for found, value in zip(received, expected):
        expect(found, value)
    rows = [each + 1 for each in range(size())]
    inputs = torch.cat([torch.full((count, 2), float(10 * rank() + each)) for each, count in enumerate(rows)])
    output = torch.zeros(size() * (rank() + 1), 2)
    dist.all_to_all_single(output, inputs, [rank() + 1] * size(), rows)
    expect(output, torch.cat([torch.full((rank() + 1, 2), float(10 * each + rank())) for each in range(size())]))
    even = torch.arange(size()).float() + 10 * rank()
    output = torch.zeros(size())
    dist.all_to_all_single(output, even)
    expect(output, torch.arange(size()).float() * 10 + rank())

    def expect_refusal(part: str, *arguments) -> None:
        expect_error(errors.InvalidArgument, f"all_to_all_single: {part}", lambda: dist.all_to_all_single(*arguments))

    ones, twos = [1] * size(), [2] * size()
    expect_refusal(f"output_split_sizes is {twos}; expected {size()} numbers", output, even, twos, ones)
    expect_refusal(f"input_split_sizes is {twos}; expected {size()} numbers", output, even, ones, twos)
    expect_refusal(f"input_split_sizes is {twos + [0]}; ", output, even, ones, twos + [0])
    expect_refusal("the input has 7 rows, which cannot be divided", torch.zeros(7), torch.zeros(7))
    other = [size()] + [0] * (size() - 1)
    own = f"rank {rank()} sends itself {other[rank()]} elements (input_split_sizes[{rank()}]) and expects 1"
    expect_refusal(own, output, even, ones, other)


def case_messages() -> None:
    right, left = (rank() + 1) % size(), (rank() - 1) % size()
    for count in (0, 1, 10000, 1 << 18):
        sending = dist.isend(values_of(rank(), count), right, tag=7)
        received = torch.zeros(count)
        assert dist.recv(received, left, tag=7) == left
        expect(received, values_of(left, count))
        sending.wait()
    operations = [dist.P2POp(dist.isend, values_of(rank()), right), dist.P2POp(dist.irecv, torch.zeros(37), left)]
    works = dist.batch_isend_irecv(operations)
    assert len(works) == (1 if torch.cuda.is_available() else 2), works
    for work in works:
        work.wait()
    expect(operations[1].tensor, values_of(left))
    if rank() == 0:
        sources = set()
        for _ in range(size() - 1):
            received = torch.zeros(37)
            source = dist.recv(received)
            expect(received, values_of(source))
            sources.add(source)
        assert sources == set(range(1, size()))
    else:
        dist.send(values_of(rank()), 0)


def case_batches_of_messages() -> None:
    """Two messages with every other rank in both directions, listed in another order on each rank; then a batch of two
    ranks that is the first call of its group."""
    others = [each for each in range(size()) if each != rank()]
    for repetition in range(3):
        operations, receives = [], []
        for each in others[rank() % len(others) :] + others[: rank() % len(others)]:
            for tag, count in ((1, 37), (2, 20000)):
                received = torch.zeros(count)
                receives.append((received, values_of(10 * each + rank() + repetition, count)))
                sent = values_of(10 * rank() + each + repetition, count)
                pair = [dist.P2POp(dist.isend, sent, each, tag=tag), dist.P2POp(dist.irecv, received, each, tag=tag)]
                operations = pair + operations if rank() % 2 else operations + pair[::-1]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        for received, expected in receives:
            expect(received, expected)
    group = dist.new_group(list(range(size())))
    if rank() in (0, size() - 1):
        peer = size() - 1 - rank()
        received = torch.zeros(37)
        operations = [dist.P2POp(dist.isend, values_of(rank()), peer, group), dist.P2POp(dist.irecv, received, peer, group)]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        expect(received, values_of(peer))
    dist.barrier(group)


def case_coalesced() -> None:
    values = [values_of(rank(), count) for count in (1, 70, 3)] * 30  # more than 64 calls of one work
    values = [each.clone() for each in values]
    with dist._coalescing_manager():
        for each in values:
            dist.all_reduce(each)
    for each in values:
        expect(each, total()[: each.numel()] if each.numel() <= 37 else sum(values_of(r, 70) for r in range(size())))
    outputs = [torch.zeros(size() * 3) for _ in range(2)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for each in outputs:
            dist.all_gather_into_tensor(each, values_of(rank(), 3))
    manager.wait()
    for each in outputs:
        expect(each, torch.cat([values_of(r, 3) for r in range(size())]))


def case_works_and_futures() -> None:
    values = values_of(rank())
    work = dist.all_reduce(values, async_op=True)
    work.wait()
    work.wait()
    assert work.is_completed() and work.is_success()
    expect(values, total())
    works = []
    for _ in range(50):
        values = values_of(rank(), 1000)
        works.append((dist.all_reduce(values, async_op=True), values))
    for work, values in reversed(works):
        work.wait()
        expect(values, sum(values_of(each, 1000) for each in range(size())))
    dist.all_reduce(torch.ones(1 << 20), async_op=True)  # dropped: the tensor is kept until the end
    begun = dist.all_reduce(values_of(rank()), async_op=True)
    while not begun.is_completed():
        time.sleep(0.001)


def case_callbacks_that_wait_for_collectives() -> None:
    """As PowerSGD's hook: a callback starts a collective and waits for its future, to a depth of three."""

    def again(future, depth):
        values = future.value()[0]
        inner = dist.all_reduce(values, async_op=True).get_future()
        return again(inner, depth - 1) if depth > 1 else inner.wait()[0]

    def nested(depth):
        def run(future):
            values = future.value()[0]
            inner = dist.all_reduce(values, async_op=True).get_future()
            if depth == 0:
                return inner.wait()[0]
            return inner.then(nested(depth - 1)).wait()

        return run

    first = dist.all_reduce(torch.ones(4), async_op=True).get_future()
    expect(first.then(nested(2)).wait(), torch.full((4,), float(size() ** 4)))


def case_new_groups() -> None:
    pairs = [dist.new_group([0, size() - 1]), dist.new_group([size() - 1]), dist.new_group(list(range(size())))]
    members = [[0, size() - 1], [size() - 1], list(range(size()))]
    for group, ranks in zip(pairs, members):
        if rank() not in ranks:
            continue
        values = values_of(rank())
        dist.all_reduce(values, group=group)
        expect(values, sum(values_of(each) for each in ranks))
        values = values_of(rank())
        dist.broadcast(values, ranks[-1], group=group)
        expect(values, values_of(ranks[-1]))
    dist.barrier()
    if rank() in members[0]:
        dist.destroy_process_group(pairs[0])
    dist.barrier()


def case_calls_that_differ() -> None:
    def reduce_of_own_size():
        dist.all_reduce(torch.zeros(3 + rank()))

    expect_error(errors.Mismatch, "rank 1", reduce_of_own_size)
    expect_error(farandole.torch.Mismatch, "rank 0", reduce_of_own_size)
    work = dist.all_reduce(torch.zeros(3 + rank()), async_op=True)
    expect_error(errors.Mismatch, "rank 1", work.wait)
    expect_error(errors.Mismatch, "rank 1", work.wait)
    assert not work.is_success()
    future = dist.all_reduce(torch.zeros(3 + rank()), async_op=True).get_future()
    expect_error(errors.Mismatch, "rank 1", future.wait)
    dist.barrier()


def case_errors_in_the_backward_pass() -> None:
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 2))

    def reduce_of_own_size(_, bucket):
        return dist.all_reduce(torch.zeros(3 + rank()), async_op=True).get_future()

    model.register_comm_hook(None, reduce_of_own_size)
    expect_error(errors.Mismatch, "rank 1", lambda: model(torch.ones(4, 3)).sum().backward())
    dist.barrier()


def case_timeout_of_a_wait() -> None:
    if rank() == 0:
        work = dist.irecv(torch.zeros(1), 1, tag=9)
        begin = time.monotonic()
        expect_error(errors.Timeout, "100 ms", lambda: work.wait(timedelta(milliseconds=100)))
        assert 0.1 <= time.monotonic() - begin < 5
    dist.barrier()
    if rank() == 0:
        work.wait()  # the receive went on
    if rank() == 1:
        dist.send(torch.ones(1), 0, tag=9)


def case_monitored_barrier() -> None:
    farandole.torch.monitored_barrier(timeout=timedelta(seconds=30))
    if rank() == size() - 1:
        time.sleep(1.5)
        dist.barrier()
        return
    expect_error(
        errors.Timeout,
        f"rank {size() - 1}",
        lambda: farandole.torch.monitored_barrier(timeout=timedelta(seconds=0.3), wait_all_ranks=True),
    )
    dist.barrier()


def case_profiler() -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        dist.all_reduce(torch.ones(3))
        dist.all_reduce(torch.ones(3), async_op=True).wait()
    names = [event.name for event in profile.events()]
    assert names.count("farandole:all_reduce") == 2, names


def case_sparse_all_reduce() -> None:
    values = torch.sparse_coo_tensor([[rank(), size()]], [1.0, 2.0], (size() + 1,))
    dist.all_reduce(values)
    expect(values.to_dense(), torch.tensor([1.0] * size() + [2.0 * size()]))


def case_one_step_of_data_parallel() -> None:
    torch.manual_seed(1)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(5, 3))
    batch = torch.randn(4 * size(), 5)
    model(batch.chunk(size())[rank()]).square().mean().backward()
    torch.manual_seed(1)
    alone = torch.nn.Linear(5, 3)
    torch.randn(4 * size(), 5)
    alone(batch).square().mean().backward()
    torch.testing.assert_close(model.module.weight.grad, alone.weight.grad)


class ComplexModel(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(1, 7).view(2, 3) * (1 + 2j))
        self.scale = torch.nn.Parameter(torch.tensor([2.0, 3.0]))
        self.shift = torch.nn.Parameter(torch.tensor(3 - 1j, dtype=torch.complex128))

    def forward(self, batch):
        return ((batch.to(torch.complex64) @ self.weight.t() + self.shift) * self.scale).abs().square()


def case_data_parallel_with_complex_parameters() -> None:
    torch.manual_seed(2)
    batch = torch.randn(4 * size(), 3)
    alone = ComplexModel()
    alone(batch).mean().backward()
    for as_view in (False, True):
        model = torch.nn.parallel.DistributedDataParallel(ComplexModel(), gradient_as_bucket_view=as_view)
        for _ in range(3):  # buckets are made again after the first step
            model.zero_grad()
            model(batch.chunk(size())[rank()]).mean().backward()
        for found, expected in zip(model.module.parameters(), alone.parameters()):
            torch.testing.assert_close(found.grad, expected.grad)


def case_options_of_a_group() -> None:
    def group_with(options, **others):
        return dist.new_group(list(range(size())), pg_options=options, **others)

    def timeout_of(group) -> float:
        return group._get_backend(torch.device("cpu")).options._timeout.total_seconds()

    made = torch._C._distributed_c10d.Backend.Options
    assert timeout_of(group_with(made("farandole", timedelta(seconds=90)))) == 90
    assert timeout_of(group_with(made("farandole", timedelta(seconds=90)), timeout=timedelta(seconds=80))) == 80
    assert timeout_of(group_with(made("farandole"))) == 1800
    if dist.is_gloo_available():
        other = dist.ProcessGroupGloo._Options()
        expect_error(errors.InvalidArgument, "ProcessGroupGloo._Options", lambda: group_with(other))
    expect_error(errors.InvalidArgument, "pg_options of type builtins.dict", lambda: group_with({"timeout": 3}))
    dist.barrier()


def case_exceptions_have_the_name_to_catch() -> None:
    for name in ("InvalidArgument", "PeerLost", "Timeout", "Mismatch"):
        kind = getattr(farandole.torch, name)
        assert f"{kind.__module__}.{kind.__qualname__}" == f"farandole.torch.{name}", kind


def is_in_window(memory: int) -> bool:
    """Whether the memory of this address is shared between the processes of the host."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            begin, end = (int(text, 16) for text in line.split()[0].split("-"))
            if begin <= memory < end:
                return "memfd:farandole" in line
    return False


def case_tensors_of_the_group_lie_in_windows() -> None:
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    assert backend.supports_tensor_alloc(torch.device("cpu")) and not backend.supports_tensor_alloc(torch.device("cuda", 0))
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        values = backend.allocate_tensor(100_000, dtype=dtype, device=torch.device("cpu"))
        assert values.shape == (100_000,) and values.dtype == dtype and is_in_window(values.data_ptr())
        dist.all_reduce(values.fill_(rank() + 1))
        expect(values, torch.full((100_000,), size() * (size() + 1) // 2, dtype=dtype))


def case_buckets_of_data_parallel_lie_in_windows() -> None:
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(300, 300))
    seen = []

    def hook(_, bucket):
        seen.append(is_in_window(bucket.buffer().data_ptr()))
        return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda done: done.value()[0])

    model.register_comm_hook(None, hook)
    for _ in range(3):  # buckets are made again after the first step
        model(torch.randn(2, 300)).sum().backward()
    assert seen == [True] * 3, seen


def case_calls_between_start_and_end_are_one_work() -> None:
    tensors = [values_of(rank(), 3 + each) for each in range(3)]
    group = dist.group.WORLD
    group._start_coalescing(torch.device("cpu"))
    for tensor in tensors:
        dist.broadcast(tensor, 1, async_op=True)
    work = group._end_coalescing(torch.device("cpu"))
    assert work.wait() and work.is_completed() and work.is_success()
    for each, tensor in enumerate(tensors):
        expect(tensor, values_of(1, 3 + each))
    for values in (work.result(), work.get_future().wait()):
        assert [each.data_ptr() for each in values] == [each.data_ptr() for each in tensors], values
    expect_error(errors.InvalidArgument, "startCoalescing", lambda: group._end_coalescing(torch.device("cpu")))
    group._start_coalescing(torch.device("cpu"))
    dist.all_reduce(torch.ones(3))  # in a block that an exception has left
    group._start_coalescing(torch.device("cpu"))
    assert group._end_coalescing(torch.device("cpu")).result() == []


def case_a_forked_child_is_no_rank() -> None:
    child = os.fork()
    if child == 0:
        try:
            dist.all_reduce(torch.ones(1))
        except RuntimeError as error:
            os._exit(0 if "fork" in str(error) else 1)
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    dist.barrier()


def cases() -> Dict[str, Callable[[], None]]:
    found = inspect.getmembers(sys.modules[__name__], inspect.isfunction)
    return {name[len("case_") :]: case for name, case in found if name.startswith("case_")}


def run_rank(index: int, ranks: int, names: List[str], store: str) -> None:
    torch.set_num_threads(1)
    for job in range(2):  # the second job shows that the first has ended
        dist.init_process_group(
            "cpu:farandole,cuda:farandole" if job else "farandole", init_method=f"file://{store}.{job}", rank=index, world_size=ranks
        )
        for name in names if job == 0 else ["broadcast_and_reduce"]:
            if index == 0:
                print(name, flush=True)
            cases()[name]()
            dist.barrier()
        dist.destroy_process_group()


def main(arguments: List[str]) -> int:
    ranks, names = int(arguments[0]), arguments[1:] or list(cases())
    with tempfile.TemporaryDirectory() as directory:
        store = os.path.join(directory, "store")
        torch.multiprocessing.spawn(run_rank, args=(ranks, names, store), nprocs=ranks)
    print(f"{len(names)} cases")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
