# SPDX-License-Identifier: Apache-2.0
"""Describes values that the computation of a model depends on, in a form that ranks can compare.

`comparable` returns equal descriptions for values that compute the same, in every process: lists, dictionaries of named
parts, numbers and texts, without addresses, file paths, seeds, and the order of sets. The description of an unknown
value is UNKNOWN, which is not compared: a correct program must never raise an error. `own` marks values of the
program's own, which may differ between ranks.
"""

import enum
import functools
import hashlib
import os
import re
import types
from typing import Any, Callable, Collection, Dict, List, Mapping, Tuple

import numpy as np
import tensorflow as tf

from . import _code
from ._code import function_of, is_of_library
from ._value_differences import ORDER, OWN, UNKNOWN

_MAX_ELEMENTS = 1 << 16  # larger arrays are compared by sums or a digest, smaller arrays by element
_BLOCKS = 256  # number of blocks of a large array; each block has sums of its own
_MAX_NUMBER = 1 << 40  # larger integers are times, hashes and addresses, which are not compared
_ADDRESS = re.compile(r"0x[0-9a-f]{6,}|\d{12,}")
_MAX_DEPTH = 4  # of nested objects and functions
# Words in names of attributes that may differ between the ranks of a correct program.
_OF_RANKS = re.compile(
    r"(?:^|_)(?:rank|seeds?|paths?|dirs?|directory|folder|files?|filename|time|timer|clock|started|uid|uuid|pid|"
    r"worker|workers|host|hostname|device|devices|replica|verbose|verbosity|debug|logs?|logger|writer|counts?|counter|calls|"
    r"called|epochs?|iterations?|batches|traces?|traced|cache|history|chief|leader|print|save|initializer|"
    r"lock|registered|random|generator|rng|strategy|hvd|comm)(?:_|$)",
    re.IGNORECASE,
)
# Words in names of attributes whose values may differ, though not in their order, for example "feature_names".
_OF_NAMES = re.compile(r"(?:^|_)(?:names?|id|main|master|primary|is|module)(?:_|$)", re.IGNORECASE)
_ORDERED = (list, tuple, dict)
_CONTAINERS = (*_ORDERED, set, frozenset, np.ndarray, tf.Tensor)


def is_compared(name: str) -> bool:
    """True if an attribute, argument or variable of this name must be equal on all ranks."""
    return not _OF_RANKS.search(name) and not _OF_NAMES.search(name)


class LazyValue:
    """A value that is expensive to describe: ranks compare the
    digest first, and call `value` only if digests differ."""

    def __init__(self, digest: str, value: Callable[[], Any]):
        self.digest = digest
        self.value = value


def comparable(value: Any, depth: int = 0) -> Any:
    """A description that is equal on all ranks if the values
    compute the same. UNKNOWN for values that are not compared."""
    try:
        return _comparable(value, depth)
    except Exception:  # pylint: disable=broad-except  # code of the program, in objects of any kind
        return UNKNOWN


def own(name: str, value: Any, iterated: Collection[str] = (), only_order: bool = False) -> Any:
    """`comparable` for a value of the program's own with this name.
    iterated: names whose values the program iterates over."""
    if _OF_RANKS.search(name):
        return UNKNOWN
    if isinstance(value, (set, frozenset)) and name.rpartition(".")[2] in iterated:
        value, only_order = list(value), True
    if only_order or _OF_NAMES.search(name) or _is_plain_object(value):
        return _only_order(value, 0)
    described = comparable(value)
    return UNKNOWN if described == UNKNOWN else {OWN: described}


def _only_order(value: Any, depth: int) -> Any:
    is_compared_here = isinstance(value, (*_CONTAINERS, LazyValue)) or is_table(value) or _is_plain_object(value)
    described = comparable(value, depth) if is_compared_here else UNKNOWN
    return UNKNOWN if described == UNKNOWN else {ORDER: described}


def _comparable(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return UNKNOWN if os.path.isabs(value) or _ADDRESS.search(value) else repr(value)
    if isinstance(value, int) and abs(value) > _MAX_NUMBER:
        return UNKNOWN
    if isinstance(value, enum.Enum):
        return str(value)
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, (complex, bytes, type(Ellipsis))):
        return repr(value)
    if isinstance(value, (float, np.floating)):
        return float(value)
    if isinstance(value, (np.ndarray, np.generic, tf.Tensor)):
        return _describe_array(value)
    if isinstance(value, tf.DType):
        return value.name
    if isinstance(value, type):
        return f"class {value.__qualname__}"
    return UNKNOWN if depth > _MAX_DEPTH else _describe_structure(value, depth + 1)


