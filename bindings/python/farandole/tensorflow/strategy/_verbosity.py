# SPDX-License-Identifier: Apache-2.0
"""Patch of Keras' fit, evaluate and predict: by default, only rank 0 shows progress.

Keras shows a moving bar for verbose="auto", also where the output is a file or a pipe. A log then has one line per
training step, with control characters.
"""

import inspect
import os
import sys
from typing import Any, Callable

from ... import _lifecycle
from ._extended import is_farandole_strategy

_BAR, _LINE_PER_EPOCH, _SILENT = 1, 2, 0  # Keras' values of `verbose`


def show_on_first_rank(base: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
    """Replaces verbose="auto", which is the default. A number that the program passes applies on every rank."""
    if _lifecycle.size() == 1 or not is_farandole_strategy(getattr(self, "distribute_strategy", None)):
        return base(self, *args, **kwargs)
    bound = inspect.signature(base).bind(self, *args, **kwargs)
    if bound.arguments.get("verbose", "auto") == "auto":
        bound.arguments["verbose"] = _automatic()
    return base(*bound.args, **bound.kwargs)


def _automatic() -> int:
    """A bar on a terminal, otherwise a line per epoch; nothing on ranks other than 0."""
    if _lifecycle.rank() != 0:
        return _SILENT
    return _BAR if _is_on_terminal() else _LINE_PER_EPOCH


def _is_on_terminal() -> bool:
    """True if standard output goes to a terminal. Under Open MPI every rank has a pseudo-terminal of its own, wherever
    the launcher sends the rank's output, so the launcher's standard output is tested instead."""
    if not (hasattr(sys.stdout, "isatty") and sys.stdout.isatty()):
        return False
    if "OMPI_COMM_WORLD_RANK" not in os.environ:
        return True
    try:
        output = os.readlink(f"/proc/{os.getppid()}/fd/1")
    except OSError:  # the launcher is another user's, or has ended
        return False
    return output.startswith(("/dev/pts/", "/dev/tty"))
