# SPDX-License-Identifier: Apache-2.0
"""`farandole.info` and the program farandole-info: facts about the build, the settings, the packages and the job."""

import argparse
import contextlib
import json
import os
import shutil
import sys
import textwrap
from importlib import metadata
from typing import Any, Dict, List, Mapping, NoReturn, Tuple

from . import _built, _engine, errors

_PACKAGES = ("numpy", "tensorflow", "keras")
_OTHER_DISTRIBUTIONS = {"tensorflow": ("tensorflow-cpu", "tensorflow-intel", "tf-nightly")}
_LABEL_WIDTH = 12
_MIN_TEXT_WIDTH = 40


class Info(Dict[str, Any]):
    """A dictionary of facts that prints as a table."""

    def __str__(self) -> str:
        width = max(shutil.get_terminal_size().columns - _LABEL_WIDTH, _MIN_TEXT_WIDTH)
        return "\n".join(
            textwrap.fill(
                text, width + _LABEL_WIDTH, initial_indent=label.ljust(_LABEL_WIDTH),
                subsequent_indent=" " * _LABEL_WIDTH, break_long_words=False, break_on_hyphens=False,
            )
            for label, text in _rows(self)
        )  # fmt: skip

    __repr__ = __str__


def info() -> Info:
    """Facts about the build, the settings, Python, TensorFlow and, after `init`, the job: a dictionary that prints as a
    table. Local, non-blocking. Raises InvalidArgument for an invalid setting."""
    described = Info(_engine.describe())
    described["python"] = sys.version.split()[0]
    for package in _PACKAGES:
        described[package] = _version_of(package)
    ops = sys.modules.get("farandole.tensorflow._library")
    if ops is not None and hasattr(ops, "describe"):
        described["tensorflow_ops"] = ops.describe()
    return described


def _version_of(package: str) -> Any:
    # Prefer the imported module's version.
    module = sys.modules.get(package)
    if module is not None:
        return getattr(module, "__version__", None)
    for distribution in (package, *_OTHER_DISTRIBUTIONS.get(package, ())):
        with contextlib.suppress(metadata.PackageNotFoundError):
            return metadata.version(distribution)
    return None


def _rows(facts: Mapping[str, Any]) -> List[Tuple[str, str]]:
    """(Label, text) of each line of the table."""
    rows = [
        ("version", facts["version"]),
        ("build", facts["build"]),
        ("library", facts["library"]),
        ("plug-ins", ", ".join(facts["plugins"]) or "none"),
        ("python", f"{facts['python']} ({sys.executable})"),
        *((package, facts[package] or "not installed") for package in _PACKAGES),
    ]
    if "launcher" in facts:
        rows.append(("launcher", facts["launcher"]))
    ops = facts.get("tensorflow_ops")
    if ops is not None:
        memory = "windows, which all ranks of the host have mapped" if ops["windows"] else "ordinary memory"
        rows.append(("ops", f"{ops['path'] or 'not loaded'}; large tensors are in {memory}"))
    rows.append(("job", _job(facts)))
    given = [f"{name}={value}" for name, value in sorted(facts["settings"].items()) if name in os.environ]
    rows.append(("settings", ", ".join(given) or "all have their defaults"))
    return rows


def _job(facts: Mapping[str, Any]) -> str:
    if not facts["initialized"]:
        return "none; farandole.init() joins one"
    hosts = f"{facts['hosts']} host{'s' if facts['hosts'] != 1 else ''}"
    place = f"rank {facts['rank']} of {facts['size']} on {hosts}"
    return f"{place}, joined by: {facts['mpi']}; data by: {facts['transport']}"


class _OfOtherProgram(argparse.Action):
    """An option that only the C++ program farandole-info has."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> NoReturn:
        raise errors.Unsupported(
            f"{option_string} needs the C++ program farandole-info, which the CMake build has as bin/farandole-info "
            "and 'cmake --install' installs; docs/algorithms.md describes how an algorithm is chosen"
        )


def _parser(name: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=name,
        description="Prints the version, the library, the plug-ins that are there, the versions of Python's packages, "
        "and the settings that the environment changes.",
        epilog="The farandole-info that CMake installs has more options: its --config explains each setting, and "
        "--explain says which algorithm a collective would use.",
    )
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--json", action="store_true", help="print everything as JSON, with all settings")
    either.add_argument("--config", action="store_true", help="print all settings with their values")
    either.add_argument("--explain", action=_OfOtherProgram, nargs="*", help=argparse.SUPPRESS)
    parser.add_argument("--version", action="version", version=_built.version_line(name))
    return parser


def _all_settings(facts: Mapping[str, Any]) -> str:
    lines = [f"{name}={value}" for name, value in sorted(facts["settings"].items())]
    page = "docs/configuration.md in Farandole's sources has their meanings, values and defaults."
    return "\n".join([*lines, "", page])


def farandole_info() -> None:
    """The program farandole-info of the Python package."""
    name = "farandole-info"
    try:
        options = _parser(name).parse_args()
        facts = info()
    except errors.Error as error:
        print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(2)
    if options.config:
        print(_all_settings(facts))
    else:
        print(json.dumps(facts, indent=2, default=str) if options.json else facts)
