# SPDX-License-Identifier: Apache-2.0
"""Hides frames from the tracebacks of graph ops. TensorFlow stores with each op the
stack that created the op, and shows the last frames if the op fails: without this
module, frames of this package and of the launcher would cover the program's."""

import contextlib
import os
import runpy
import sys
from typing import Any, FrozenSet

try:
    from tensorflow.python.util.tf_stack import StackTraceFilter
except ImportError:  # a private name of TensorFlow; without it all frames are shown
    StackTraceFilter = None

_PACKAGE = __name__.partition(".")[0]
_STARTER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "as_horovod.py")
_OF_GENERATED_CODE = "<string>"  # TensorFlow's functions that add the ops, and programs of `python -c`
_STARTERS = frozenset([_STARTER, runpy.__file__, runpy.run_path.__code__.co_filename])


def hidden() -> Any:
    """A context in which ops are added to graphs without the frames of this package."""
    return contextlib.nullcontext() if StackTraceFilter is None else _Hidden()


def _own_files() -> FrozenSet[str]:
    """Files of this package's frames in the current stack. Found by module name, because AutoGraph compiles functions
    of this package into files of its own."""
    files = {*_STARTERS, _OF_GENERATED_CODE}
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code.co_filename == _OF_GENERATED_CODE:
            files.discard(_OF_GENERATED_CODE)
        if str(frame.f_globals.get("__name__")).partition(".")[0] == _PACKAGE:
            files.add(frame.f_code.co_filename)
        frame = frame.f_back
    return frozenset(files)


if StackTraceFilter is not None:

    class _Hidden(StackTraceFilter):
        def get_filtered_filenames(self) -> FrozenSet[str]:
            return _own_files() | self.parent.get_filtered_filenames()
