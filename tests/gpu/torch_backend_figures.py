# SPDX-License-Identifier: Apache-2.0
"""usage, as each rank of a job: torch_backend_figures.py SAMPLES [--device cpu]

Measures all_reduce of torch.distributed with the backend `farandole` and with torch's NCCL process group, alternately in the
same processes: the host's time to enqueue a call, and the time per call on the device. Ranks that share a device take turns on
it and communicate by sockets, so the times on the device compare the two backends, and are no bandwidths. On --device cpu, which
tests this program where no GPU is, the peer is gloo, and a call takes place on the host. Rank 0 prints JSON.
"""
import argparse
import datetime
import json
import os
import time

import torch
import torch.distributed as dist

import farandole.torch  # noqa: F401  registers the backend
from torch_job import store_address

SIZES = {"4 B": 4, "64 KiB": 64 << 10, "1 MiB": 1 << 20, "64 MiB": 64 << 20}
IN_FLIGHT = 16  # calls that a stream holds at most
ROUNDS = 5
TIMEOUT = datetime.timedelta(seconds=30)  # of a call


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def host_us(call, device, calls):
    """Median time of a call on the host, microseconds."""
    times = []
    for number in range(calls):
        if number % IN_FLIGHT == 0:
            synchronize(device)
        begin = time.perf_counter()
        call()
        times.append((time.perf_counter() - begin) * 1e6)
    synchronize(device)
    return sorted(times)[len(times) // 2]


def device_us(call, device, calls):
    """Time per call of calls in a row, microseconds of the device."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    synchronize(device)
    begin.record()
    for _ in range(calls):
        call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3 / calls


def times_of(group, values, calls, device):
    """What a group's calls take. @param calls  in a row, and fewer on the device"""
    def plain():
        dist.all_reduce(values, group=group)

    def waited():
        dist.all_reduce(values, group=group, async_op=True).wait()

    times = {"host time of a call, us": host_us(plain, device, calls),
             "host time of an asynchronous call and its wait, us": host_us(waited, device, calls)}
    if device.type == "cuda":
        times["device time per call, us"] = device_us(plain, device, min(calls, IN_FLIGHT))
    return times


def figures_of(groups, device, samples):
    """Medians over rounds, in which the groups take turns. Up to 200 calls in all, and up to 15 of the longest vector."""
    figures = {}
    for size_name, size in SIZES.items():
        calls = min(40, 3 * samples) if size < 64 << 20 else min(3, samples)
        values = torch.zeros(size // 4, device=device)
        found = {}
        for round_number in range(ROUNDS + 1):
            for name, group in groups.items():
                for what, value in times_of(group, values, calls, device).items():
                    if round_number > 0:  # the first round connects and allocates
                        found.setdefault(f"{name}, {size_name}: {what}", []).append(value)
        figures.update({what: round(sorted(times)[len(times) // 2], 2) for what, times in found.items()})
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("samples", type=int)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    arguments = parser.parse_args()
    rank, ranks = int(os.environ["FARANDOLE_RANK"]), int(os.environ["FARANDOLE_SIZE"])
    device = torch.device("cuda", 0) if arguments.device == "cuda" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("farandole", init_method=store_address(), rank=rank, world_size=ranks, timeout=TIMEOUT)
    peer = "nccl" if device.type == "cuda" else "gloo"
    groups = {"farandole": dist.group.WORLD, peer: dist.new_group(backend=peer)}
    figures = figures_of(groups, device, arguments.samples)
    if rank == 0:
        print(json.dumps({"ranks": ranks, "torch": torch.__version__, **figures}))
    synchronize(device)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
