# SPDX-License-Identifier: Apache-2.0
"""Whether the ranks have made the same model, in what is no variable too.

A vocabulary or layers made by going over a set() of texts differ from process to process: each rank would train its own model,
and add up gradients that do not belong together. So the ranks compare a digest of what changes the computation: classes,
order and connections of layers, shapes, settings, constants, functions, and contents of lookup tables. Names, seeds,
initializers and what the program only writes down may differ. See docs/decisions/0037-comparing-models.md.
"""

import hashlib
import json
import re
import weakref
from typing import Any, Dict, Iterator, List, Optional, Tuple

import keras
import tensorflow as tf

from .. import _lifecycle, objects
from . import _errors, _strategy_optimizers, _strategy_values
from ._differences import shortened
from ._strategy_extended import is_farandole_strategy
from ._strategy_progress import refuse
from ._strategy_values import UNKNOWN, comparable, first_difference, is_compared, is_of_library

_NAME = "farandole.strategy.models"
_ADVICE = (
    "All ranks must make the same model. The order of a set() of texts is another one in each process: use sorted(). "
    "MirroredStrategy(model_check=False) leaves this comparison out"
)
# Methods of the program's classes that say what a model computes.
_METHODS = ("call", "train_step", "compute_loss")
# Attributes of the library's layers that say the same as another one, or whose contents come with a table.
_SAID_ELSEWHERE = {"input_vocabulary", "lookup_table"}


class Description:
    """What ranks compare of a model.

    facts: by (place of a layer in the model, what it is), values of `comparable`. names: of the layers, for people.
    is_built: what a model makes when it is built is compared only if all ranks have built it.
    """

    def __init__(self, is_built: bool):
        self.is_built = is_built
        self.facts: Dict[Tuple[str, str], Any] = {}
        self.names: Dict[str, str] = {}
        self._places: Dict[int, str] = {}

    def digest(self) -> str:
        facts = [[*key, value] for key, value in self.facts.items()]
        return hashlib.sha256(json.dumps([self.is_built, facts]).encode()).hexdigest()

    def add(self, place: str, what: str, value: Any) -> None:
        if value != UNKNOWN:
            self.facts[place, what] = value

    def add_layer(self, place: str, layer: Any, path: str) -> None:
        """Adds a layer or operation and those within it."""
        if id(layer) in self._places:
            self.add(place, "a layer that is used twice", self._places[id(layer)])
            return
        self._places[id(layer)] = place
        self.names[place] = path
        for what, value in _facts_of_layer(layer):
            self.add(place, what, value)
        children = _children(layer)
        self.add(place, "classes of its layers", [type(each).__name__ for each in children])
        if not is_of_library(type(layer)):
            held = _held_as(layer)
            for number, child in enumerate(children):
                self.add(f"{place}.{number}", "its attribute", held.get(id(child), UNKNOWN))
        if isinstance(layer, keras.src.models.Functional):
            self._add_graph(place, layer, children)
        for number, child in enumerate(children):
            self.add_layer(f"{place}.{number}", child, f"{path}/{child.name}")

    def _add_graph(self, place: str, model: Any, operations: List[Any]) -> None:
        graph = _Graph(model, operations)
        for number, operation in enumerate(operations):
            self.add(f"{place}.{number}", "connections", graph.connections(operation))
            if id(operation) in graph.inputs:
                self.add(f"{place}.{number}", "the input", graph.inputs[id(operation)])
        self.add(place, "outputs", graph.outputs())


class _Graph:
    """Connections of a functional model."""

    def __init__(self, model: Any, operations: List[Any]):
        self._model = model
        self._numbers = {id(operation): number for number, operation in enumerate(operations)}
        in_graph = {id(node) for nodes in model._nodes_by_depth.values() for node in nodes}
        # Of calls of the layer outside of this model, other ranks may have made more or fewer.
        self._calls = {
            id(operation): [node for node in operation._inbound_nodes if id(node) in in_graph] for operation in operations
        }
        self.inputs = {
            id(tensor._keras_history.operation): repr(path)
            for path, tensor in _with_paths(model._inputs_struct)
            if hasattr(tensor, "_keras_history")
        }

    def connections(self, operation: Any) -> List[Any]:
        """Arguments of each call: layers, and constants."""
        return [self._argument([node.arguments.args, node.arguments.kwargs]) for node in self._calls[id(operation)]]

    def outputs(self) -> List[Any]:
        return [[repr(path), self._argument(tensor)] for path, tensor in _with_paths(self._model._outputs_struct)]

    def _argument(self, value: Any) -> Any:
        if isinstance(value, keras.KerasTensor):
            operation, node_index, tensor_index = value._keras_history
            if id(operation) not in self._numbers:
                return UNKNOWN
            calls = [id(node) for node in self._calls[id(operation)]]
            node = id(operation._inbound_nodes[node_index])
            call = calls.index(node) if node in calls else 0
            which = f"layer {self._numbers[id(operation)]} ({type(operation).__name__})"
            return which + (f", call {call}" if call else "") + (f", tensor {tensor_index}" if tensor_index else "")
        if isinstance(value, (list, tuple)):
            return [self._argument(each) for each in value]
        if isinstance(value, dict):
            return [[repr(key), self._argument(each)] for key, each in sorted(value.items(), key=lambda item: str(item[0]))]
        return comparable(value)


