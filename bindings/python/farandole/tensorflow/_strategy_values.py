# SPDX-License-Identifier: Apache-2.0
"""Values that the computation of a model depends on, in a form that ranks can compare.

`comparable` returns the same for values that compute the same, in every process: lists, floats and texts, without addresses,
file paths, the order of sets, and seeds. A value that it does not know is UNKNOWN, and is not compared: a program that is
right must not be refused.
"""

import enum
import functools
import hashlib
import os
import re
import types
import sys
from typing import Any, Dict, Iterator, List, Mapping, Tuple

import numpy as np
import tensorflow as tf

from ._differences import difference

UNKNOWN = "an object that is not compared"
_MAX_ELEMENTS = 1 << 16  # of arrays that are compared by element; larger ones by a digest
_MAX_NUMBER = 1 << 40  # larger ones are times, hashes and addresses
_ADDRESS = re.compile(r"0x[0-9a-f]{6,}|\d{12,}")
_MAX_DEPTH = 4  # of objects and functions within each other
# Hosts of different kinds compute the same constants, as statistics of data, with other rounding.
_ROUNDING = 1e-5
_LIBRARIES = ("builtins", "keras", "tensorflow", "numpy", "math", "operator", "functools", "farandole")
_CODE = f"code of Python {sys.version_info[0]}.{sys.version_info[1]} "  # other versions compile otherwise
# Words in names of attributes that may well differ between the ranks of a program that is right.
_OF_RANKS = re.compile(
    r"(?:^|_)(?:rank|seeds?|names?|paths?|dirs?|directory|folder|files?|filename|time|timer|clock|started|id|uid|uuid|pid|"
    r"worker|workers|host|hostname|device|devices|replica|verbose|verbosity|debug|logs?|logger|writer|counts?|counter|calls|called|"
    r"epochs?|iterations?|batches|traces?|traced|cache|history|chief|main|master|leader|primary|print|save|is|initializer|"
    r"lock|module|registered|random|generator|rng|strategy|hvd|comm)(?:_|$)",
    re.IGNORECASE,
)


def is_compared(name: str) -> bool:
    """Whether what has this name, of an attribute, argument or variable, must be equal on all ranks."""
    return not _OF_RANKS.search(name)


def is_of_library(thing: Any) -> bool:
    """Whether a class or function is not the program's."""
    return str(getattr(thing, "__module__", None) or "builtins").partition(".")[0] in _LIBRARIES


def comparable(value: Any, depth: int = 0) -> Any:
    """The value as a list, float or text that is the same on all ranks if the value computes the same."""
    if isinstance(value, str):
        return UNKNOWN if os.path.isabs(value) or _ADDRESS.search(value) else repr(value)
    if isinstance(value, int) and abs(value) > _MAX_NUMBER:
        return UNKNOWN
    if value is None or isinstance(value, (bool, int, complex, bytes, enum.Enum, type(Ellipsis))):
        return repr(value)
    if isinstance(value, (float, np.floating)):
        return float(value)
    if isinstance(value, (np.ndarray, np.generic, tf.Tensor)):
        return _of_array(value)
    if isinstance(value, tf.DType):
        return value.name
    if isinstance(value, type):
        return value.__qualname__
    return UNKNOWN if depth > _MAX_DEPTH else _of_structure(value, depth + 1)


def _of_structure(value: Any, depth: int) -> Any:
    if isinstance(value, (set, frozenset)):
        return sorted((comparable(each, depth) for each in value), key=repr)
    if isinstance(value, (list, tuple, tf.TensorShape)):
        return [comparable(each, depth) for each in value]
    if isinstance(value, Mapping):
        return _of_mapping(value, depth)
    if isinstance(value, slice):
        return ["slice", *(comparable(each, depth) for each in (value.start, value.stop, value.step))]
    if isinstance(value, functools.partial):
        return [comparable(value.func, depth), comparable(value.args, depth), comparable(value.keywords, depth)]
    if isinstance(value, tf.lookup.StaticHashTable):
        return of_table(value)
    function = function_of(value)
    if function is not None:
        return of_function(function, depth)
    return _of_object(value, depth)


