# SPDX-License-Identifier: Apache-2.0
"""Installs farandole-run under the name horovodrun, on request only, for scripts that call horovodrun."""

import importlib.util
import os
import re
import sys
import sysconfig
from typing import List, Sequence

from .. import errors

NAME = "horovodrun"
_MARK = "# Made by farandole-run --as-horovod."
_PYTHON = re.compile(r"python(\d+(\.\d+)?)?")
# Python's options before the script: options in one word, and options whose value is the next word.
_FLAG = re.compile(r"-[bBdEiIOPqRsSuvVx]+|-[WX].+")
_WITH_WORD = ("-W", "-X")


def install(directory: str = "") -> str:
    """Writes horovodrun beside farandole-run, or into `directory`. Returns a message that says where, and how to undo
    it.

    Raises InvalidArgument if there is another horovodrun, Unsupported if the Python package is not installed, OSError if
    the file cannot be written.
    """
    if importlib.util.find_spec("farandole.as_horovod") is None:
        raise errors.Unsupported("this farandole-run comes without the Python package; install that (pip install .) first")
    path = os.path.join(directory or sysconfig.get_path("scripts"), NAME)
    if os.path.lexists(path) and not _is_ours(path):
        raise errors.InvalidArgument(
            f"{path} is there already and is not Farandole's; uninstall Horovod (pip uninstall horovod) or remove the file"
        )
    # Replaces the file rather than writing into it: the old file may be a link, or running.
    fresh = f"{path}.{os.getpid()}"
    with open(fresh, "w", encoding="utf-8") as file:
        file.write(f"#!{sys.executable}\n{_MARK}\nfrom farandole.run import horovodrun\n\nhorovodrun()\n")
        os.fchmod(file.fileno(), 0o755)
    os.replace(fresh, path)
    return f"{path} is farandole-run from now on; remove the file to undo that"


def _is_ours(path: str) -> bool:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return _MARK in file.read(4096)
    except OSError:
        return False


def is_python(program: Sequence[str]) -> bool:
    """True if the program is started by a Python interpreter."""
    return bool(program) and _PYTHON.fullmatch(os.path.basename(program[0])) is not None


def wrapped(program: Sequence[str]) -> List[str]:
    """Inserts `-m farandole.as_horovod` into `python train.py …`, after Python's options, so that `import horovod`
    finds Farandole. Returns any other program unchanged."""
    words = list(program)
    if not is_python(words):
        return words
    at = 1
    while at < len(words) and _FLAG.fullmatch(words[at]) or words[at : at + 1] and words[at] in _WITH_WORD:
        at += 2 if words[at] in _WITH_WORD else 1
    starts_script = at < len(words) and (words[at] == "-m" or not words[at].startswith("-"))
    return [*words[:at], "-m", "farandole.as_horovod", *words[at:]] if starts_script else words
