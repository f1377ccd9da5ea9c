#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: mpirun -np 2 tensorflow_allreduce.py

Measures the median time of allreduce through TensorFlow, in a tf.function: of one tensor of 4 bytes to 64 MiB, and of the
gradients of ResNet-50 (161 tensors, 102 MB), as separate named reductions and as one grouped call. Rank 0 prints a line
for each. FARANDOLE_TENSORFLOW_WINDOWS=off measures without zero copy.
"""
import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf  # noqa: E402

import farandole.tensorflow as fd  # noqa: E402
from call_times import median_seconds  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from resnet50 import resnet50_gradient_sizes  # noqa: E402

SIZES = ((4, 1000), (16384, 500), (1 << 20, 100), (8 << 20, 40), (64 << 20, 12))  # bytes, samples


def report(what, seconds):
    if fd.rank() == 0:
        print(f"{what}\t{seconds * 1e6:.1f} us", flush=True)


def separate(tensors, name):
    return tf.function(lambda: [fd.allreduce(t, op=fd.Sum, name=f"{name}_{i}") for i, t in enumerate(tensors)])


def grouped(tensors, name):
    return tf.function(lambda: fd.grouped_allreduce(tensors, op=fd.Sum, name=name))


def main():
    fd.init()
    one = tf.ones([1])
    report("a function that adds", median_seconds(tf.function(lambda: one + one), 1000))
    for size, samples in SIZES:
        report(f"{size} B", median_seconds(separate([tf.ones([size // 4])], f"s{size}"), samples))
    gradients = [tf.ones([count]) for count in resnet50_gradient_sizes()]
    report("ResNet-50, separate", median_seconds(separate(gradients, "separate"), 12))
    report("ResNet-50, grouped", median_seconds(grouped(gradients, "grouped"), 12))
    fd.shutdown()


if __name__ == "__main__":
    main()
