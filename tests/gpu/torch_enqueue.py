# SPDX-License-Identifier: Apache-2.0
"""usage, as each rank of a job: torch_enqueue.py LIBRARY_DIRECTORY SAMPLES

Measures the host's time to enqueue an allreduce: of Farandole in the caller's order (with the time of ctypes), and of torch's
NCCL process group, alternately in the same processes. Rank 0 prints JSON.
"""
import json
import sys
import time

import torch
import torch.distributed

from torch_job import Probe, store_address


def host_us(call, stream, samples):
    """Median of calls, of which the stream holds at most 16."""
    times = []
    for i in range(16 * samples):
        if i % 16 == 0:
            stream.synchronize()
        begin = time.perf_counter()
        call()
        times.append((time.perf_counter() - begin) * 1e6)
    stream.synchronize()
    return sorted(times)[len(times) // 2]


def main():
    samples = int(sys.argv[2])
    probe = Probe(sys.argv[1])
    torch.distributed.init_process_group("nccl", init_method=store_address(), rank=probe.rank, world_size=probe.size,
                                         device_id=torch.device("cuda", 0))
    values = torch.ones(1024, device="cuda")
    stream = torch.cuda.Stream()
    rounds = {"Farandole by ctypes": [], "torch.distributed.all_reduce": []}
    calls = {"Farandole by ctypes": lambda: probe.allreduce(values, stream, in_callers_order=True),
             "torch.distributed.all_reduce": lambda: torch.distributed.all_reduce(values)}
    with torch.cuda.stream(stream):
        for _ in range(5):
            for name, call in calls.items():
                values.zero_()
                call()
                rounds[name].append(host_us(call, stream, samples))
    torch.cuda.synchronize()
    if probe.rank == 0:
        print(json.dumps({f"{name}, us": sorted(times)[2] for name, times in rounds.items()}))
    torch.distributed.destroy_process_group()
    probe.leave()


if __name__ == "__main__":
    main()
