# SPDX-License-Identifier: Apache-2.0
"""Cases of torch_backend.py: what the backend `farandole` does with a device's tensors, compared with what torch computes of all
ranks' values on the processor, with streams, and in a graph.

A case takes the place where tensors are (torch_backend.Cuda), raises an error if it fails, and may return a note.
"""
import torch
import torch.distributed as dist

from farandole import errors
from torch_backend_training import data_parallel_training

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
MOVED_ONLY = (torch.float8_e4m3fn, torch.float8_e5m2)
COUNTS = (1, 1003, 1 << 20)
Op = dist.ReduceOp


def rank():
    return dist.get_rank()


def size():
    return dist.get_world_size()


def values_of(of_rank, count, dtype=torch.float32, seed=0):
    """Whole numbers from 1 to 4, on the processor; any rank can make any rank's. Sums and products are exact in all types."""
    generator = torch.Generator().manual_seed(1000 * seed + of_rank)
    numbers = torch.randint(1, 5, (count,), generator=generator)
    return (numbers > 2) if dtype == torch.bool else numbers.to(dtype)


def mine(place, count, dtype=torch.float32, seed=0):
    return values_of(rank(), count, dtype, seed).to(place.device)


def empty(place, count, dtype=torch.float32):
    return torch.empty(count, dtype=dtype, device=place.device)


def exact(tensor):
    """The values in a type in which all of them can be compared."""
    tensor = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return tensor.double()


def expect(place, what, found, expected):
    """The same values, once all streams are done."""
    place.synchronize()
    found = found.cpu()
    if found.dtype != expected.dtype or not torch.equal(exact(found), exact(expected)):
        differing = (exact(found) != exact(expected)).sum().item() if found.shape == expected.shape else "all"
        raise AssertionError(f"{what}: {differing} of {expected.numel()} values are wrong: {found.flatten()[:4].tolist()}… "
                             f"instead of {expected.flatten()[:4].tolist()}…, {found.dtype}")


def reduced(op, count, dtype, seed=0):
    """The reduction of all ranks' values."""
    rows = [values_of(each, count, dtype, seed) for each in range(size())]
    if op in (Op.BAND, Op.BOR, Op.BXOR):
        result = rows[0].to(torch.int64)
        for row in rows[1:]:
            other = row.to(torch.int64)
            result = result & other if op == Op.BAND else result | other if op == Op.BOR else result ^ other
        return result.to(dtype)
    stacked = torch.stack([row.double() for row in rows])
    result = {Op.SUM: stacked.sum(0), Op.AVG: stacked.mean(0), Op.PRODUCT: stacked.prod(0), Op.MIN: stacked.amin(0),
              Op.MAX: stacked.amax(0)}[op]
    return result.to(torch.int64).to(dtype) if dtype not in FLOATS else result.to(dtype)


# Collectives.


def all_reduce_of_every_type_and_op(place):
    arithmetic = (Op.SUM, Op.AVG, Op.PRODUCT, Op.MIN, Op.MAX)
    bitwise = (Op.BAND, Op.BOR, Op.BXOR)
    for dtype in (*FLOATS, *INTEGERS, torch.bool):
        ops = arithmetic if dtype in FLOATS else (Op.MIN, Op.MAX, *bitwise) if dtype == torch.bool else (*arithmetic, *bitwise)
        for op in ops:
            values = mine(place, COUNTS[1], dtype)
            dist.all_reduce(values, op)
            expect(place, f"{op} of {dtype}", values, reduced(op, COUNTS[1], dtype))


def all_reduce_of_every_size(place):
    for count in COUNTS:
        for dtype in FLOATS:
            values = mine(place, count, dtype, count)
            dist.all_reduce(values)
            expect(place, f"{count} of {dtype}", values, reduced(Op.SUM, count, dtype, count))
    scaled = mine(place, COUNTS[1])
    dist.all_reduce(scaled, dist._make_nccl_premul_sum(2.0))
    expect(place, "PREMUL_SUM", scaled, 2 * reduced(Op.SUM, COUNTS[1], torch.float32))
    numbers = mine(place, COUNTS[1])
    pairs = torch.complex(numbers, -numbers)
    dist.group.WORLD.allreduce([pairs]).wait()  # dist.all_reduce passes a view of real numbers
    total = reduced(Op.SUM, COUNTS[1], torch.float32)
    expect(place, "complex numbers", pairs, torch.complex(total, -total))


