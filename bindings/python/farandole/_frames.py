# SPDX-License-Identifier: Apache-2.0
"""Tracebacks that begin with the program's own lines, where this package has started the program."""

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
    """`trace` without the frames up to the one of this package that starts the program, and those between it and the
    program. All of it if it has no such frame, or no other after it."""
    first = trace
    while first is not None and not _is_own(first):
        first = first.tb_next
    while first is not None and _is_a_starter(first):
        first = first.tb_next
    return first if first is not None else trace


def hide_starters() -> None:
    """From now on an uncaught exception is printed without them. Calling it again does nothing."""
    previous = sys.excepthook
    if getattr(previous, "hides_starters", False):
        return

    def hook(kind, value, trace):
        trace = without_starters(trace)
        if value is not None:
            value.__traceback__ = trace  # Python prints this one
        previous(kind, value, trace)

    hook.hides_starters = True
    sys.excepthook = hook
