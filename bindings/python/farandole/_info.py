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
from typing import Any, Dict, List, Mapping, Tuple

from . import _built, _engine

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
    table. Local, non-blocking."""
    described = Info(_engine.describe())
    if not described:  # the library could not read its settings
        described.update(version=_built.version(), build="unknown", library=_engine.library_for_linking(), plugins=[])
        described.update(initialized=False, settings={})
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


def _parser(name: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=name,
        description="Prints the version, the library, the plug-ins that are there, the versions of Python's packages, "
        "and the settings that the environment changes.",
        epilog="The farandole-info that CMake installs has more options: --config explains all settings, and --explain "
        "says which algorithm a collective would use.",
    )
    parser.add_argument("--json", action="store_true", help="print everything as JSON, with all settings")
    parser.add_argument("--version", action="version", version=_built.version_line(name))
    return parser


def farandole_info() -> None:
    """The program farandole-info of the Python package."""
    options = _parser("farandole-info").parse_args()
    print(json.dumps(info(), indent=2, default=str) if options.json else info())
