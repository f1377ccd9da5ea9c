# SPDX-License-Identifier: Apache-2.0
"""Starts a program as the ranks of a job, with horovodrun's options:

farandole-run -np 2 [-H host1:1,host2:1] [options] python train.py
farandole-run --help

`python -m farandole.run` is the same. From Python, `farandole.run(function, …)` runs a function on all ranks.
"""

import os
import sys
import types
from typing import Any, List

from . import _quiet, errors
from ._info import Info, info
from ._horovod import run_script
from .launch import _checks, _commands, _hosts, _launchers, _options, _pages

_NOT_STARTED, _WRONG_USAGE = 1, 2  # exit statuses


def main(arguments: List[str], name: str) -> None:
    """Runs the command line. Replaces this process by the launcher, so that status, signals and output are the job's.

    name: of this program, for messages.
    """
    request = _options.parse(arguments, name)
    if request.action == "man-page":
        print(_pages.manual_page(), end="")
    elif request.action == "bash-completion":
        print(_pages.bash_completion(), end="")
    else:
        try:
            if request.action == "check-build":
                print(_with_launcher(info(), request.options))
            elif request.action == "as-horovod":
                print(run_script.install())
            else:
                _start(request, name)
        except (errors.Error, OSError) as error:
            print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
            sys.exit(_WRONG_USAGE if isinstance(error, errors.InvalidArgument) else _NOT_STARTED)


def _with_launcher(facts: Info, options: _launchers.Options) -> Info:
    """Adds the launcher that would start a job with these options, or why there is none."""
    try:
        facts["launcher"] = _checks.find(options).described()
    except errors.Error as error:
        facts["launcher"] = f"none: {error}"
    return facts


def _start(request: _options.Request, name: str) -> None:
    options, program = request.options, request.program
    launcher = _checks.find(options)
    if options.is_local() and not launcher.knows_hosts(os.environ):
        _checks.check_program(program, name, request.arguments)
    if name == run_script.NAME:
        program = run_script.wrapped(program)
    if run_script.is_python(program):
        options.settings.update(_quiet.settings({**os.environ, **options.settings}))
    command = _commands.make_command(launcher, options, program, os.environ)
    for note in [*request.notes, *command.notes]:
        print(f"{name}: {note}", file=sys.stderr)
    if request.action == "print":
        print(command.text())
        return
    if options.verbose:
        where = f" on {_hosts.text_of(options.hosts)}" if options.hosts else ""
        print(f"{name}: {options.ranks} ranks{where} by {launcher.described()}", file=sys.stderr)
        print(command.text(), file=sys.stderr, flush=True)
    _checks.prepare(launcher, options, os.environ)
    os.execvpe(command.words[0], command.words, {**os.environ, **command.settings})


def farandole_run() -> None:
    """The program farandole-run."""
    main(sys.argv[1:], "farandole-run")


def horovodrun() -> None:
    """The program horovodrun, which `farandole-run --as-horovod` installs."""
    main(sys.argv[1:], run_script.NAME)


class _CallableModule(types.ModuleType):
    """Makes the module callable: `import farandole.run` replaces the attribute `run`, a function, by this module."""

    def __call__(self, *arguments: Any, **named: Any) -> List[Any]:
        # Imported at the first call, because an installation for C++ has only the modules of farandole-run.
        from .launch import _function

        return _function.run(*arguments, **named)


if __name__ == "__main__":
    main(sys.argv[1:], "python -m farandole.run")
else:
    sys.modules[__name__].__class__ = _CallableModule
