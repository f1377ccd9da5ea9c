# SPDX-License-Identifier: Apache-2.0
"""Generates the manual page of farandole-run and its completion for bash from the parser of the options."""

import argparse
from typing import Dict, Iterator, List, Tuple

from .. import _built
from . import _options

_NAME = "farandole-run"
_FILES = ("--hostfile", "--config-file", "--ssh-identity-file", "--timeline-filename", "--autotune-log-file")
_DIRECTORIES = ("--output-filename",)


def _groups() -> Iterator[Tuple[str, List[argparse.Action]]]:
    """(Title, options in the help) of each group."""
    for group in _options.make_parser(_NAME)._action_groups:
        shown = [each for each in group._group_actions if each.option_strings and each.help != argparse.SUPPRESS]
        if shown:
            yield group.title or "", shown


def _value_of(action: argparse.Action) -> str:
    """Name of an option's value in the help; empty for options without a value."""
    if action.nargs == 0:
        return ""
    text = "|".join(action.choices) if action.choices else str(action.metavar)
    return " ".join([text] * (action.nargs if isinstance(action.nargs, int) else 1))


def _escaped(text: str) -> str:
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("…", "...")
    return "\\&" + text if text.startswith((".", "'")) else text


def _option_lines(action: argparse.Action) -> Iterator[str]:
    value = _value_of(action)
    names = ", ".join(f"\\fB{_escaped(name)}\\fR" for name in action.option_strings)
    yield ".TP"
    yield f"{names} \\fI{_escaped(value)}\\fR" if value else names
    yield _escaped((action.help or "") % {"prog": _NAME})


def manual_page() -> str:
    version = _built.version_line(_NAME).rsplit(" ", 1)[1]
    lines = [
        f'.\\" Made by {_NAME} --man-page from the table of its options.',
        f'.TH FARANDOLE\\-RUN 1 "" "Farandole {version}" "User Commands"',
        ".nh", ".ad l", ".SH NAME", "farandole\\-run \\- start a program as the ranks of a job",
        ".SH SYNOPSIS",
        "\\fBfarandole\\-run\\fR \\fB\\-np\\fR \\fIRANKS\\fR [\\fB\\-H\\fR \\fIHOST\\fR:\\fISLOTS\\fR,...] [OPTION]... "
        "\\fIPROGRAM\\fR [\\fIARGUMENT\\fR]...",
        ".SH DESCRIPTION", _escaped(_options.DESCRIPTION), ".PP", _escaped(_options.NOTES), ".SH OPTIONS",
    ]  # fmt: skip
    for title, actions in _groups():
        lines += [f".SS {_escaped(title[:1].upper() + title[1:])}"]
        for action in actions:
            lines += _option_lines(action)
    lines += [".SH EXIT STATUS", "That of the launcher, or:"]
    for status, text in ((1, "the job could not be started"), (2, "wrong usage")):
        lines += [".TP", str(status), text]
    lines += [".SH EXAMPLES"]
    for text, command in _options.EXAMPLES:
        lines += [_escaped(text), ".PP", ".RS 4", ".nf", _escaped(command), ".fi", ".RE", ".PP"]
    lines[-1:] = [".SH SEE ALSO", ".BR mpirun (1),", ".BR mpiexec (1),", ".BR srun (1)"]
    return "\n".join(lines) + "\n"


def bash_completion() -> str:
    """Completes options before the program, and values that are choices or files. After the program, bash's default."""
    values: Dict[str, str] = {}
    names: List[str] = []
    for _, actions in _groups():
        for action in actions:
            long = next(each for each in action.option_strings if each.startswith("--"))
            names += [each for each in action.option_strings if each.startswith("--")]
            if action.nargs != 0:
                kind = "-f" if long in _FILES else "-d" if long in _DIRECTORIES else "''"
                kind = f"-W '{' '.join(action.choices)}'" if action.choices else kind
                values.setdefault(kind, "")
                values[kind] += ("|" if values[kind] else "") + "|".join(action.option_strings)
    cases = "\n".join(f"      {options}) candidates=({kind}) ;;" for kind, options in values.items())
    return _COMPLETION.format(names=" ".join(names), cases=cases.replace("('')", "()"))


_COMPLETION = """\
# shellcheck shell=bash
# Made by farandole-run --bash-completion from the table of its options.
_farandole_run() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}} candidates=()
  # In COMP_WORDS the = of --option=value is a word of its own.
  if [[ $current == = ]]; then
    current=
  elif [[ $previous == = ]]; then
    previous=${{COMP_WORDS[COMP_CWORD - 2]}}
  fi
  candidates=(-c)
  if [[ $current == -* ]]; then
    candidates=(-W '{names}')
  else
    case $previous in
{cases}
    esac
  fi
  COMPREPLY=()
  if ((${{#candidates[@]}} > 0)); then
    mapfile -t COMPREPLY < <(compgen "${{candidates[@]}}" -- "$current")
  fi
  # Outside of a completion there is nothing to set.
  if [[ ${{candidates[0]-}} == -[df] ]]; then compopt -o filenames 2>/dev/null || true; fi
}}
complete -o default -F _farandole_run farandole-run
"""
