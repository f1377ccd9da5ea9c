# SPDX-License-Identifier: Apache-2.0
"""Helpers for the scripts that measure the times of calls."""

import time


def median_seconds(function, samples):
    """Median time of a call of `function`, after some that are not counted."""
    for _ in range(10):
        function()
    times = []
    for _ in range(samples):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return sorted(times)[samples // 2]
