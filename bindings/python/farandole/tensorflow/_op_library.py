# SPDX-License-Identifier: Apache-2.0
"""The op library: TensorFlow's ops and kernels, built for one version of TensorFlow as _built_library.py says.

As a program, this file builds the library for the TensorFlow of the interpreter that runs it.
"""

import importlib.util
import sys
from pathlib import Path
from typing import Any, Optional

_HERE = Path(__file__).resolve().parent


def _shared_module() -> Any:
    """_built_library.py, which a program finds by its path."""
    if __package__:
        from .. import _built_library

        return _built_library
    spec = importlib.util.spec_from_file_location("_built_library", _HERE.parent / "_built_library.py")
    module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    spec.loader.exec_module(module)  # type: ignore[union-attr]
    return module


built_library = _shared_module()
from_cache = built_library.from_cache

TENSORFLOW = built_library.Framework(
    name="TensorFlow",
    package="tensorflow",
    library="op library",
    contents="ops",
    stem="libfarandole_tensorflow_",
    define="FARANDOLE_TENSORFLOW_BUILD",
    seconds="5 to 10 s",
    oldest=(2, 16),  # the ops need features of TensorFlow 2.16 and Keras 3; pyproject.toml has the same bounds
    newest=(2, 21),
)
OLDEST, NEWEST = TENSORFLOW.oldest, TENSORFLOW.newest


def why_not_tested(version: str) -> Optional[str]:
    """`Framework.why_not_tested` for TensorFlow."""
    return TENSORFLOW.why_not_tested(version)


class Recipe(built_library.Recipe):
    """How to build the op library for the TensorFlow of this process."""

    framework = TENSORFLOW

    def __init__(self, header_dir: Path, library: str):
        import tensorflow as tf

        super().__init__(
            version=tf.version.VERSION,
            facts=[tf.version.GIT_VERSION],
            source_dir=built_library.first_existing(_HERE / "source", _HERE.parents[3] / "ops" / "tensorflow" / "src"),
            header_dir=header_dir,
            headers=["base.h", "engine.h"],
            library=library,
            compile_flags=tf.sysconfig.get_compile_flags(),
            link_flags=tf.sysconfig.get_link_flags(),
        )


if __name__ == "__main__":
    sys.exit(built_library.main(TENSORFLOW, Recipe, _HERE / "lib", sys.argv[1:]))
