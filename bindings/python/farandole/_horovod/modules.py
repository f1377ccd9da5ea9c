# SPDX-License-Identifier: Apache-2.0
"""Modules with Horovod's names for `import horovod…`, made from the table in names.py."""

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from types import ModuleType
from typing import Any, Iterable, Optional, Sequence

from . import names

_KERAS_MODULES = ("horovod.keras", "horovod.tensorflow.keras")
_PAGE = "docs/coming-from-horovod.md lists what there is"


class HorovodModule(ModuleType):
    """A module of Horovod. Looks up names in Farandole's modules at
    access. Attributes that a program sets stay in this module."""

    def __getattr__(self, name: str) -> Any:
        if name == "__all__":
            return names.public_names(self.__name__)
        row = names.find(self.__name__, name)
        if row is None and name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        part = f"{self.__name__}.{name}"
        if part in names.MODULES and _is_there(names.MODULES[part]):
            return importlib.import_module(part)
        # Names that Farandole has in addition to Horovod's are available, too.
        place = names.place(self.__name__, name)
        if place is not None and (row is None or row.state != names.MISSING):
            with contextlib.suppress(AttributeError, ModuleNotFoundError):
                return getattr(importlib.import_module(place.module), place.name)
        raise AttributeError(missing(self.__name__, name))

    def __dir__(self) -> Iterable[str]:
        return sorted({*super().__dir__(), *names.public_names(self.__name__)})


def missing(module: str, name: str) -> str:
    """Text of the error for a missing name, with an alternative if the table has one."""
    row = names.find(module, name)
    if row is not None and row.state == names.MISSING:
        return f"Farandole has no {module}.{name}: {row.note}"
    return f"Farandole has no {module}.{name}; {_PAGE}"


class _Loader(importlib.abc.Loader):
    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return HorovodModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        ours = names.MODULES[module.__name__]
        if ours is not None:
            module.__doc__ = importlib.import_module(ours).__doc__
        if module.__name__ in _KERAS_MODULES:
            importlib.import_module("farandole.tensorflow.keras._impl").accept_obsolete_arguments()


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Optional[Sequence[str]], target: Optional[ModuleType] = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        if fullname != "horovod" and not fullname.startswith("horovod."):
            return None
        if fullname in names.MODULES:
            if _is_there(names.MODULES[fullname]):
                # All modules are packages, so that `from module import name` calls find_spec for a missing name.
                return importlib.machinery.ModuleSpec(fullname, _Loader(), is_package=True)
            raise ModuleNotFoundError(
                f"Farandole has no {fullname} ({names.MODULES[fullname]} is not part of this version); {_PAGE}"
            )
        # The attribute `name` of the exception stays None. Otherwise `from horovod.x import y` would catch the
        # exception and raise an ImportError without this text.
        instead = names.missing_module(fullname)
        module, _, name = fullname.rpartition(".")
        raise ModuleNotFoundError(f"Farandole has no {fullname}: {instead}" if instead else missing(module, name))


def _is_there(name: Optional[str]) -> bool:
    try:
        return name is None or importlib.util.find_spec(name) is not None
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.startswith("farandole"):
            return False
        raise


def install_as_horovod() -> None:
    """Makes `import horovod.tensorflow as hvd`, and imports of Horovod's other modules, find Farandole from now on,
    even if Horovod is installed. Idempotent.

    Raises ImportError if Horovod itself was imported before.
    """
    loaded = sys.modules.get("horovod")
    if loaded is not None and not isinstance(loaded, HorovodModule):
        raise ImportError(
            f"Horovod has been imported from {getattr(loaded, '__file__', '?')}; call install_as_horovod() before"
        )
    if not is_installed():
        sys.meta_path.insert(0, _Finder())


def is_installed() -> bool:
    """True if `import horovod` finds Farandole."""
    return any(isinstance(finder, _Finder) for finder in sys.meta_path)
