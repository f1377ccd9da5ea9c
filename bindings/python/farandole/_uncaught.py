# SPDX-License-Identifier: Apache-2.0
"""Texts about exceptions that end a rank: for standard error, and for the other ranks."""

import os
import re
import textwrap
import traceback
from types import TracebackType
from typing import List, Optional, Tuple

from . import errors

# Beginning of TensorFlow's message if an op of a function fails.
_GRAPH_ERROR = "Graph execution error:"
_FRAME = re.compile(r'^ *File "(.*)", line (\d+)', re.MULTILINE)
_IN_USER_CODE = ": in user code:"
_OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep
# Parts of paths of files that are not the program's.
_LIBRARIES = (
    f"{os.sep}site-packages{os.sep}",
    f"{os.sep}dist-packages{os.sep}",
    os.path.dirname(os.path.abspath(os.__file__)) + os.sep,
    "__autograph_generated_file",
    "<",
)
_MAX_REPEATED = 100  # characters of an error that rank 0 prints in full


def described(kind: type, value: BaseException, trace: Optional[TracebackType]) -> str:
    """Describes an exception in words, with the file and line of the program."""
    text, frames = _cause(kind, value)
    frames = [(frame.filename, frame.lineno or 0) for frame in traceback.extract_tb(trace)] + frames
    # Prefer the last frame of the program to frames of this package or of a library.
    outside = [frame for frame in frames if not frame[0].startswith(_OWN)]
    written = [frame for frame in outside if _is_of_program(frame[0])]
    for name, line in (written or outside)[-1:]:
        # The text of such an error may come from another rank, and name a place in that rank's program.
        text += f"; raised at {name}:{line}" if isinstance(value, errors.Error) else f" ({name}:{line})"
    return text


def report(kind: type, value: BaseException, trace: Optional[TracebackType], rank: int) -> Optional[str]:
    """The lines that replace the traceback of an error of this package: the text, which says what to do, and the
    program's frames. A Mismatch, which all ranks raise, is one line on ranks other than 0.

    None if the whole traceback is needed: for other exceptions, for an error with a cause, with FARANDOLE_LOG=debug.
    """
    has_context = value.__cause__ is not None or (value.__context__ is not None and not value.__suppress_context__)
    is_explained = isinstance(value, errors.Error) and not isinstance(value, errors.InternalError) and not has_context
    if not is_explained or os.environ.get("FARANDOLE_LOG") == "debug":
        return None
    frames = [frame for frame in traceback.extract_tb(trace) if _is_of_program(frame.filename)]
    text, _ = _cause(kind, value)
    if not frames:
        return None
    if rank != 0 and isinstance(value, errors.Mismatch):
        text = textwrap.shorten(text, _MAX_REPEATED, placeholder=" …")
        return f"rank {rank}: {text} ({frames[-1].filename}:{frames[-1].lineno})\n"
    listed = traceback.format_list([(frame.filename, frame.lineno, frame.name, frame.line) for frame in frames])
    return f"rank {rank}: {text}\n{''.join(listed)}"


def _is_of_program(filename: str) -> bool:
    return not filename.startswith(_OWN) and not any(part in filename for part in _LIBRARIES)


def _cause(kind: type, value: BaseException) -> Tuple[str, List[Tuple[str, int]]]:
    """(The error's text, the frames that the text itself contains)."""
    text = "".join(traceback.format_exception_only(kind, value)).strip()
    if f": {_GRAPH_ERROR}" in text:
        return f"{kind.__name__}: {_cause_in_graph(text)}", _frames_in(text)
    if _IN_USER_CODE in text:  # AutoGraph appends the traceback of the converted program
        return _cause_in_user_code(text), _frames_in(text)
    return text, []


def _frames_in(text: str) -> List[Tuple[str, int]]:
    return [(name, int(line)) for name, line in _FRAME.findall(text)]


def _cause_in_user_code(text: str) -> str:
    """The error, with all of its lines, which AutoGraph writes below the lines of code."""
    last = list(_FRAME.finditer(text))[-1:]
    below = text[last[0].end() :].split("\n\n", 1) if last else []
    return textwrap.dedent(below[1]).strip() if len(below) == 2 and below[1].strip() else text


def _cause_in_graph(text: str) -> str:
    """The message of an op, which TensorFlow writes between the graph's traceback and the name of the op."""
    lines = text.split("\n\t [[", 1)[0].splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), text)
