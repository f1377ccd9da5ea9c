# SPDX-License-Identifier: Apache-2.0
"""Builds the TensorFlow ops ahead of time: `python -m farandole.build_ops`; with --torch, the backend for torch.

Otherwise the first import of farandole.tensorflow or farandole.torch builds them, which needs a C++ compiler on that
machine.
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path
from typing import List, Tuple

from . import _built, _engine, _files

# runpy and not `python FILE`: the directory of FILE has modules
# with names of packages (keras), which Python would import.
_RUN = "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m farandole.build_ops",
        description="Builds Farandole's ops for a TensorFlow, or its backend for a torch (some seconds, once), and prints "
        "where they are. What is there already is not built again.",
        epilog="example, on a login node, for jobs on nodes that have no compiler: python -m farandole.build_ops",
    )
    parser.add_argument(
        "--tensorflow",
        metavar="PYTHON",
        action="append",
        help="an interpreter that imports the TensorFlow to build for, such as env/bin/python; may be given several "
        "times; this one if neither this option nor --torch is given",
    )
    parser.add_argument(
        "--torch",
        metavar="PYTHON",
        action="append",
        nargs="?",
        const=sys.executable,
        help="builds the backend for torch.distributed, for this interpreter's torch or that of PYTHON; may be given "
        "several times",
    )
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--output-dir", metavar="DIR", type=Path, help="where they go; this user's cache if not given")
    place.add_argument("--into-package", action="store_true", help="into this installation, for all its users")
    parser.add_argument("--version", action="version", version=_built.version_line("farandole.build_ops"))
    return parser


_LIBRARIES = {"tensorflow": "_op_library.py", "torch": "_backend_library.py"}


def _interpreter(option: str, name: str, parser: argparse.ArgumentParser) -> str:
    found = shutil.which(name)
    if found is None:
        framework = {"tensorflow": "TensorFlow"}.get(option, option)
        parser.error(f"--{option}: there is no interpreter '{name}'; it takes one that imports the {framework}, such as "
                     "env/bin/python")
    return found


def main(arguments: List[str]) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    wanted: List[Tuple[str, str]] = [
        (option, _interpreter(option, name, parser))
        for option, names in (("tensorflow", options.tensorflow), ("torch", options.torch))
        for name in names or []
    ] or [("tensorflow", sys.executable)]
    status = 0
    for framework, interpreter in wanted:
        program = next(filter(Path.exists, _files.candidates(framework, _LIBRARIES[framework])))
        place = [str(options.output_dir)] if options.output_dir else []
        if options.into_package:
            place = [str(next(filter(Path.exists, _files.candidates(framework, "source"))).parent / "lib")]
        command = [interpreter, "-c", _RUN, str(program), "--header-dir", str(_files.header_dir())]
        done = subprocess.run([*command, "--library", _engine.library_for_linking(), *place])
        status = status or done.returncode
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
