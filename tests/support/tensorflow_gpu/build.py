# SPDX-License-Identifier: Apache-2.0
"""Builds the fake GPU for the TensorFlow of the interpreter that runs this program.

    python build.py COMPILER OUTPUT INCLUDE_DIRECTORY...
"""

import subprocess
import sys
from pathlib import Path

import tensorflow as tf


def main() -> int:
    compiler, output, *include_dirs = sys.argv[1:]
    flags = [f"-isystem{flag[2:]}" if flag.startswith("-I") else flag for flag in tf.sysconfig.get_compile_flags()]
    # A single translation unit, because TensorFlow's headers take most of the time.
    unit = "".join(f'#include "{source}"\n' for source in sorted(Path(__file__).resolve().parent.glob("*.cpp")))
    command = [
        *(compiler, "-x", "c++", "-", "-x", "none", "-o", output, "-shared", "-fPIC", "-O1", "-DNDEBUG"),
        *("-fvisibility=hidden", "-Wall", "-Wextra", f"-I{Path(__file__).resolve().parent}"),
        *(f"-I{directory}" for directory in include_dirs),
        *flags,
        *tf.sysconfig.get_link_flags(),
        *("-ldl", "-Wl,-z,now"),
    ]
    return subprocess.run(command, input=unit, text=True).returncode


if __name__ == "__main__":
    sys.exit(main())
