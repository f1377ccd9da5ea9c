"""usage: run_example.py EXAMPLE.py ARGUMENT…

Runs an example that trains on Fashion-MNIST as a test: skipped where TensorFlow or the data is missing.
"""

import os
import runpy
import sys

import support

support.need("numpy", "tensorflow", "keras")
if not os.path.isdir("/usr/share/datasets/fashion-mnist"):
    print("skipped: there is no /usr/share/datasets/fashion-mnist")
    sys.exit(support.SKIPPED)
sys.argv = sys.argv[1:]
sys.path.insert(0, os.path.dirname(sys.argv[0]))  # as for a program that is run by itself
runpy.run_path(sys.argv[0], run_name="__main__")
