# SPDX-License-Identifier: Apache-2.0
"""Describes a model for comparison between ranks: classes, order and connections
of layers, shapes, settings, constants, functions, and contents of lookup tables.
For a function of a training loop: the models and constants that it refers to."""

import hashlib
import json
import re
import types
from typing import Any, Dict, Iterable, Iterator, List, Set, Tuple

import keras

from . import _code, _values
from ._code import function_of, is_of_library
from ._value_differences import ORDER, UNKNOWN
from ._values import comparable, is_compared, own

# Methods of the program's classes that determine the computation of a model.
_METHODS = ("call", "train_step", "test_step", "compute_loss")
# Attributes of the library's layers that repeat another attribute, or whose contents the lookup table's facts contain.
_SAID_ELSEWHERE = {"input_vocabulary", "lookup_table"}


class Description:
    """The facts of a model that ranks compare.

    facts: values of `comparable`, by (position of the layer in the model, kind of fact).
    names: displayed names of layers, by position.
    is_built: facts of built models are compared only if all ranks have built the model.
    """

    def __init__(self, is_built: bool):
        self.is_built = is_built
        self.facts: Dict[Tuple[str, str], Any] = {}
        self.names: Dict[str, str] = {}
        self._places: Dict[int, str] = {}
        self._digest = ""

    def digest(self) -> str:
        if not self._digest:
            text = json.dumps([self.is_built, self._listed()], default=lambda late: late.digest)
            self._digest = hashlib.sha256(text.encode()).hexdigest()
        return self._digest

    def accept(self) -> None:
        """Marks the model as compared without an important difference, so that the next comparison is a match."""
        self._digest = "accepted"

    def in_full(self) -> List[Any]:
        """All facts, which ranks exchange if their digests differ."""
        text = json.dumps([self.is_built, self._listed(), self.names], default=lambda late: late.value())
        return json.loads(text)

    def _listed(self) -> List[Any]:
        return [[*key, value] for key, value in self.facts.items()]

    def add(self, place: str, what: str, value: Any) -> None:
        if value != UNKNOWN:
            self.facts[place, what] = value

    def add_layer(self, place: str, layer: Any, path: str) -> None:
        """Adds a layer or operation, and its children."""
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
            held = _paths_of_layers(layer)
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
        self.add(place, "names of the inputs", {ORDER: graph.names(model._inputs_struct)})
        self.add(place, "names of the outputs", {ORDER: graph.names(model._outputs_struct)})


class _Graph:
    """Connections of a functional model."""

    def __init__(self, model: Any, operations: List[Any]):
        self._model = model
        self._numbers = {id(operation): number for number, operation in enumerate(operations)}
        in_graph = {id(node) for nodes in model._nodes_by_depth.values() for node in nodes}
        # Calls within this model; ranks may call a shared layer elsewhere a different number of times.
        self._calls = {
            id(operation): [node for node in operation._inbound_nodes if id(node) in in_graph] for operation in operations
        }
        self.inputs = {
            id(tensor._keras_history.operation): repr(path)
            for path, tensor in _with_paths(model._inputs_struct)
            if hasattr(tensor, "_keras_history")
        }

    def connections(self, operation: Any) -> List[Any]:
        """Arguments of each call of the operation: preceding layers, and constants."""
        return [self._argument([node.arguments.args, node.arguments.kwargs]) for node in self._calls[id(operation)]]

    def outputs(self) -> List[Any]:
        return [[repr(path), self._argument(tensor)] for path, tensor in _with_paths(self._model._outputs_struct)]

    def names(self, structure: Any) -> List[str]:
        """Names that the program has given to the input or output layers, by which data in dictionaries are assigned.
        Empty for names that Keras has generated, because Keras numbers them per process."""
        operations = [
            tensor._keras_history.operation for _, tensor in _with_paths(structure) if hasattr(tensor, "_keras_history")
        ]
        return [repr(_given_name(each)) for each in operations]

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


def _given_name(operation: Any) -> str:
    kind = keras.src.utils.naming.to_snake_case(type(operation).__name__)
    return "" if re.fullmatch(rf"({kind}|keras_tensor)(_\d+)*", operation.name) else operation.name


def _with_paths(structure: Any, path: Tuple[Any, ...] = ()) -> Iterator[Tuple[Any, Any]]:
    """Yields (path of keys and indices, leaf) for all leaves."""
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
    """The layers and operations within a layer, in the order in which the program has created them."""
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
    """Names of attributes that every layer or model has."""
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
        yield "vocabulary", _values.describe_table(table)
    if is_of_library(kind):
        for name, value in _attributes(layer):
            yield name, comparable(value)
    loss = getattr(layer, "_compile_loss", None)
    if loss is not None:
        yield "loss", comparable(loss._user_loss)
    if not is_of_library(kind):
        yield from _facts_of_own_class(layer)


