"""`import horovod…` finds Farandole."""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from types import ModuleType
from typing import Any, Optional, Sequence

# Horovod's module, and ours of the same meaning.
_MODULES = {
    "horovod": "farandole",
    "horovod.common": "farandole",
    "horovod.common.basics": "farandole",
    "horovod.common.elastic": "farandole.elastic",
    "horovod.common.exceptions": "farandole.errors",
    "horovod.common.process_sets": "farandole.process_sets",
    "horovod.keras": "farandole.keras",
    "horovod.keras.callbacks": "farandole.keras.callbacks",
    "horovod.keras.elastic": "farandole.keras.elastic",
    "horovod.tensorflow": "farandole.tensorflow",
    "horovod.tensorflow.compression": "farandole.tensorflow.compression",
    "horovod.tensorflow.data": "farandole.tensorflow.data",
    "horovod.tensorflow.data.compute_service": "farandole.tensorflow.data.compute_service",
    "horovod.tensorflow.data.compute_worker": "farandole.tensorflow.data.compute_worker",
    "horovod.tensorflow.elastic": "farandole.tensorflow.elastic",
    "horovod.tensorflow.functions": "farandole.tensorflow.functions",
    "horovod.tensorflow.gradient_aggregation": "farandole.tensorflow.gradient_aggregation",
    "horovod.tensorflow.keras": "farandole.tensorflow.keras",
    "horovod.tensorflow.keras.callbacks": "farandole.tensorflow.keras.callbacks",
    "horovod.tensorflow.keras.elastic": "farandole.tensorflow.keras.elastic",
    "horovod.tensorflow.mpi_ops": "farandole.tensorflow.mpi_ops",
    "horovod.tensorflow.sync_batch_norm": "farandole.tensorflow.sync_batch_norm",
}


class _Alias(importlib.abc.Loader):
    """Gives a module that has been imported by its own name a second name."""

    def __init__(self, target: str):
        self._target = target
        self._spec: Any = None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = importlib.import_module(self._target)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The import system has put the alias's spec into the module; it keeps its own.
        module.__spec__ = self._spec


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Optional[Sequence[str]], target: Optional[ModuleType] = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        if fullname != "horovod" and not fullname.startswith("horovod."):
            return None
        ours = _MODULES.get(fullname)
        found = _find(ours) if ours else None
        if ours is None or found is None:
            missing = f"Farandole has no {fullname}" + (f" ({ours} is not part of this version)" if ours else "")
            raise ModuleNotFoundError(missing + "; docs/coming-from-horovod.md lists what there is", name=fullname)
        is_package = found.submodule_search_locations is not None
        return importlib.machinery.ModuleSpec(fullname, _Alias(ours), is_package=is_package)


def _find(name: str) -> Optional[importlib.machinery.ModuleSpec]:
    try:
        return importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.startswith("farandole"):
            return None
        raise


def install_as_horovod() -> None:
    """From now on `import horovod.tensorflow as hvd` and its relatives find Farandole, also where Horovod is installed.

    Raises ImportError if Horovod itself has been imported already. Calling it again does nothing.
    """
    loaded = sys.modules.get("horovod")
    if loaded is not None and not loaded.__name__.startswith("farandole"):
        raise ImportError(
            f"Horovod has been imported from {getattr(loaded, '__file__', '?')}; call install_as_horovod() before"
        )
    if not is_installed():
        sys.meta_path.insert(0, _Finder())


def is_installed() -> bool:
    """Whether `import horovod` finds Farandole."""
    return any(isinstance(finder, _Finder) for finder in sys.meta_path)
