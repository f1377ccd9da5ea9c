#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: device_test.py SOURCES LIBRARIES [CASE...]

The part of the backend `farandole` that handles devices, with tensors whose memory and streams are those of the double of
libcuda (double_device.cpp). Two ranks, started by torch.multiprocessing. Without gradients: the autograd of a torch that was
built for CUDA asks CUDA for streams, whatever the tensors' device is.

SOURCES: the repository. LIBRARIES: the directory that contains libfake_cuda.so and libfake_nccl.so.
"""

import ctypes
import inspect
import os
import subprocess
import sys
import tempfile
import types
from pathlib import Path
from typing import Callable, Dict, List

import torch
import torch.distributed as dist
import torch.multiprocessing

import farandole.torch
from farandole import _engine, _files, errors
from farandole.torch import _backend_library

RANKS = 2
COUNT = 1 << 16
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.uint8)


def build(sources: Path, libraries: Path, output: Path) -> None:
    """Builds double_device.cpp as the backend library is built."""
    recipe = _backend_library.Recipe(_files.header_dir(), _engine.library_for_linking())
    command = recipe.command(["g++"], output)
    command += [f"-I{sources / 'core' / 'backends'}", f"-I{sources / 'tests' / 'support' / 'host_device'}"]
    command += [f"-L{libraries}", "-lfake_cuda", f"-Wl,-rpath,{libraries}"]
    source = (sources / "tests" / "torch" / "double_device.cpp").read_text()
    subprocess.run(command, input=source, text=True, check=True)


class Double:
    """The functions of fake_device.h."""

    def __init__(self, library: str):
        self._functions = ctypes.CDLL(library)  # its symbols include those of the double
        self._functions.double_device_current_stream.restype = ctypes.c_void_p

    def use_stream(self, number: int) -> None:
        self._functions.double_device_set_stream(dist.get_rank(), number)

    def stick_current_stream(self) -> None:
        """The current stream hangs before its next item, until `restore`."""
        stream = self._functions.double_device_current_stream(dist.get_rank())
        self._functions.fake_device_stick(ctypes.c_void_p(stream), 1)

    def restore(self) -> None:
        self._functions.fake_device_restore()

    def misuses(self) -> List[str]:
        text, found = ctypes.create_string_buffer(4096), []
        while self._functions.fake_device_take_misuse(text, len(text)):
            found.append(text.value.decode())
        return found


class DeviceModule(types.ModuleType):
    """What torch looks up in `torch.cuda` for CUDA devices."""

    def __init__(self, rank: int):
        super().__init__("torch.privateuseone")
        self.current_device = lambda: rank
        self.device_count = lambda: RANKS
        self.is_available = lambda: True


double: Double


def device() -> torch.device:
    return torch.device("privateuseone", dist.get_rank())


def filled(value: float, count: int = COUNT, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Written by a kernel that has not run yet."""
    return torch.empty(count, dtype=dtype, device=device()).fill_(value)


def expect(found: torch.Tensor, value: float) -> None:
    """All elements, after the work of the current stream."""
    on_host = found.cpu()
    assert torch.equal(on_host, torch.full_like(on_host, value)), f"{on_host} != {value}"


def own() -> int:
    """1 on rank 0, 2 on rank 1: the sum is 3."""
    return dist.get_rank() + 1


def case_all_reduce_of_every_type() -> None:
    for dtype in DTYPES:
        values = filled(own(), dtype=dtype)
        dist.all_reduce(values)
        expect(values, 3)
    for op, expected in ((dist.ReduceOp.MAX, 2), (dist.ReduceOp.PRODUCT, 2), (dist.ReduceOp.AVG, 1.5)):
        values = filled(own())
        dist.all_reduce(values, op)
        expect(values, expected)


def case_collectives() -> None:
    rank, other = dist.get_rank(), 1 - dist.get_rank()
    values = filled(own())
    dist.broadcast(values, 1)
    expect(values, 2)
    values = filled(own())
    dist.reduce(values, 0)
    if rank == 0:
        expect(values, 3)
    whole = torch.empty(2 * COUNT, device=device())
    dist.all_gather_into_tensor(whole, filled(own()))
    expect(whole[:COUNT], 1)
    expect(whole[COUNT:], 2)
    parts = [torch.empty(COUNT, device=device()), torch.empty(COUNT, device=device())]
    dist.all_gather(parts, filled(own()))
    expect(parts[other], other + 1)
    part = torch.empty(COUNT, device=device())
    dist.reduce_scatter_tensor(part, filled(own(), 2 * COUNT))
    expect(part, 3)
    dist.all_to_all_single(whole, filled(own(), 2 * COUNT))
    expect(whole[other * COUNT : (other + 1) * COUNT], other + 1)
    dist.gather(filled(own()), parts if rank == 1 else None, 1)
    if rank == 1:
        expect(parts[0], 1)
    dist.scatter(part, [filled(5), filled(6)] if rank == 0 else None, 0)
    expect(part, 5 + rank)
    dist.barrier()


