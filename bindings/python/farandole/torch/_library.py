# SPDX-License-Identifier: Apache-2.0
"""The backend library of this process: finds it, builds it if none fits, and loads it."""

import importlib.machinery
import importlib.util
from pathlib import Path
from typing import Any

from .. import _engine, _files
from . import _backend_library, _errors


def _find() -> Path:
    recipe = _backend_library.Recipe(_files.header_dir(), _engine.library_for_linking())
    for packaged in _files.candidates("torch", "lib", recipe.file_name()):
        if recipe.fits(packaged):
            return packaged
    return _backend_library.built_library.from_cache(recipe)


def _load() -> Any:
    """The library as a module of Python. Builds it if none fits; that takes 15 to 30 seconds.

    Raises ImportError, with a command that helps.
    """
    path = _find()
    loader = importlib.machinery.ExtensionFileLoader(_backend_library.MODULE, str(path))
    try:
        module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
        loader.exec_module(module)
    except ImportError as error:
        raise ImportError(f"{path} does not fit this torch; delete it: {error}") from error
    for kind, type_ in _errors.CLASSES.items():
        module.set_exception_class(kind, type_)
    return module


backend = _load()
