# SPDX-License-Identifier: Apache-2.0
"""Starts a program as the ranks of a job, with horovodrun's options:

python -m farandole.run -np 2 [-H host1:1,host2:1] [options] python train.py
python -m farandole.run --help

From Python, `farandole.run(function, …)` runs a function on all ranks.
"""

import json
import os
import shlex
import sys
import types
from typing import Any, List

from . import _mpirun, _run_function, _run_options, errors
from ._built import info


def main(arguments: List[str]) -> None:
    """Becomes mpirun, so that its status, its signals and its output are those of the job."""
    options, program, shows_what_is_built = _run_options.parse(arguments)
    if shows_what_is_built:
        print(json.dumps(info(), indent=2, default=str))
        return
    try:
        environment = _mpirun.job_environment(options, os.environ)
        launcher = _mpirun.find_launcher(environment)
        command = _mpirun.command_line(launcher, options, program, list(environment))
    except errors.Error as error:
        sys.exit(f"farandole.run: {error}")
    if options.verbose:
        print(shlex.join(command), file=sys.stderr, flush=True)
    os.execvpe(command[0], command, environment)


class _CallableModule(types.ModuleType):
    """`import farandole.run` puts this module in the place of the function of the same name, which it then calls."""

    def __call__(self, *arguments: Any, **named: Any) -> List[Any]:
        return _run_function.run(*arguments, **named)


if __name__ == "__main__":
    main(sys.argv[1:])
else:
    sys.modules[__name__].__class__ = _CallableModule
