# SPDX-License-Identifier: Apache-2.0
"""The backend library: Farandole as a backend of torch.distributed, built for one version of torch as _built_library.py
says.

As a program, this file builds the library for the torch of the interpreter that runs it.
"""

import importlib.util
import sys
import sysconfig
from pathlib import Path
from typing import Any, List

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

TORCH = built_library.Framework(
    name="torch",
    package="torch",
    library="backend library",
    contents="backend",
    stem="libfarandole_torch_",
    define="FARANDOLE_TORCH_BUILD",
    seconds="15 to 30 s",
    oldest=(2, 11),
    newest=(2, 15),
)
MODULE = "farandole_torch"  # Python's name of the library, in ops/torch/src/module.cpp


class Recipe(built_library.Recipe):
    """How to build the backend library for the torch and the Python of this process."""

    framework = TORCH

    def __init__(self, header_dir: Path, library: str):
        import torch

        self._python = sys.implementation.cache_tag
        of_torch = Path(torch.__file__).parent
        include = of_torch / "include"
        directories = (include, include / "torch" / "csrc" / "api" / "include", _python_headers())
        abi = int(getattr(torch._C, "_GLIBCXX_USE_CXX11_ABI", True))
        super().__init__(
            version=torch.__version__,
            facts=[torch.version.git_version, self._python],
            source_dir=built_library.first_existing(_HERE / "source", _HERE.parents[3] / "ops" / "torch" / "src"),
            header_dir=header_dir,
            headers=["base.h", "collectives.h"],
            library=library,
            compile_flags=["-std=c++20", f"-D_GLIBCXX_USE_CXX11_ABI={abi}", *(f"-I{path}" for path in directories)],
            link_flags=[f"-L{of_torch / 'lib'}", "-ltorch", "-ltorch_cpu", "-lc10", "-ltorch_python"],
        )

    def file_name(self) -> str:
        return f"{self.framework.stem}{self.version}_{self._python}.so"

    def build(self, compiler: List[str], output: Path, mode: int) -> None:
        if not (_python_headers() / "Python.h").exists():
            raise ImportError(
                f"the backend library of Farandole for torch {self.version} cannot be built, because there is no "
                f"{_python_headers() / 'Python.h'}. To install Python's headers: apt-get install python3-dev"
            )
        super().build(compiler, output, mode)


def _python_headers() -> Path:
    return Path(sysconfig.get_paths()["include"])


if __name__ == "__main__":
    sys.exit(built_library.main(TORCH, Recipe, _HERE / "lib", sys.argv[1:]))