def case_a_list_is_one_work() -> None:
    tensors = [filled(own(), 1 + 1000 * each) for each in range(4)]
    with dist._coalescing_manager(device=device(), async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor)
    manager.wait()
    for tensor in tensors:
        expect(tensor, 3)


def case_the_host_only_enqueues() -> None:
    """A collective after work that cannot run, and a wait for it, return before the work runs."""
    values, copy = filled(own()), filled(0)
    dist.all_reduce(values)  # the first call of a size may wait in the driver
    expect(values, 3)
    values = filled(own())
    double.stick_current_stream()
    values.fill_(10 * own())
    work = dist.all_reduce(values, async_op=True)
    assert not work.is_completed()
    work.wait()
    copy.copy_(values)
    double.restore()
    expect(copy, 30)
    assert work.is_completed()


def case_the_current_stream_waits_only_for_a_wait() -> None:
    for _ in range(20):
        values, copy = filled(own()), filled(0)
        work = dist.all_reduce(values, async_op=True)
        values_of_others = filled(7).add(1)  # the current stream goes on meanwhile
        work.wait()
        copy.copy_(values)
        expect(copy, 3)
        expect(values_of_others, 8)


def case_memory_is_kept_until_the_collective_has_run() -> None:
    """Inputs that the program drops are not reused by later work of the current stream."""
    for _ in range(20):
        outputs, works = [], []
        for value in range(4):
            outputs.append(torch.empty(2 * COUNT, device=device()))
            works.append(dist.all_gather_into_tensor(outputs[-1], filled(own() + value), async_op=True))
            filled(99)
        for value, (output, work) in enumerate(zip(outputs, works)):
            work.wait()
            expect(output[:COUNT], 1 + value)
            expect(output[COUNT:], 2 + value)


def case_a_stream_of_the_program() -> None:
    """Collectives follow the work of the stream that is current at the call."""
    for number in (1, 2, 3, 0):
        double.use_stream(number)
        for _ in range(5):
            values = filled(own())
            dist.all_reduce(values)
            expect(values, 3)


def case_futures() -> None:
    values, copy = filled(own()), filled(0)

    def then(future: torch.futures.Future) -> torch.Tensor:
        copy.copy_(future.value()[0])
        return copy

    future = dist.all_reduce(values, async_op=True).get_future().then(then)
    expect(future.wait(), 3)


def case_calls_between_start_and_end() -> None:
    """The future of coalesced calls makes its user's stream wait for all of them."""
    group = dist.group.WORLD
    tensors = [filled(own(), 1000 + each) for each in range(3)]
    group._start_coalescing(device())
    for tensor in tensors:
        dist.broadcast(tensor, 1)
    work = group._end_coalescing(device())
    copies = work.get_future().then(lambda done: [value.clone() for value in done.value()]).wait()
    for copy in copies:
        expect(copy, 2)
    work.wait()
    for tensor in tensors:
        expect(tensor, 2)


def case_messages() -> None:
    """A message follows the work of the current stream, and the current stream waits for it."""
    for dtype in DTYPES:
        for value in range(3):
            if dist.get_rank() == 0:
                dist.send(filled(value + 1, dtype=dtype), 1)
                filled(99, dtype=dtype)  # may take the memory of the tensor that was dropped
            else:
                received, copy = filled(0, dtype=dtype), filled(0, dtype=dtype)
                assert dist.recv(received, 0) == 0
                copy.copy_(received)
                expect(copy, value + 1)


def case_both_ranks_send_first() -> None:
    peer = 1 - dist.get_rank()
    for value in range(5):
        sent, received, copy = filled(own() + value, 1 << 20), filled(0, 1 << 20), filled(0, 1 << 20)
        works = [dist.isend(sent, peer), dist.irecv(received, peer)]
        for work in works:
            work.wait()
        copy.copy_(received)
        sent.fill_(99)
        expect(copy, peer + 1 + value)


def case_a_batch_of_messages() -> None:
    """Receives first, two messages on the same way, and messages to the rank itself."""
    rank, peer = dist.get_rank(), 1 - dist.get_rank()
    for value in range(5):
        received = [filled(0), filled(0, 100), filled(0, 7)]
        copies = [torch.empty_like(each) for each in received]
        batch = [dist.P2POp(dist.irecv, received[0], peer), dist.P2POp(dist.isend, filled(own() + value), peer)]
        batch += [dist.P2POp(dist.isend, filled(own() + 50, 100), peer), dist.P2POp(dist.irecv, received[1], peer)]
        batch += [dist.P2POp(dist.irecv, received[2], rank), dist.P2POp(dist.isend, filled(own() + 70, 7), rank)]
        works = dist.batch_isend_irecv(batch)
        del batch
        filled(99)
        for work in works:
            work.wait()
        for copy, each in zip(copies, received):
            copy.copy_(each)
        expect(copies[0], peer + 1 + value)
        expect(copies[1], peer + 51)
        expect(copies[2], own() + 70)