def _of_array(value: Any) -> Any:
    if isinstance(value, tf.Tensor) and not hasattr(value, "numpy"):
        return UNKNOWN  # of a graph
    array = np.asarray(value)
    kind = f"{array.dtype.name} {array.shape}"
    if array.dtype.hasobject and not all(isinstance(each, (str, bytes)) for each in array.flat):
        return UNKNOWN
    if array.size <= _MAX_ELEMENTS and array.dtype.kind not in "cV":
        return [kind, [each if isinstance(each, float) else repr(each) for each in array.ravel().tolist()]]
    contents = repr(array.ravel().tolist()).encode() if array.dtype.hasobject else array.tobytes()
    return [kind, f"contents {hashlib.sha256(contents).hexdigest()[:12]}"]


def _of_mapping(value: Mapping, depth: int) -> Any:
    if value.get("class_name") == "__lambda__":  # marshalled, with the path of its file
        return UNKNOWN
    items = {str(key): each for key, each in value.items() if not isinstance(key, str) or is_compared(key) or _is_only(value)}
    if isinstance(items.get("learning_rate"), (int, float, np.floating)):
        del items["learning_rate"]  # of an optimizer: another rank's is replaced by rank 0's, with a warning
    return [[repr(key), comparable(each, depth)] for key, each in sorted(items.items())]


def _is_only(value: Mapping) -> bool:
    """A name alone, as policies have, says what a thing is."""
    return len(value) == 1


def _of_object(value: Any, depth: int) -> Any:
    """Regularizers, constraints, policies and the like, and those that the program has written."""
    import keras

    if isinstance(value, (keras.Layer, keras.Variable, tf.Variable, keras.initializers.Initializer, keras.random.SeedGenerator)):
        return UNKNOWN
    if hasattr(value, "get_config"):
        config = config_of(value)
        return [type(value).__name__, comparable(config if config is not None else attributes(value), depth)]
    return UNKNOWN


def config_of(value: Any) -> Any:
    """What get_config() returns; None where an own class was not made to be saved."""
    import warnings

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return value.get_config()
    except Exception:  # pylint: disable=broad-except  # code of the program, which it may never call itself
        return None


def attributes(value: Any) -> Dict[str, Any]:
    """The attributes of an object of the program by which ranks must not differ. Truth values are left out: most of
    them say whether this rank writes, prints or keeps something."""
    return {name: each for name, each in vars(value).items() if is_compared(name) and not isinstance(each, (bool, type(None)))}


# ---- Functions ------------------------------------------------------------------------------------------------------


def function_of(value: Any) -> Any:
    """The Python function that is called; None if `value` is not one of the program's or a library's."""
    value = getattr(value, "python_function", value)  # of a tf.function
    value = getattr(value, "__func__", value)
    value = getattr(value, "__wrapped__", value) if is_of_library(value) else value
    return value if isinstance(value, (types.FunctionType, types.BuiltinFunctionType, np.ufunc)) else None


def of_function(function: Any, depth: int = 0) -> Any:
    """A library's function by its name, one of the program by its code and the constants that it refers to."""
    if is_of_library(function) or not isinstance(function, types.FunctionType):
        return f"{str(getattr(function, '__module__', '')).partition('.')[0]}.{getattr(function, '__qualname__', function)}"
    values = [function.__defaults__, function.__kwdefaults__]
    constants = [[name, comparable(each, depth)] for name, each in references(function) if _is_constant(each)]
    return [_CODE + _digest_of_code(function.__code__), comparable(values, depth), constants]


