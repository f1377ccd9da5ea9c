# SPDX-License-Identifier: Apache-2.0
"""What the torch steps share: the address of torch's store, and Farandole's allreduce on torch's tensors and streams, through
libfarandole_torch_probe.so."""
import ctypes
import os
import zlib


def store_address():
    """The address of torch's store, the same on all ranks of a job and mostly different between jobs."""
    return f"tcp://127.0.0.1:{20_000 + zlib.crc32(os.environ['FARANDOLE_JOB'].encode()) % 10_000}"


class Probe:
    """The job of this process, joined by the constructor."""

    def __init__(self, directory):
        self.library = ctypes.CDLL(f"{directory}/libfarandole_torch_probe.so")
        self.library.probe_error.restype = ctypes.c_char_p
        self.library.probe_allreduce.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_double, ctypes.c_int,
                                                 ctypes.c_char_p]
        self.checked(self.library.probe_join())
        self.rank, self.size = self.library.probe_rank(), self.library.probe_size()

    def checked(self, status):
        if status != 0:
            raise RuntimeError(self.library.probe_error().decode())

    def allreduce(self, tensor, stream=None, prescale=1.0, in_callers_order=False, algorithm=""):
        """Sums in place; blocks if there is no stream."""
        handle = None if stream is None else stream.cuda_stream
        self.checked(self.library.probe_allreduce(tensor.data_ptr(), tensor.numel(), handle, prescale, int(in_callers_order),
                                                  algorithm.encode()))

    def leave(self):
        self.checked(self.library.probe_leave())
