# SPDX-License-Identifier: Apache-2.0
"""A rank of `farandole.run`: reads the call, executes it, and writes the outcome.

The call and the outcomes are pickles in files of a directory that `run` has created. Reading a pickle runs code, so the
directory must belong to this user and be closed to all others.
"""

import os
import pickle
import stat
import sys
import traceback
from dataclasses import dataclass
from typing import Any, Callable, List, Mapping, Optional, Sequence

from .. import _code_pickle, _frames, errors
from .._horovod import modules
from . import _launchers

_CALL = "call"


@dataclass
class Outcome:
    result: bytes = b""  # pickled
    error: str = ""
    trace: str = ""
    is_consequence: bool = False  # caused by another rank's error


def write_call(directory: str, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Writes the call for the ranks. Raises Unsupported without cloudpickle, InvalidArgument if pickling fails."""
    try:
        pickled = _code_pickle.dumps((func, tuple(args), dict(kwargs)))
    except ImportError as error:
        raise errors.Unsupported("farandole.run sends functions with cloudpickle: pip install cloudpickle") from error
    except Exception as error:
        raise errors.InvalidArgument(f"the function or its arguments cannot be pickled for the ranks: {error}") from error
    call = {"path": sys.path, "as_horovod": modules.is_installed(), "call": pickled}
    _write(os.path.join(directory, _CALL), pickle.dumps(call))


def read_outcome(directory: str, rank: int) -> Optional[Outcome]:
    """The outcome of a rank; None if the rank has not written an outcome."""
    try:
        with open(os.path.join(directory, str(rank)), "rb") as file:
            return pickle.load(file)
    except FileNotFoundError:
        return None


def _write(name: str, data: bytes) -> None:
    with open(name + ".new", "wb") as file:
        file.write(data)
    os.replace(name + ".new", name)


def _check_private(directory: str) -> None:
    try:
        found = os.stat(directory)
    except FileNotFoundError:
        sys.exit(
            f"farandole.run: {directory} is not on this host; with other hosts, start from a directory that all share"
        )
    if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        sys.exit(f"farandole.run: {directory} must belong to this user and be closed to all others (mode 0700)")


def program(executable: str, directory: str) -> List[str]:
    """The command line of a rank."""
    return [executable, "-c", f"from {__name__} import main; main()", directory]


def main() -> None:
    directory = sys.argv.pop(1)
    _frames.hide_starters()
    rank = _launchers.own_rank(os.environ)
    if rank is None:
        sys.exit("this module is started by farandole.run, with mpirun")
    _check_private(directory)
    with open(os.path.join(directory, _CALL), "rb") as file:
        call = pickle.load(file)
    sys.path[:] = call["path"]
    if call["as_horovod"]:
        modules.install_as_horovod()
    try:
        func, args, kwargs = pickle.loads(call["call"])
        outcome = Outcome(result=_code_pickle.dumps(func(*args, **kwargs)))
    except BaseException as error:
        trace = _frames.without_starters(error.__traceback__)
        outcome = Outcome(
            error="".join(traceback.format_exception_only(type(error), error)).strip(),
            trace="".join(traceback.format_exception(type(error), error, trace)),
            is_consequence=isinstance(error, (errors.HorovodInternalError, KeyboardInterrupt)),
        )
        _write(os.path.join(directory, str(rank)), pickle.dumps(outcome))
        raise
    _write(os.path.join(directory, str(rank)), pickle.dumps(outcome))

