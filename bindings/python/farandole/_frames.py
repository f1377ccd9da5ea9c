# SPDX-License-Identifier: Apache-2.0
"""Hides frames of this package from tracebacks of programs that the package has started."""

import os
import sys
from types import TracebackType
from typing import Optional

_OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep


def _is_own(trace: TracebackType) -> bool:
    return trace.tb_frame.f_code.co_filename.startswith(_OWN)


def _is_a_starter(trace: TracebackType) -> bool:
    name = trace.tb_frame.f_code.co_filename
    return _is_own(trace) or name.startswith("<frozen") or os.path.basename(name) == "runpy.py"


def without_starters(trace: Optional[TracebackType]) -> Optional[TracebackType]:
    """`trace` without its first frames, in which this package and runpy start the program. Returns the whole trace if
    no frame would remain, or if no frame belongs to this package."""
    first = trace
    while first is not None and not _is_own(first):
        first = first.tb_next
    while first is not None and _is_a_starter(first):
        first = first.tb_next
    return first if first is not None else trace


def hide_starters() -> None:
    """From now on, tracebacks of uncaught exceptions lack the frames that `without_starters` removes. Idempotent."""
    previous = sys.excepthook
    if getattr(previous, "hides_starters", False):
        return

    def hook(kind, value, trace):
        trace = without_starters(trace)
        if value is not None:
            value.__traceback__ = trace  # Python prints the traceback of the value
        previous(kind, value, trace)

    hook.hides_starters = True
    sys.excepthook = hook