def _describe_structure(value: Any, depth: int) -> Any:
    if isinstance(value, (set, frozenset)):
        return sorted((comparable(each, depth) for each in value), key=repr)
    if isinstance(value, (list, tuple, tf.TensorShape)):
        return [comparable(each, depth) for each in value]
    if isinstance(value, Mapping):
        return _describe_mapping(value, depth)
    if isinstance(value, slice):
        return ["slice", *(comparable(each, depth) for each in (value.start, value.stop, value.step))]
    if isinstance(value, functools.partial):
        return [comparable(value.func, depth), {OWN: comparable([value.args, value.keywords], depth)}]
    if is_table(value):
        return describe_table(value)
    function = function_of(value)
    if function is not None:
        return describe_function(function, depth)
    return _describe_object(value, depth)


def _describe_array(value: Any) -> Any:
    if isinstance(value, tf.Tensor) and not hasattr(value, "numpy"):
        return UNKNOWN  # a tensor of a graph
    array = np.asarray(value)
    if array.dtype.hasobject and not all(isinstance(each, (str, bytes)) for each in array.flat):
        return UNKNOWN
    are_texts = array.dtype.kind in "OSU"
    if array.ndim == 0 and array.dtype.kind in "biuf":
        return array.item()
    if are_texts or (array.size <= _MAX_ELEMENTS and array.dtype.kind not in "cV"):
        parts = [repr(each) if are_texts else each for each in array.ravel().tolist()]
    elif array.dtype.kind == "f":
        parts = _sums(array.ravel())
    else:
        parts = [f"contents {hashlib.sha256(array.tobytes()).hexdigest()[:12]}"]
    return {f"array {array.dtype.name} {array.shape}": parts}


def _sums(array: Any) -> List[float]:
    """Two numbers for each block of a large array. Rounding changes these numbers as little as it changes the elements.
    Different contents, or a different order, change them much more."""
    parts = []
    for block in np.array_split(array, _BLOCKS):
        block = block.astype(np.float64)
        size = float(np.abs(block).sum())
        weighted = float(block @ np.cos(np.arange(block.size))) / size if size else 0.0
        parts += [size, 2.0 + weighted]  # far from zero, where rounding would be a large relative difference
    return parts


def _describe_mapping(value: Mapping, depth: int) -> Any:
    kind = value.get("class_name")
    if isinstance(kind, str) and kind == "__lambda__":  # marshalled code, which contains the path of its file
        return UNKNOWN
    items = {key: comparable(each, depth) if _is_compared_key(key, value) else UNKNOWN for key, each in value.items()}
    if isinstance(value.get("learning_rate"), (int, float, np.floating)):
        items["learning_rate"] = UNKNOWN  # an optimizer's: a different rate is replaced by rank 0's, with a warning
    return {f"[{key!r}]": each for key, each in items.items() if isinstance(key, (str, int, float, tuple))}


def _is_compared_key(key: Any, value: Mapping) -> bool:
    """True if the entry must be equal on all ranks. The name in a dictionary without other entries, such as a dtype
    policy's, identifies the object and is compared."""
    return not isinstance(key, str) or is_compared(key) or len(value) == 1


def _is_plain_object(value: Any) -> bool:
    """True for an object of the program that only holds data, such as a configuration or an encoder."""
    if (
        isinstance(value, (type, types.ModuleType, *_CONTAINERS))
        or is_of_library(type(value))
        or function_of(value) is not None
    ):
        return False
    return hasattr(value, "__dict__") and not hasattr(value, "get_config") and not isinstance(value, (tf.Module, enum.Enum))


def _describe_object(value: Any, depth: int) -> Any:
    """Describes regularizers, constraints, policies, and objects of the program's own classes."""
    import keras

    if isinstance(
        value, (keras.Layer, keras.Variable, tf.Variable, keras.initializers.Initializer, keras.random.SeedGenerator)
    ):
        return UNKNOWN
    if hasattr(value, "get_config"):
        config = config_of(value)
        is_library = is_of_library(type(value))
        parts = comparable(config if config is not None else attributes(value), depth)
        return [f"class {type(value).__name__}", parts if is_library else {OWN: parts}]
    if _is_plain_object(value):
        return {ORDER: {f"attribute '{name}'": comparable(each, depth + 1) for name, each in attributes(value, True).items()}}
    return UNKNOWN


def config_of(value: Any) -> Any:
    """The result of get_config(); None if the program's class does not support it."""
    import warnings

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return value.get_config()
    except Exception:  # pylint: disable=broad-except  # code of the program, which it may never call itself
        return None


