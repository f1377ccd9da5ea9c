# SPDX-License-Identifier: Apache-2.0
"""usage, as each rank of a job: torch_streams.py LIBRARY_DIRECTORY

Passes torch's tensors and a side stream to Farandole's allreduce, in both device orders. Checks results, order with torch's
own kernels in that stream, a graph that another thread captures meanwhile, and graphs that contain allreduces.
"""
import sys
import threading

import torch

from torch_job import Probe


def expect(what, tensor, value):
    torch.cuda.synchronize()
    if not torch.equal(tensor, torch.full_like(tensor, value)):
        raise AssertionError(f"{what}: {tensor.flatten()[:4].tolist()} instead of {value}")
    print(f"{what}: right", flush=True)


def capture_graphs(stop, failures):
    """Captures and replays until told to stop: calls of another thread must not break it."""
    try:
        values = torch.zeros(1024, device="cuda")
        stream = torch.cuda.Stream()
        while not stop.is_set():
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                values.add_(1)
            graph.replay()
            stream.synchronize()
    except Exception as error:  # noqa: BLE001  shown by the main thread
        failures.append(error)


def check_results(probe, total):
    side = torch.cuda.Stream()
    for in_callers_order in (False, True):
        for count in (1, 1000, 1 << 22):
            where = f"{count} elements, in the {'caller' if in_callers_order else 'agreed'} order"
            values = torch.full((count,), float(probe.rank + 1), device="cuda")
            probe.allreduce(values)
            expect(f"{where}, default stream", values, total)
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                values = torch.full((count,), 0.5 * (probe.rank + 1), device="cuda")
                values.mul_(2)
                probe.allreduce(values, side, in_callers_order=in_callers_order)
                values.add_(1)
            expect(f"{where}, side stream, between torch's kernels", values, total + 1)
            with torch.cuda.stream(side):
                values = torch.full((count,), float(probe.rank + 1), device="cuda")
                probe.allreduce(values, side, 0.5, in_callers_order)
            expect(f"{where}, prescale", values, total / 2)


def check_beside_captures(probe, total):
    side = torch.cuda.Stream()
    stop, failures = threading.Event(), []
    thread = threading.Thread(target=capture_graphs, args=(stop, failures))
    thread.start()
    try:
        with torch.cuda.stream(side):
            for _ in range(50):
                values = torch.full((1000,), float(probe.rank + 1), device="cuda")
                probe.allreduce(values, side)
                side.synchronize()
    finally:
        stop.set()
        thread.join()
    if failures:
        raise AssertionError(f"a graph that another thread captured: {failures[0]}")
    expect("beside graphs that another thread captures", values, total)


def check_graph(probe, algorithm):
    """20 replays of a captured training step give the bits of 20 steps."""
    side = torch.cuda.Stream()
    torch.manual_seed(probe.rank)
    start = torch.rand(100_000, device="cuda")
    gradient, weights = start.clone(), torch.zeros(100_000, device="cuda")

    def step():
        gradient.mul_(0.9).add_(0.01)
        probe.allreduce(gradient, side, 1 / probe.size, True, algorithm)
        weights.sub_(gradient, alpha=0.1)

    def outcome(run):
        gradient.copy_(start)
        weights.zero_()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(20):
                run()
        torch.cuda.synchronize()
        return weights.clone()

    expected = outcome(step)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        step()
    came = outcome(graph.replay)
    if not torch.equal(came, expected):
        raise AssertionError(f"20 replays of a graph with {algorithm}: {came[:4].tolist()} instead of {expected[:4].tolist()}")
    print(f"20 replays of a graph with {algorithm}: right", flush=True)


def main():
    probe = Probe(sys.argv[1])
    total = probe.size * (probe.size + 1) / 2
    check_results(probe, total)
    check_beside_captures(probe, total)
    for algorithm in ("vendor", "ring"):
        check_graph(probe, algorithm)
    probe.leave()


if __name__ == "__main__":
    main()
