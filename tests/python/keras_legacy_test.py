# SPDX-License-Identifier: Apache-2.0
"""Runs keras_horovod_test.py on tf-keras, which TensorFlow uses if the variable below is set before the import."""

import os
import runpy
import sys
from pathlib import Path

import support

support.need("numpy", "tensorflow", "tf_keras")

os.environ["TF_USE_LEGACY_KERAS"] = "1"
program = Path(__file__).with_name("keras_horovod_test.py")
sys.argv[0] = str(program)
runpy.run_path(str(program), run_name="__main__")
