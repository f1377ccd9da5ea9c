#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: mpirun -np 2 numpy_allreduce.py

Measures the median time of allreduce of numpy arrays through the engine: of one named tensor, for which the caller waits,
and of 32 tensors of 4 KiB in one group. Rank 0 prints a line for each.
"""
import numpy as np

import farandole
import farandole.numpy as fd

from call_times import median_seconds


def main():
    farandole.init()
    many = [np.ones(1024, np.float32) for _ in range(32)]
    cases = [(f"{4 * count} B", samples, [np.ones(count, np.float32)]) for count, samples in ((1, 3000), (1 << 18, 300))]
    cases.append(("32 tensors of 4096 B", 500, many))
    for what, samples, arrays in cases:
        seconds = median_seconds(lambda: fd.grouped_allreduce(arrays, op=fd.Sum, name=what), samples)
        if farandole.rank() == 0:
            print(f"{what}\t{seconds * 1e6:.1f} us", flush=True)
    farandole.shutdown()


if __name__ == "__main__":
    main()