def case_a_batch_that_fails_is_reported_by_the_next() -> None:
    peer = 1 - dist.get_rank()
    message = dist.P2POp(dist.isend, filled(1), peer)
    for operations, text in (
        ([message, dist.P2POp(dist.irecv, filled(0, 1).expand(10), peer)], "whose elements have memory of their own"),
        ([message], "1 messages of tensors on devices were not sent"),
    ):
        try:
            dist.batch_isend_irecv(operations)
        except errors.InvalidArgument as error:
            assert text in str(error), error
        else:
            raise AssertionError(f"no error says '{text}'")


def case_messages_only_enqueue() -> None:
    """Messages after work that cannot run, and waits for them, return before the work runs."""
    peer = 1 - dist.get_rank()
    sent, received, copy = filled(own()), filled(0), filled(0)

    def exchange() -> None:
        works = dist.batch_isend_irecv([dist.P2POp(dist.isend, sent, peer), dist.P2POp(dist.irecv, received, peer)])
        works += [dist.isend(sent, peer), dist.irecv(received, peer)]
        for work in works:
            work.wait()

    exchange()
    expect(received, peer + 1)
    double.stick_current_stream()
    sent.fill_(10 * own())
    exchange()
    copy.copy_(received)
    double.restore()
    expect(copy, 10 * (peer + 1))


def case_a_message_of_a_block_starts_at_its_end() -> None:
    group, peer = dist.group.WORLD, 1 - dist.get_rank()
    group._start_coalescing(device())
    work = dist.isend(filled(1), peer)
    try:
        work.wait()
    except errors.InvalidArgument as error:
        assert "wait for the work of the block" in str(error), error
    else:
        raise AssertionError("a message that has not started can be waited for")
    received = filled(0)
    dist.irecv(received, peer)
    group._end_coalescing(device()).wait()
    expect(received, 1)


def case_what_is_refused() -> None:
    peer = 1 - dist.get_rank()
    for call, why in (
        (lambda: dist.send(filled(1), peer, tag=3), "have no tags"),
        (lambda: dist.recv(filled(1)), "pass `src`"),
        (lambda: dist.recv(filled(1), peer, tag=1), "have no tags"),
    ):
        try:
            call()
        except errors.Unsupported as error:
            assert why in str(error), error
        else:
            raise AssertionError(f"a message is not refused: {why}")
    try:
        dist.all_gather([torch.empty(4), torch.empty(4, device=device())], filled(1, 4))
    except errors.InvalidArgument as error:
        assert "the output Float on cpu" in str(error), error
    else:
        raise AssertionError("a list of CPU and device tensors is not refused")


def cases() -> Dict[str, Callable[[], None]]:
    found = inspect.getmembers(sys.modules[__name__], inspect.isfunction)
    return {name[len("case_") :]: case for name, case in found if name.startswith("case_")}


def run_rank(rank: int, library: str, names: List[str], store: str) -> None:
    global double
    torch.set_num_threads(1)
    torch.ops.load_library(library)
    torch._register_device_module("privateuseone", DeviceModule(rank))
    farandole.torch._backend.accept_extension_devices()
    double = Double(library)
    backend = "cpu:farandole,privateuseone:farandole"
    dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=RANKS)
    for name in names:
        if rank == 0:
            print(name, flush=True)
        cases()[name]()
        dist.barrier()
    dist.destroy_process_group()
    assert not double.misuses(), double.misuses()


def main(arguments: List[str]) -> int:
    sources, libraries, names = Path(arguments[0]), Path(arguments[1]).resolve(), arguments[2:] or list(cases())
    os.environ["FARANDOLE_CUDA_LIBRARY"] = str(libraries / "libfake_cuda.so")
    os.environ["FARANDOLE_NCCL_LIBRARY"] = str(libraries / "libfake_nccl.so")
    os.environ.setdefault("FAKE_DEVICE_DELAY_US", "2000")  # streams are late, so missing orders show
    with tempfile.TemporaryDirectory() as directory:
        library = Path(directory, "libdouble_device.so")
        build(sources, libraries, library)
        torch.multiprocessing.spawn(run_rank, args=(str(library), names, os.path.join(directory, "store")), nprocs=RANKS)
    print(f"{len(names)} cases")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
