# SPDX-License-Identifier: Apache-2.0
"""Records the public names of an installed Horovod, with the parameters of functions and classes, as JSON:

    python record.py > horovod-0.28.1.json     (one process, Horovod built with TensorFlow)

A parameter is written as "name", "name=" if it has a default, "*name" or "**name". A class has its constructor under
"__init__", and its methods. "modules" lists all modules of the recorded packages, even those whose names are not recorded.
"""

import importlib
import inspect
import json
import pkgutil
import types
from typing import Any, Dict, List

import horovod

MODULES = """
    horovod
    horovod.common horovod.common.basics horovod.common.elastic horovod.common.exceptions horovod.common.process_sets
    horovod.common.util
    horovod._keras horovod._keras.callbacks horovod._keras.elastic
    horovod.keras horovod.keras.callbacks horovod.keras.elastic
    horovod.runner horovod.runner.common.util.env horovod.runner.util.threads
    horovod.tensorflow horovod.tensorflow.compression horovod.tensorflow.data.compute_service
    horovod.tensorflow.data.compute_worker
    horovod.tensorflow.elastic horovod.tensorflow.functions horovod.tensorflow.gradient_aggregation
    horovod.tensorflow.gradient_aggregation_eager horovod.tensorflow.keras horovod.tensorflow.keras.callbacks
    horovod.tensorflow.keras.elastic horovod.tensorflow.mpi_ops horovod.tensorflow.sync_batch_norm
    horovod.tensorflow.util
""".split()
# Names with an underscore that programs and packages use all the same.
ALSO = {
    "horovod": ["__version__"],
    "horovod.common.util": ["_cache"],
    "horovod.tensorflow": ["_executing_eagerly", "_make_subgraph", "_cache", "_allreduce", "_grouped_allreduce"],
    "horovod.tensorflow.mpi_ops": ["_basics", "_allreduce", "_grouped_allreduce", "_executing_eagerly"],
    "horovod.tensorflow.util": ["_executing_eagerly", "_make_subgraph", "_cache"],
}
_METHODS = ["_process_set_rank", "_process_set_size", "_get_process_set_ids_and_ranks", "_add_process_set_impl"]
_METHODS += ["_remove_process_set_impl"]
_ELSEWHERE = {"horovod.torch", "horovod.mxnet", "horovod.spark", "horovod.ray", "horovod.data"}


def main() -> None:
    names = {name: _names_of(name) for name in MODULES}
    print(json.dumps({"version": horovod.__version__, "names": names, "modules": _all_modules()}, indent=1))


def _all_modules() -> List[str]:
    found = []

    def look(path: Any, prefix: str) -> None:
        for each in pkgutil.iter_modules(path, prefix):
            found.append(each.name)
            if each.ispkg and each.name not in _ELSEWHERE:
                spec = importlib.util.find_spec(each.name)
                look(spec.submodule_search_locations, each.name + ".")

    look(horovod.__path__, "horovod.")
    return sorted(name for name in found if not name.rpartition(".")[2].startswith("_") or name.startswith("horovod._keras"))


def _names_of(module_name: str) -> Dict[str, Any]:
    module = importlib.import_module(module_name)
    return {
        name: _described(value)
        for name, value in sorted(vars(module).items())
        if name in ALSO.get(module_name, ()) or (not name.startswith("_") and name != "TYPE_CHECKING" and _is_own(value))
    }


def _is_own(value: Any) -> bool:
    if isinstance(value, types.ModuleType):
        return False
    if inspect.isclass(value) or callable(value):
        return (getattr(value, "__module__", None) or "").startswith("horovod")
    return isinstance(value, (bool, int, str, list, dict, set)) or type(value).__module__.startswith("horovod")


def _described(value: Any) -> Any:
    if inspect.isclass(value):
        methods = {"__init__": _parameters(value.__init__)}
        for name, _ in inspect.getmembers(value, callable):
            owner = next((base for base in value.__mro__ if name in vars(base)), type)  # of a metaclass
            if owner.__module__.startswith("horovod") and (not name.startswith("_") or name in _METHODS):
                methods[name] = _parameters(getattr(value, name))
        return methods
    return _parameters(value) if callable(value) else type(value).__name__


def _parameters(function: Any) -> List[str]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return ["*args", "**kwargs"]
    marks = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    return [
        marks.get(each.kind, "") + each.name + ("" if each.default is each.empty else "=")
        for each in parameters
        if each.name != "self"
    ]


if __name__ == "__main__":
    main()