def attributes(value: Any, only_containers: bool = False) -> Dict[str, Any]:
    """The attributes of an object of the program that must be equal on all ranks. Booleans are left out: most of them
    say whether this rank writes, prints or keeps something."""
    kept = {name: each for name, each in vars(value).items() if not isinstance(each, (bool, type(None)))}
    if only_containers:
        return {
            name: each for name, each in kept.items() if not _OF_RANKS.search(name) and not isinstance(each, (int, float, str))
        }
    return {name: each for name, each in kept.items() if is_compared(name)}


# ---- Functions ------------------------------------------------------------------------------------------------------


def describe_function(function: Any, depth: int = 0) -> Any:
    """Describes a library's function by its name, a function of the program by its code, the constants that the
    function refers to, and the order of the sets that it iterates over."""
    if is_of_library(function) or not isinstance(function, types.FunctionType):
        library = str(getattr(function, "__module__", "")).partition(".")[0]
        return f"function {library}.{getattr(function, '__qualname__', function)}"
    names, sets = _code.iterated(function.__code__)
    parts = {"code": _code.digest(function.__code__), "defaults": {OWN: comparable(_defaults(function), depth)}}
    for number, each in enumerate(sets):
        parts[f"set {number}"] = {ORDER: each}
    for kind, name, value in _code.references(function):
        described = UNKNOWN
        if isinstance(value, types.FunctionType):
            if depth <= _MAX_DEPTH and is_compared(name) and not is_of_library(value):
                described = describe_function(value, depth + 1)
        elif is_constant(value):
            described = own(name, value, names, isinstance(value, (np.ndarray, tf.Tensor)))
        if described != UNKNOWN:
            parts[f"{kind} '{name}'"] = described
    return parts


def _defaults(function: Any) -> Any:
    return [function.__defaults__, function.__kwdefaults__]


def is_container(value: Any) -> bool:
    return isinstance(value, _CONTAINERS) or is_table(value)


def is_constant(value: Any) -> bool:
    """True for values of globals and closure variables that are compared. Strings and booleans are not compared: most
    of them decide what a rank prints and where it writes."""
    if isinstance(value, (bool, str, np.bool_)):
        return False
    return isinstance(value, (int, float, np.generic, *_CONTAINERS)) or is_table(value) or _is_plain_object(value)


# ---- Tables ---------------------------------------------------------------------------------------------------------


def is_table(value: Any) -> bool:
    return isinstance(value, tf.lookup.experimental.MutableHashTable) or hasattr(_base_table(value), "export")


def _base_table(value: Any) -> Any:
    """The table of known keys, without buckets for unknown keys."""
    if isinstance(value, tf.lookup.StaticVocabularyTable):
        return getattr(value, "_table", None)
    return value if isinstance(value, (tf.lookup.StaticHashTable, tf.lookup.experimental.DenseHashTable)) else None


def describe_table(table: Any) -> Any:
    """Describes a lookup table: the keys in the order of their
    values, with each value unless it is the key's position."""
    if not tf.executing_eagerly():
        return UNKNOWN
    try:
        keys, values = _exported(table)
    except tf.errors.FailedPreconditionError:  # the table is not initialised yet
        return []
    digest = hashlib.sha256()
    for each in (keys, values):
        digest.update(b"\0".join(each.ravel().tolist()) if each.dtype.hasobject else each.tobytes())
    return LazyValue(digest.hexdigest(), lambda: _texts(*(each.tolist() for each in _exported(table))))


def _exported(table: Any) -> Tuple[np.ndarray, np.ndarray]:
    """Keys and values, in the order of the values."""
    keys, values = (np.asarray(each) for each in (_base_table(table) or table).export())
    if values.ndim == 1 and not values.dtype.hasobject:
        order = np.argsort(values, kind="stable")
        if np.all(np.diff(values[order]) > 0):
            return keys[order], values[order]
    order = sorted(range(len(keys)), key=lambda place: (repr(values[place]), keys[place]))
    return keys[order], values[order]


def _texts(keys: List[Any], values: List[Any]) -> Any:
    first = values[0] if values else 0
    are_places = isinstance(first, int) and values == list(range(first, first + len(values)))
    texts = [_text(key) if are_places else f"{_text(key)}: {_text(value)}" for key, value in zip(keys, values)]
    return {f"table from {first}" if are_places else "table": texts}


def _text(value: Any) -> str:
    return repr(value.decode(errors="replace") if isinstance(value, bytes) else value)
