# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of several files in one job, so that its ranks import TensorFlow and Keras once.

    mpirun -np 2 python several.py keras_logs_test keras_metrics_test
"""

import sys

import support

if __name__ == "__main__":
    support.main(modules=sys.argv[1:])