def broadcast_and_reduce(place):
    for root in range(size()):
        for dtype in (*FLOATS, *INTEGERS, *MOVED_ONLY, torch.bool):
            values = mine(place, COUNTS[1], dtype)
            dist.broadcast(values, root)
            expect(place, f"broadcast of {dtype}", values, values_of(root, COUNTS[1], dtype))
        values = mine(place, COUNTS[2])
        dist.reduce(values, root)
        if rank() == root:
            expect(place, "reduce", values, reduced(Op.SUM, COUNTS[2], torch.float32))
    columns = mine(place, 12).view(3, 4).t()  # dense, but not contiguous
    dist.broadcast(columns, 0)
    expect(place, "columns", columns, values_of(0, 12).view(3, 4).t())


def gathers(place):
    for count in COUNTS:
        all_values = [values_of(each, count) for each in range(size())]
        whole = empty(place, size() * count)
        dist.all_gather_into_tensor(whole, mine(place, count))
        expect(place, "all_gather_into_tensor", whole, torch.cat(all_values))
        for outputs in ([empty(place, count) for _ in range(size())], list(empty(place, size() * count).chunk(size()))):
            dist.all_gather(outputs, mine(place, count))
            for each in range(size()):
                expect(place, "all_gather", outputs[each], all_values[each])
    uneven = [empty(place, 5 * each + 1) for each in range(size())]
    dist.all_gather(uneven, mine(place, 5 * rank() + 1))
    for each in range(size()):
        expect(place, "all_gather of uneven tensors", uneven[each], values_of(each, 5 * each + 1))
    parts = [empty(place, COUNTS[1]) for _ in range(size())]
    dist.gather(mine(place, COUNTS[1]), parts if rank() == 1 else None, 1)
    for each in range(size() if rank() == 1 else 0):
        expect(place, "gather", parts[each], values_of(each, COUNTS[1]))
    part = empty(place, COUNTS[1])
    sent = [values_of(each, COUNTS[1], seed=7).to(place.device) for each in range(size())]
    dist.scatter(part, sent if rank() == 0 else None, 0)
    expect(place, "scatter", part, values_of(rank(), COUNTS[1], seed=7))


def reduce_scatters(place):
    for dtype in (torch.float32, torch.bfloat16, torch.int32):
        for count in COUNTS:
            part = empty(place, count, dtype)
            dist.reduce_scatter_tensor(part, mine(place, size() * count, dtype))
            total = reduced(Op.SUM, size() * count, dtype)
            expect(place, "reduce_scatter_tensor", part, total[rank() * count:(rank() + 1) * count])
    inputs = [values_of(rank(), COUNTS[1], seed=each).to(place.device) for each in range(size())]
    part = empty(place, COUNTS[1])
    dist.reduce_scatter(part, inputs)
    expect(place, "reduce_scatter", part, reduced(Op.SUM, COUNTS[1], torch.float32, rank()))


def all_to_alls(place):
    for count in COUNTS:
        found = empty(place, size() * count)
        dist.all_to_all_single(found, mine(place, size() * count))
        sent = [values_of(each, size() * count)[rank() * count:(rank() + 1) * count] for each in range(size())]
        expect(place, "all_to_all_single", found, torch.cat(sent))

    def sent_by(source):
        """Numbers of values from `source` to each rank."""
        return [3 + 2 * source + 500 * target for target in range(size())]

    def part(source, target):
        return values_of(source, sum(sent_by(source))).split(sent_by(source))[target]

    expected = [part(source, rank()) for source in range(size())]
    lengths = [len(each) for each in expected]
    found = empty(place, sum(lengths))
    dist.all_to_all_single(found, mine(place, sum(sent_by(rank()))), lengths, sent_by(rank()))
    expect(place, "uneven all_to_all_single", found, torch.cat(expected))
    outputs = [empty(place, length) for length in lengths]
    dist.all_to_all(outputs, [part(rank(), target).to(place.device) for target in range(size())])
    for source in range(size()):
        expect(place, "all_to_all of uneven lists", outputs[source], expected[source])