def _with_paths(structure: Any, path: Tuple[Any, ...] = ()) -> Iterator[Tuple[Any, Any]]:
    """(Keys and indices that lead to it, leaf) of all leaves."""
    if isinstance(structure, dict):
        parts = sorted(structure.items(), key=lambda item: str(item[0]))
    elif isinstance(structure, (list, tuple)):
        parts = list(enumerate(structure))
    else:
        yield path[0] if len(path) == 1 else path, structure
        return
    for key, each in parts:
        yield from _with_paths(each, (*path, key))


def _children(layer: Any) -> List[Any]:
    """Layers and operations within it, in an order that the program decides."""
    if isinstance(layer, keras.src.models.Functional):
        operations = list(layer._operations)
        known = {id(each) for each in operations}
        return operations + [each for each in _tracked(layer) if id(each) not in known]
    if isinstance(layer, keras.Sequential):
        return list(layer.layers)
    return _tracked(layer) if isinstance(layer, keras.Layer) else []


def _tracked(layer: Any) -> List[Any]:
    return layer._flatten_layers(include_self=False, recursive=False)


def _base_names() -> set:
    """Attributes that every layer or model has."""
    if not _BASE_NAMES:
        for kind in (keras.layers.Layer, keras.Model, keras.src.ops.operation.Operation):
            _BASE_NAMES.update(vars(kind(name="farandole_attributes")))
    return _BASE_NAMES


_BASE_NAMES: set = set()


def _facts_of_layer(layer: Any) -> Iterator[Tuple[str, Any]]:
    kind = type(layer)
    yield "class", kind.__qualname__
    if isinstance(layer, keras.Layer):
        yield "trainable", repr(layer.trainable)
        yield "dtype", layer.dtype_policy.name
        own = [*layer._trainable_variables, *layer._non_trainable_variables]
        yield "variables", [f"{_own_name(each)}{each.dtype} {tuple(each.shape)}" for each in own]
    table = getattr(layer, "lookup_table", None)
    if table is not None:
        yield "vocabulary", _strategy_values.of_table(table)
    is_library, has_private = is_of_library(kind), _has_private_of_library(kind)
    for name, value in vars(layer).items():
        if name in _base_names() or name in _SAID_ELSEWHERE or not is_compared(name):
            continue
        if (is_library or not isinstance(value, (bool, type(None)))) and not (has_private and name.startswith("_")):
            yield name, comparable(value)
    loss = getattr(layer, "_compile_loss", None)
    if loss is not None:
        yield "loss", comparable(loss._user_loss)
    if not is_library:
        yield from _facts_of_own_class(layer)


def _has_private_of_library(kind: type) -> bool:
    """Whether private attributes may be the library's: beside those of every layer and model, only it knows what they mean."""
    return any(is_of_library(base) and base not in keras.Model.__mro__ for base in kind.__mro__)


def _own_name(variable: Any) -> str:
    return "" if re.fullmatch(r"variable(_\d+)*", variable.name) else f"{variable.name} "


def _facts_of_own_class(layer: Any) -> Iterator[Tuple[str, Any]]:
    if not isinstance(layer, keras.Model):  # whose configuration is that of its layers
        config = _strategy_values.config_of(layer)
        if config is not None:
            yield "configuration", comparable(config)
    for name in _METHODS:
        function = _strategy_values.function_of(getattr(type(layer), name, None))
        if function is not None and not is_of_library(function):
            yield f"{name}()", _strategy_values.of_function(function)


