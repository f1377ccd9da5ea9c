# SPDX-License-Identifier: Apache-2.0
"""Limits the log of TensorFlow's C++ code to errors. By default every rank would print lines about oneDNN, instructions
of the processor and missing GPUs before the first line of the program."""

import os
import sys
from typing import Dict, Mapping

_VARIABLE = "TF_CPP_MIN_LOG_LEVEL"
_ERRORS = "2"  # warnings only repeat exceptions, and report the end of each data set


def settings(environment: Mapping[str, str]) -> Dict[str, str]:
    """Variables for a process that will import TensorFlow; none if `environment` has a level already."""
    return {} if _VARIABLE in environment else {_VARIABLE: _ERRORS}


def before_import() -> None:
    """Called before this package, or a program that it starts, imports TensorFlow. No-op if TensorFlow is imported."""
    if "tensorflow" not in sys.modules:
        os.environ.update(settings(os.environ))