def coalesced_calls(place):
    counts = [1 + 1000 * each for each in range(4)]
    tensors = [mine(place, count) for count in counts]
    with dist._coalescing_manager(device=place.device, async_ops=True) as works:
        for tensor in tensors:
            dist.all_reduce(tensor)
    works.wait()
    for tensor, count in zip(tensors, counts):
        expect(place, "coalesced all_reduce", tensor, reduced(Op.SUM, count, torch.float32))
    outputs = [empty(place, size() * count) for count in counts]
    with dist._coalescing_manager(device=place.device, async_ops=True) as works:
        for output, count in zip(outputs, counts):
            dist.all_gather_into_tensor(output, mine(place, count))
    works.wait()
    for output, count in zip(outputs, counts):
        expect(place, "coalesced all_gather", output, torch.cat([values_of(each, count) for each in range(size())]))


def barriers(place):
    for _ in range(3):
        dist.barrier()
    dist.barrier(async_op=True).wait()


def a_refused_call_leaves_the_group_usable(place):
    try:
        dist.all_reduce(mine(place, 16)[::2])
    except errors.InvalidArgument as error:
        assert "contiguous()" in str(error), error
    else:
        raise AssertionError("a tensor with gaps was not refused")
    values = mine(place, 16)
    dist.all_reduce(values)
    expect(place, "after a refused call", values, reduced(Op.SUM, 16, torch.float32))


def send_and_recv(place):
    other = (rank() + 1) % size()
    for count in COUNTS:
        values, found = mine(place, count), empty(place, count)
        if rank() == 0:
            dist.send(values, other)
            dist.recv(found, other)
        else:
            dist.recv(found, other)
            dist.send(values, other)
        expect(place, "a message", found, values_of(other, count))


def both_ranks_send_first(place):
    other = (rank() + 1) % size()
    for count in COUNTS:
        found = empty(place, count)
        for work in (dist.isend(mine(place, count), other), dist.irecv(found, other)):
            work.wait()
        expect(place, "a message of ranks that both send first", found, values_of(other, count))


def a_batch_of_messages(place):
    right, left = (rank() + 1) % size(), (rank() - 1) % size()
    for count in COUNTS:
        found, further = empty(place, count), empty(place, 5)
        batch = [dist.P2POp(dist.irecv, found, left), dist.P2POp(dist.isend, mine(place, count), right)]
        batch += [dist.P2POp(dist.isend, mine(place, 5), right), dist.P2POp(dist.irecv, further, left)]
        for work in dist.batch_isend_irecv(batch):
            work.wait()
        expect(place, "a message of a batch", found, values_of(left, count))
        expect(place, "a second message of a batch", further, values_of(left, 5))


# Streams.


def a_result_is_used_after_wait(place):
    """The collective follows a long kernel of its stream; another stream that waits for it gets the result."""
    source, copy, beside = mine(place, COUNTS[2]), empty(place, COUNTS[2]), empty(place, COUNTS[2])
    values = torch.zeros(COUNTS[2]).to(place.device)
    for _ in range(2):  # the first calls may wait in the driver
        dist.all_reduce(values)
    producer, user = place.stream(), place.stream()
    place.synchronize()
    with place.using(producer), place.busy():
        values.copy_(source)
        work = dist.all_reduce(values, async_op=True)
        assert not work.is_completed(), "an all_reduce is done before the long kernel that it follows"
        beside.fill_(7)
    with place.using(user):
        work.wait()
        copy.copy_(values)
    expect(place, "after wait", copy, reduced(Op.SUM, COUNTS[2], torch.float32))
    expect(place, "beside the collective", beside, torch.full((COUNTS[2],), 7.0))
    assert work.is_completed()


