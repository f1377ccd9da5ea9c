# SPDX-License-Identifier: Apache-2.0
"""usage: run_example.py [--own-data] EXAMPLE.py ARGUMENT…

Runs an example as a test. Skipped without TensorFlow; without --own-data also skipped without Fashion-MNIST.
"""

import os
import runpy
import sys

import support

support.need("numpy", "tensorflow", "keras")
has_data = sys.argv[1] == "--own-data"
if not has_data and not os.path.isdir("/usr/share/datasets/fashion-mnist"):
    print("skipped: there is no /usr/share/datasets/fashion-mnist")
    sys.exit(support.SKIPPED)
sys.argv = sys.argv[1 + has_data :]
sys.path.insert(0, os.path.dirname(sys.argv[0]))  # as for a program that is run by itself
runpy.run_path(sys.argv[0], run_name="__main__")
