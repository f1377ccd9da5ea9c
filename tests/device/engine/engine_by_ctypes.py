# SPDX-License-Identifier: Apache-2.0
"""usage, as each rank of a job: engine_by_ctypes.py LIBRARY_DIRECTORY

Makes the calls of tests/gpu/torch_engine.py, without torch: on memory and streams of the driver that FARANDOLE_CUDA_LIBRARY
names.
"""
import array
import ctypes
import os
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "gpu"))
from engine_client import Engine, interface  # noqa: E402

COUNTS = [1, 64, 1000, 70_000]


class Driver:
    """A stream and memory of this rank's device."""

    def __init__(self, ordinal):
        self.library = ctypes.CDLL(os.environ["FARANDOLE_CUDA_LIBRARY"])
        self("cuInit", ctypes.c_uint(0))
        self.context = ctypes.c_void_p()
        self("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), ctypes.c_int(ordinal))
        self("cuCtxSetCurrent", self.context)
        self.stream = ctypes.c_void_p()
        self("cuStreamCreate", ctypes.byref(self.stream), ctypes.c_uint(1))

    def __call__(self, function, *arguments):
        status = getattr(self.library, function)(*arguments)
        if status != 0:
            raise RuntimeError(f"{function} returned {status}")

    def allocate(self, size):
        pointer = ctypes.c_uint64()
        self("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        return pointer.value

    def copy_in(self, pointer, values):
        self("cuMemcpyAsync", ctypes.c_uint64(pointer), ctypes.c_uint64(values.buffer_info()[0]),
             ctypes.c_size_t(4 * len(values)), self.stream)

    def copy_out(self, values, pointer):
        self("cuMemcpyAsync", ctypes.c_uint64(values.buffer_info()[0]), ctypes.c_uint64(pointer),
             ctypes.c_size_t(4 * len(values)), self.stream)
        self("cuStreamSynchronize", self.stream)


def main():
    engine = Engine(sys.argv[1])
    driver = Driver(engine.rank)
    pointers = [driver.allocate(4 * count) for count in COUNTS]
    for step in range(3):
        inputs = [array.array("f", [float(engine.rank + 1 + i % 7) for i in range(count)]) for count in COUNTS]
        order = list(range(len(COUNTS)))
        random.Random(engine.rank + step).shuffle(order)
        pending = []
        for i in order:
            driver.copy_in(pointers[i], inputs[i])
            pending.append(engine.allreduce(f"tensor {i}", pointers[i], COUNTS[i], driver.stream.value, engine.rank))
        engine.wait(pending)
        for i, count in enumerate(COUNTS):
            result = array.array("f", bytes(4 * count))
            driver.copy_out(result, pointers[i])
            expected = [float(sum(rank + 1 + k % 7 for rank in range(engine.size))) for k in range(count)]
            assert result.tolist() == expected, f"step {step}, tensor {i}: {result[:4]} instead of {expected[:4]}"
    assert engine.counters()["device_buckets"] > 0
    refused = engine.allreduce("of another type", pointers[0], 1, driver.stream.value, engine.rank,
                               dtype=interface.Dtype.F32 if engine.rank == 0 else interface.Dtype.I32)
    try:
        engine.wait([refused])
        raise AssertionError("ranks that disagree got no error")
    except RuntimeError as error:
        assert "no data was touched" in str(error), error
    engine.leave()
    print(f"rank {engine.rank}: right")


if __name__ == "__main__":
    main()
