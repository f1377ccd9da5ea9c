# SPDX-License-Identifier: Apache-2.0
"""usage, as each rank of a job: torch_streams.py LIBRARY_DIRECTORY

torch's tensors and a side stream of torch's go through Farandole's allreduce, by libfarandole_torch_probe.so: results,
order with torch's own kernels in that stream, and a graph that another thread captures meanwhile.
"""
import ctypes
import sys
import threading

import torch


class Probe:
    def __init__(self, directory):
        self.library = ctypes.CDLL(f"{directory}/libfarandole_torch_probe.so")
        self.library.probe_error.restype = ctypes.c_char_p
        self.library.probe_allreduce.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_double]
        self.checked(self.library.probe_join())

    def checked(self, status):
        if status != 0:
            raise RuntimeError(self.library.probe_error().decode())

    def allreduce(self, tensor, stream=None, prescale=1.0):
        handle = None if stream is None else stream.cuda_stream
        self.checked(self.library.probe_allreduce(tensor.data_ptr(), tensor.numel(), handle, prescale))


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


def main():
    probe = Probe(sys.argv[1])
    rank, size = probe.library.probe_rank(), probe.library.probe_size()
    total = size * (size + 1) / 2
    side = torch.cuda.Stream()
    for count in (1, 1000, 1 << 22):
        values = torch.full((count,), float(rank + 1), device="cuda")
        probe.allreduce(values)
        expect(f"{count} elements, default stream", values, total)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            values = torch.full((count,), 0.5 * (rank + 1), device="cuda")
            values.mul_(2)
            probe.allreduce(values, side)
            values.add_(1)
        expect(f"{count} elements, side stream, between torch's kernels", values, total + 1)
        values = torch.full((count,), float(rank + 1), device="cuda")
        probe.allreduce(values, prescale=0.5)
        expect(f"{count} elements, prescale", values, total / 2)

    stop, failures = threading.Event(), []
    thread = threading.Thread(target=capture_graphs, args=(stop, failures))
    thread.start()
    try:
        with torch.cuda.stream(side):
            for _ in range(50):
                values = torch.full((1000,), float(rank + 1), device="cuda")
                probe.allreduce(values, side)
                side.synchronize()
    finally:
        stop.set()
        thread.join()
    if failures:
        raise AssertionError(f"a graph that another thread captured: {failures[0]}")
    expect("beside graphs that another thread captures", values, total)
    probe.checked(probe.library.probe_leave())


if __name__ == "__main__":
    main()
