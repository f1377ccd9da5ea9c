# SPDX-License-Identifier: Apache-2.0
"""usage: torch_figures.py BYTES SAMPLES

Measures torch's own kernels at the work of Farandole's kernels: a copy, and the sum of two vectors into a third. Prints JSON.
"""
import json
import sys

import torch


def median_us(function, samples):
    """Time on the device, microseconds."""
    function()
    times = []
    for _ in range(samples):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        function()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3)
    return sorted(times)[samples // 2]


def main():
    size, samples = int(sys.argv[1]), int(sys.argv[2])
    rows = []
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        count = size // torch.finfo(dtype).bits * 8
        left, right, output = (torch.rand(count, device="cuda").to(dtype) for _ in range(3))
        name = str(dtype).rpartition(".")[2]
        if dtype == torch.float32:
            rows.append(("torch copy_", 2 * size, median_us(lambda: output.copy_(left), samples)))
        rows.append((f"torch add, {name}", 3 * size, median_us(lambda: torch.add(left, right, out=output), samples)))
    print(json.dumps({"bytes": size, "torch": torch.__version__,
                      "memory": [{"name": name, "moved_bytes": moved, "p50_us": us} for name, moved, us in rows]}))


if __name__ == "__main__":
    main()