def _attributes(layer: Any) -> Iterator[Tuple[str, Any]]:
    """Attributes of a layer. For a class of the library: the attributes that must be equal on all ranks. For a class of
    the program: all attributes that the class adds, except booleans and None."""
    kind = type(layer)
    is_library, has_private = is_of_library(kind), _has_private_of_library(kind)
    for name, value in vars(layer).items():
        if (
            name in _base_names()
            or name in _SAID_ELSEWHERE
            or name.startswith("_self_")
            or (has_private and name.startswith("_"))
        ):
            continue
        if is_compared(name) if is_library else not isinstance(value, (bool, type(None))):
            yield name, value


def _has_private_of_library(kind: type) -> bool:
    """True if private attributes may belong to a base class of the library other than keras.Model's own bases; such
    attributes have a meaning that only the library knows."""
    return any(is_of_library(base) and base not in keras.Model.__mro__ for base in kind.__mro__)


def _own_name(variable: Any) -> str:
    return "" if re.fullmatch(r"variable(_\d+)*", variable.name) else f"{variable.name} "


def _facts_of_own_class(layer: Any) -> Iterator[Tuple[str, Any]]:
    methods = _methods(type(layer))
    iterated = _iterated(methods)
    values = dict(_attributes_of_class(type(layer)))
    values.update(_attributes(layer))
    for name, value in values.items():
        yield name, own(name, value, iterated)
    if not isinstance(layer, keras.Model):  # a model's configuration repeats its layers' facts
        config = _values.config_of(layer) or {}
        yield "configuration", own("configuration", {name: each for name, each in config.items() if name not in values})
    for name, function in methods.items():
        yield f"{name}()", comparable(function)


def _attributes_of_class(kind: type) -> Iterator[Tuple[str, Any]]:
    """Yields containers that are attributes of the program's classes."""
    for base in reversed(kind.__mro__):
        if not is_of_library(base):
            for name, value in vars(base).items():
                if not name.startswith("__") and _values.is_container(value):
                    yield name, value


def _methods(kind: type, first: Iterable[str] = _METHODS) -> Dict[str, Any]:
    """Methods of the program's class that determine the computation, and the methods that these call."""
    found: Dict[str, Any] = {}
    left = list(first)
    while left:
        name = left.pop(0)
        function = function_of(getattr(kind, name, None))
        if name not in found and function is not None and not is_of_library(function):
            found[name] = function
            left += _code.attributes_of(function.__code__)
    return found


def _iterated(methods: Dict[str, Any]) -> Set[str]:
    """Names of attributes whose values the methods iterate over, directly or as the result of another method."""
    codes = {name: function.__code__ for name, function in methods.items()}
    found = set().union(*(_code.iterated(code)[0] for code in codes.values()))
    return found.union(*(_code.returned(code) for name, code in codes.items() if name in found))


def _paths_of_layers(layer: Any) -> Dict[int, str]:
    """Maps the id of each layer that an attribute of `layer` holds to an expression: "blocks[3]", "heads['a']"."""
    found: Dict[int, str] = {}

    def visit(value: Any, path: str, depth: int) -> None:
        if isinstance(value, keras.Layer):
            found.setdefault(id(value), path)
        elif depth < 3 and isinstance(value, (list, tuple)):
            for number, each in enumerate(value):
                visit(each, f"{path}[{number}]", depth + 1)
        elif depth < 3 and isinstance(value, dict):
            for key, each in value.items():
                visit(each, f"{path}[{key!r}]", depth + 1)

    for name, value in vars(layer).items():
        if name not in _base_names():
            visit(value, name, 0)
    return found


def describe_function(function: Any) -> Description:
    """Describes the models, layers, tables and constants that a function of the program refers to."""
    description = Description(True)
    _add_references(description, function, "", 0)
    return description


def _add_references(description: Description, function: Any, place: str, depth: int) -> None:
    owner = getattr(function, "__self__", None)
    function = function_of(function)
    if not isinstance(function, types.FunctionType) or is_of_library(function) or depth > 2:
        return
    # A method is described with its object, any other function of depth > 0 by the function that refers to it.
    methods = {} if depth and owner is None else {function.__name__: function}
    found = [(name, each) for _, name, each in _code.references(function)]
    if owner is not None and hasattr(owner, "__dict__"):
        methods.update(_methods(type(owner), [function.__name__]))
        found += [(f"self.{name}", each) for name, each in sorted(vars(owner).items())]
        found += [(f"self.{name}", each) for name, each in _attributes_of_class(type(owner))]
    for name, each in methods.items():
        parts = comparable(each)
        if isinstance(parts, dict):
            del parts["code"]  # ranks may have different code in a training loop
        description.add(place, f"{name}()", parts)
    iterated = _iterated(methods)
    for name, value in found:
        if isinstance(value, keras.Layer):
            if is_compared(name):
                description.add_layer(place + name, value, value.name)
        elif _values.is_constant(value):
            if name.startswith("self."):  # other constants are described with the function
                description.add(place, name, own(name[len("self.") :], value, iterated))
        elif is_compared(name):
            _add_references(description, value, f"{place}{name}().", depth + 1)
