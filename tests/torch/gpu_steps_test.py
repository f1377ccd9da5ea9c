#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: gpu_steps_test.py LIBRARIES [library|cpu|double]...

Runs the programs that tests/gpu/steps.py runs on a GPU, tests/gpu/torch_backend.py and torch_backend_figures.py, where there is
no GPU: on tensors of the processor, and on those of the double of libcuda, as device_test.py does, with streams and a graph.

LIBRARIES: the directory that contains libfake_cuda.so and libfake_nccl.so.
"""

import contextlib
import ctypes
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Tuple

import torch
import torch.multiprocessing

SOURCES = Path(__file__).resolve().parents[2]
sys.path += [str(SOURCES / "tests" / "gpu"), str(SOURCES / "tests" / "torch")]
import device_test  # noqa: E402
import torch_backend  # noqa: E402

RANKS = 2
STREAMS = (2, 3)  # for the cases; process groups get stream 1
GLOBAL_MODE = 0


class OnDouble(torch_backend.Cpu):
    """Tensors on the double, whose device 0 the ranks share as tests/support/own_host.sh makes them share a GPU. A stream is the
    number of a stream of double_device.cpp."""

    backend = "cpu:farandole,privateuseone:farandole"
    groups = ("collectives", "streams", "graph")

    def __init__(self, library: str):
        self.device = torch.device("privateuseone", 0)
        self._library = library
        self._current = 0
        self._made = 0

    def start(self, rank: int) -> None:
        super().start(rank)
        os.environ["FARANDOLE_HOST_ID"] = os.environ["NCCL_HOSTID"] = f"host-{rank}"
        os.environ["FARANDOLE_DEVICE"] = "0"
        torch.ops.load_library(self._library)
        torch._register_device_module("privateuseone", device_test.DeviceModule(self.device.index))
        device_test.farandole.torch._backend.accept_extension_devices()
        self._double = device_test.Double(self._library)
        self._driver = ctypes.CDLL(self._library)  # its symbols include those of the double
        self._driver.double_device_current_stream.restype = ctypes.c_void_p

    def _use(self, stream: int) -> None:
        self._driver.double_device_set_stream(self.device.index, stream)
        self._current = stream

    def _handle(self) -> ctypes.c_void_p:
        """The current stream. Makes the device current in this thread."""
        return ctypes.c_void_p(self._driver.double_device_current_stream(self.device.index))

    def _call(self, function: str, *arguments: object) -> None:
        result = getattr(self._driver, function)(*arguments)
        assert result == 0, f"{function} returned {result}: {self._double.misuses()}"

    def synchronize(self) -> None:
        for stream in (0, 1, *STREAMS):
            with self.using(stream):
                self._call("cuStreamSynchronize", self._handle())

    def stream(self) -> int:
        self._made += 1
        return STREAMS[self._made % len(STREAMS)]

    @contextlib.contextmanager
    def using(self, stream: int) -> Iterator[None]:
        before = self._current
        self._use(stream)
        try:
            yield
        finally:
            self._use(before)

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        self._double.stick_current_stream()
        try:
            yield
        finally:
            self._double.restore()

    def capture(self, stream: int, body: Callable[[], None]) -> Tuple[Callable[[], None], Callable[[], None]]:
        graph, executable = ctypes.c_void_p(), ctypes.c_void_p()
        with self.using(stream):
            self._call("cuStreamBeginCapture_v2", self._handle(), GLOBAL_MODE)
            body()
            self._call("cuStreamEndCapture", self._handle(), ctypes.byref(graph))
            self._call("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, ctypes.c_ulonglong(0))

        def replay() -> None:
            self._call("cuGraphLaunch", executable, self._handle())

        def destroy() -> None:
            self._call("cuGraphExecDestroy", executable)
            self._call("cuGraphDestroy", graph)

        return replay, destroy

    def check_at_end(self) -> None:
        misuses = self._double.misuses()
        assert not misuses, misuses


def run_rank_on_double(rank: int, library: str, store: str) -> None:
    place = OnDouble(library)
    torch_backend.run_groups(place, place.groups, rank, RANKS, f"file://{store}")


def run_on_double(libraries: Path) -> None:
    os.environ["FARANDOLE_CUDA_LIBRARY"] = str(libraries / "libfake_cuda.so")
    os.environ["FARANDOLE_NCCL_LIBRARY"] = str(libraries / "libfake_nccl.so")
    os.environ.setdefault("FAKE_DEVICE_DELAY_US", "500")  # streams are late, so missing orders show
    with tempfile.TemporaryDirectory() as directory:
        library = Path(directory, "libdouble_device.so")
        device_test.build(SOURCES, libraries, library)
        torch.multiprocessing.spawn(run_rank_on_double, args=(str(library), os.path.join(directory, "store")), nprocs=RANKS)


def build_library(_libraries: Path) -> None:
    """The step that builds the backend library: it is there, or there is no compiler."""
    program = [sys.executable, str(SOURCES / "tests" / "gpu" / "torch_library.py")]
    subprocess.run(program, check=True)
    with tempfile.TemporaryDirectory() as empty:
        environment = {**os.environ, "PATH": empty, "XDG_CACHE_HOME": empty, "CXX": ""}
        done = subprocess.run(program, env=environment, stdout=subprocess.PIPE, text=True)
    reason = done.stdout.strip().splitlines()[-1]
    assert done.returncode == 77 and "there is no C++ compiler" in reason, done


def run_on_cpu(_libraries: Path) -> None:
    job = [str(SOURCES / "tests" / "support" / "local_job.sh"), "-n", str(RANKS), sys.executable]
    programs = SOURCES / "tests" / "gpu"
    groups = list(torch_backend.torch_backend_cases.CASES)
    subprocess.run([*job, str(programs / "torch_backend.py"), "--device", "cpu", *groups], check=True)
    done = subprocess.run([*job, str(programs / "torch_backend_figures.py"), "1", "--device", "cpu"], check=True,
                          stdout=subprocess.PIPE, text=True)
    figures = json.loads(done.stdout)
    for name in ("farandole", "gloo"):
        for size in ("4 B", "64 KiB", "1 MiB", "64 MiB"):
            assert figures[f"{name}, {size}: host time of a call, us"] > 0, figures


PARTS: Dict[str, Callable[[Path], None]] = {"library": build_library, "cpu": run_on_cpu, "double": run_on_double}


def main(arguments: List[str]) -> int:
    libraries = Path(arguments[0]).resolve()
    for name in arguments[1:] or PARTS:
        PARTS[name](libraries)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
