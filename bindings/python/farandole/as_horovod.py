# SPDX-License-Identifier: Apache-2.0
"""Runs a program that was written for Horovod, unchanged:

mpirun -np 2 python -m farandole.as_horovod script.py arguments
mpirun -np 2 python -m farandole.as_horovod -m package.module arguments
"""

import os
import runpy
import sys
from typing import List, NoReturn

from . import _built, _frames, _quiet
from ._horovod import names
from ._horovod.modules import install_as_horovod

_USAGE = "usage: python -m farandole.as_horovod (SCRIPT | -m MODULE) [ARGUMENT …]"
_HELP = f"""{_USAGE}

Runs a program that was written for Horovod, unchanged: its imports of horovod get Farandole.

  -m MODULE   run a module instead of a file
  -h, --help  print this text and leave
  --version   print the version and leave

example:
  mpirun -np 2 python -m farandole.as_horovod train.py --epochs 2"""


def _refuse(text: str) -> NoReturn:
    """Ends with status 2. Writes once, so that the texts of several ranks do not mix."""
    sys.stderr.write(f"farandole.as_horovod: {text}\n")
    sys.exit(2)


def main(arguments: List[str]) -> None:
    if arguments[:1] in (["-h"], ["--help"]):
        print(_HELP)
        return
    if arguments[:1] == ["--version"]:
        print(_built.version_line("farandole.as_horovod"))
        return
    as_module = bool(arguments) and arguments[0] == "-m"
    program = arguments[1:] if as_module else arguments
    if not program or program[0].startswith("-"):
        _refuse(f"the program is missing\n{_USAGE}")
    if not as_module and not os.path.exists(program[0]):
        _refuse(f"there is no program {program[0]}")
    _quiet.before_import()
    install_as_horovod()
    _frames.hide_starters()
    sys.argv = program
    if as_module:
        sys.path.insert(0, os.getcwd())
        # Programs of Horovod, such as compute_worker, correspond to modules of Farandole.
        runpy.run_module(names.MODULES.get(program[0]) or program[0], run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, os.path.dirname(os.path.abspath(program[0])))
        runpy.run_path(program[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