def calls_follow_the_current_stream(place):
    streams = [place.stream() for _ in range(3)]
    results = []
    for seed in range(12):
        values, copy = empty(place, COUNTS[1]), empty(place, COUNTS[1])
        source = mine(place, COUNTS[1], seed=seed)
        place.synchronize()
        with place.using(streams[seed % 3]):
            values.copy_(source)
            dist.all_reduce(values)
            copy.copy_(values)
        results.append((seed, copy, values, source))
    for seed, copy, _, _ in results:
        expect(place, f"in stream {seed % 3}", copy, reduced(Op.SUM, COUNTS[1], torch.float32, seed))


def memory_dropped_in_flight(place):
    """Inputs that the program drops are not reused while their collective is in flight, nor are those of a dropped work."""
    dist.all_gather_into_tensor(empty(place, size() * COUNTS[1]), mine(place, COUNTS[1]))
    sources = [mine(place, COUNTS[1], seed=seed) for seed in range(10)]
    place.synchronize()
    stream, outputs, works = place.stream(), [], []
    with place.using(stream), place.busy():
        for source in sources:
            values = empty(place, COUNTS[1])
            values.copy_(source)
            outputs.append(empty(place, size() * COUNTS[1]))
            works.append(dist.all_gather_into_tensor(outputs[-1], values, async_op=True))
            del values
            for _ in range(3):
                empty(place, COUNTS[1]).fill_(99)
            dist.all_reduce(empty(place, COUNTS[1]).fill_(1), async_op=True)
    with place.using(stream):
        for work in works:
            work.wait()
    for seed, output in enumerate(outputs):
        expected = torch.cat([values_of(each, COUNTS[1], seed=seed) for each in range(size())])
        expect(place, f"dropped input {seed}", output, expected)


def futures(place):
    values, copy = mine(place, COUNTS[1]), empty(place, COUNTS[1])

    def then(future):
        copy.copy_(future.value()[0])
        return copy

    result = dist.all_reduce(values, async_op=True).get_future().then(then).wait()
    expect(place, "a future", result, reduced(Op.SUM, COUNTS[1], torch.float32))


# Graphs.


def replays_of_a_captured_all_reduce(place):
    count, replays = COUNTS[2], 20
    source, values, result = (torch.zeros(count).to(place.device) for _ in range(3))
    stream = place.stream()

    def body():
        values.copy_(source)
        dist.all_reduce(values)
        result.copy_(values)

    place.synchronize()
    # A process group's calls are in the caller's order, where a call can be captured after an equal call outside of a graph.
    with place.using(stream):
        for _ in range(3):
            body()
    place.synchronize()
    dist.barrier()
    replay, destroy = place.capture(stream, body)
    for seed in range(replays):
        new = mine(place, count, seed=seed)
        place.synchronize()
        with place.using(stream):
            source.copy_(new)
            replay()
        expect(place, f"replay {seed}", result, reduced(Op.SUM, count, torch.float32, seed))
    copies = [empty(place, count) for _ in range(replays)]
    place.synchronize()
    with place.using(stream):
        for number, copy in enumerate(copies):  # without waits of the host
            source.fill_(number + rank())
            replay()
            copy.copy_(result)
    for number, copy in enumerate(copies):
        total = float(sum(number + each for each in range(size())))
        expect(place, f"replay {number} in a row", copy, torch.full((count,), total))
    # docs/gpu.md: no call in flight while a graph is destroyed, and the next call is waited for.
    dist.barrier()
    destroy()
    values.fill_(rank() + 1)
    dist.all_reduce(values)
    expect(place, "after the graph", values, torch.full((count,), float(sum(each + 1 for each in range(size())))))


CASES = {
    "collectives": (all_reduce_of_every_type_and_op, all_reduce_of_every_size, broadcast_and_reduce, gathers, reduce_scatters,
                    all_to_alls, coalesced_calls, barriers, a_refused_call_leaves_the_group_usable, send_and_recv,
                    both_ranks_send_first, a_batch_of_messages),
    "streams": (a_result_is_used_after_wait, calls_follow_the_current_stream, memory_dropped_in_flight, futures),
    "training": (data_parallel_training,),
    "graph": (replays_of_a_captured_all_reduce,),
}