def references(function: Any) -> Iterator[Tuple[str, Any]]:
    """Name and value of what a function refers to outside of itself, as far as that must be equal on all ranks."""
    code = function.__code__
    found = {}
    for name, cell in zip(code.co_freevars, function.__closure__ or ()):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # it is not set yet
            continue
    for name in _global_names(code):
        if name in function.__globals__:
            found.setdefault(name, function.__globals__[name])
    return ((name, each) for name, each in sorted(found.items()) if is_compared(name))


def _global_names(code: Any) -> List[str]:
    names = list(code.co_names)
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            names += _global_names(each)
    return names


def _is_constant(value: Any) -> bool:
    """Texts and truth values are left out: they are what ranks print, and where they write."""
    if isinstance(value, types.FunctionType):
        return not is_of_library(value)
    return isinstance(value, (int, float, list, tuple, dict, np.ndarray, np.generic, tf.lookup.StaticHashTable)) and not isinstance(
        value, bool
    )


def _digest_of_code(code: Any) -> str:
    return hashlib.sha256(repr(_of_code(code)).encode()).hexdigest()[:12]


def _of_code(code: Any) -> Any:
    constants = [_of_code(each) if isinstance(each, types.CodeType) else _of_constant(each) for each in code.co_consts]
    return [code.co_code, code.co_names, code.co_varnames, code.co_freevars, constants]


def _of_constant(value: Any) -> str:
    """Of sets without their order, of which each process has its own."""
    return repr(sorted(map(repr, value))) if isinstance(value, frozenset) else repr(value)


# ---- Tables ---------------------------------------------------------------------------------------------------------


def of_table(table: Any) -> Any:
    """The keys of a lookup table in the order of their values, each with its value if that is not its place."""
    if not tf.executing_eagerly():
        return UNKNOWN
    try:
        keys, values = (np.asarray(each) for each in table.export())
    except tf.errors.FailedPreconditionError:  # it has no contents yet
        return []
    pairs = sorted(zip(values.tolist(), keys.tolist()), key=repr if values.dtype.hasobject else None)
    first = pairs[0][0] if pairs else 0
    are_places = [value for value, _ in pairs] == list(range(first, first + len(pairs))) if not values.dtype.hasobject else False
    texts = [_text(key) if are_places else f"{_text(key)}: {_text(value)}" for value, key in pairs]
    return [f"begins with {first}", texts] if are_places else texts


def _text(value: Any) -> str:
    return repr(value.decode(errors="replace") if isinstance(value, bytes) else value)


# ---- Differences ----------------------------------------------------------------------------------------------------


def first_difference(name: str, values: Dict[int, Any], of: str = "") -> str:
    """"vocabulary[3] of layer 'lookup' is 'cat' on rank 0 and 'dog' on rank 1", where `of` is " of layer 'lookup'": the first
    difference of the ranks' values; empty if they are equal up to rounding."""
    first = values[0]
    if all(_is_same(first, each) for each in values.values()):
        return ""
    if not all(isinstance(each, list) for each in values.values()):
        return difference(name + of, {rank: _shown(each) for rank, each in values.items()})
    if len(set(map(len, values.values()))) > 1:
        return difference(f"the number of elements of {name}{of}", {rank: len(each) for rank, each in values.items()})
    place = next(i for i in range(len(first)) if not all(_is_same(first[i], each[i]) for each in values.values()))
    parts = {rank: each[place] for rank, each in values.items()}
    is_pair = len(first) == 2 and isinstance(first[0], str) and isinstance(first[1], list)  # kind and contents
    return first_difference(name if is_pair else f"{name}[{place}]", parts, of)


def _shown(value: Any) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 60 else text[:60] + "…"


def _is_same(left: Any, right: Any) -> bool:
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_is_same, left, right))
    if isinstance(left, float) and isinstance(right, float):
        return left == right or bool(np.isclose(left, right, rtol=_ROUNDING, atol=1e-30, equal_nan=True))
    if UNKNOWN in (left, right):
        return True
    if isinstance(left, str) and isinstance(right, str) and left.startswith("code of") and right.startswith("code of"):
        return left.split()[:4] != right.split()[:4] or left == right
    return left == right