def _held_as(layer: Any) -> Dict[int, str]:
    """By the layers that the attributes of a layer lead to, the expressions that lead there: "blocks[3]", "heads['a']"."""
    found: Dict[int, str] = {}

    def look(value: Any, path: str, depth: int) -> None:
        if isinstance(value, keras.Layer):
            found.setdefault(id(value), path)
        elif depth < 3 and isinstance(value, (list, tuple)):
            for number, each in enumerate(value):
                look(each, f"{path}[{number}]", depth + 1)
        elif depth < 3 and isinstance(value, dict):
            for key, each in value.items():
                look(each, f"{path}[{key!r}]", depth + 1)

    for name, value in vars(layer).items():
        if name not in _base_names():
            look(value, name, 0)
    return found


# ---- Of models and of functions -------------------------------------------------------------------------------------

_known: Any = weakref.WeakKeyDictionary()  # by models: what they were compiled with, and their descriptions
_compared_optimizers: Any = weakref.WeakSet()


def is_on(strategy: Any) -> bool:
    """Whether the strategy compares models."""
    return is_farandole_strategy(strategy) and _lifecycle.size() > 1 and getattr(strategy, "model_check", True)


def of_model(model: Any) -> Optional[Description]:
    """What to compare, described once each time the model is compiled or built; None if its strategy is not to compare."""
    if not is_on(model.distribute_strategy):
        return None
    compiled = [getattr(model, name, None) for name in ("_compile_config", "optimizer")]  # None of either: not compiled
    state = [*compiled, bool(model.built), len(model.variables)]
    before = _known.get(model)
    if before is None or any(mine is not was for mine, was in zip(state[:2], before[0])) or state[2:] != before[0][2:]:
        description = Description(bool(model.built))
        description.add_layer("", model, model.name)
        _known[model] = before = state, description
    _compared_optimizers.update(_strategy_optimizers.of_model(model))
    return before[1]


def _of_function(function: Any) -> Description:
    """Of the models, layers, tables and constants that a function of the program refers to."""
    description = Description(True)
    _add_references(description, function, "", 0)
    return description


def _add_references(description: Description, function: Any, place: str, depth: int) -> None:
    owner = getattr(function, "__self__", None)
    function = _strategy_values.function_of(function)
    if function is None or is_of_library(function) or depth > 2:
        return
    found = list(_strategy_values.references(function))
    if owner is not None and hasattr(owner, "__dict__"):
        found += [(f"self.{name}", each) for name, each in sorted(_strategy_values.attributes(owner).items())]
    for name, value in found:
        if isinstance(value, keras.Layer):
            description.add_layer(place + name, value, value.name)
        elif isinstance(value, (tf.lookup.StaticHashTable, int, float, list, dict, tuple)) and not isinstance(value, bool):
            description.add(place, name, comparable(value))
        else:
            _add_references(description, value, f"{place}{name}().", depth + 1)


def compare_at_first_update(context: Any, optimizer: Any) -> None:
    """When an optimizer is first applied in `strategy.run`, which all ranks do together: compares the model, or what the
    function refers to. Collective."""
    if optimizer in _compared_optimizers or not is_on(context.strategy):
        return
    _compared_optimizers.add(optimizer)
    with tf.init_scope():  # the step may be being traced
        description = of_model(context.model) if context.model_step else _of_function(context.function)
        mine = None if description is None else description.digest()
        if len(set(objects.allgather_object(mine, _NAME))) > 1:
            text = difference_of(description)
            if text:
                raise _errors.mismatch(text)


def difference_of(description: Optional[Description]) -> str:
    """In words, how the ranks' models differ; empty if in nothing that all ranks know. Collective."""
    mine = None
    if description is not None:
        facts = [[*key, value] for key, value in description.facts.items()]
        mine = [description.is_built, facts, description.names]
    everyone = objects.allgather_object(mine, _NAME)
    if None in everyone or len({is_built for is_built, _, _ in everyone}) > 1:
        return ""
    of_ranks = [{(place, what): value for place, what, value in facts} for _, facts, _ in everyone]
    names = everyone[0][2]
    texts = []
    for key in of_ranks[0]:
        if all(key in each for each in of_ranks):
            place, what = key
            of = f" of layer '{names[place]}'" if place in names else ""
            texts.append(first_difference(what, {rank: each[key] for rank, each in enumerate(of_ranks)}, of))
    texts = list(filter(None, texts))
    return f"the models of the ranks differ: {shortened(texts)}. {_ADVICE}" if texts else ""


def refuse_difference(description: Optional[Description]) -> None:
    """Raises Mismatch, on all ranks, if their models differ. Collective."""
    text = difference_of(description)
    if text:
        refuse(text)
