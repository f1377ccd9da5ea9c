# SPDX-License-Identifier: Apache-2.0
"""Static analysis of the bytecode of functions: the objects that
a function refers to, and the sets that it iterates over."""

import dis
import hashlib
import os
import sys
import types
from typing import Any, Dict, Iterator, List, Set, Tuple

import numpy as np

_LIBRARIES = ("builtins", "keras", "tensorflow", "numpy", "math", "operator", "functools", "farandole")
_CODE = f"code of Python {sys.version_info[0]}.{sys.version_info[1]} "  # the bytecode differs between versions
_NO_EFFECT = ("CACHE", "EXTENDED_ARG", "NOP", "PRECALL", "PUSH_NULL", "RESUME")
_OF_GLOBALS = ("LOAD_GLOBAL", "LOAD_NAME")
_OF_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
_IN_ORDER = ("list", "tuple", "enumerate", "iter")  # functions that iterate over their argument


def is_of_library(thing: Any) -> bool:
    """True for a class or function of a library, False for the program's."""
    return str(getattr(thing, "__module__", None) or "builtins").partition(".")[0] in _LIBRARIES


def function_of(value: Any) -> Any:
    """The function behind a property, a method or a tf.function. None if `value` is not a function."""
    value = value.fget if isinstance(value, property) else value
    value = getattr(value, "python_function", value)  # of a tf.function
    value = getattr(value, "__func__", value)
    value = getattr(value, "__wrapped__", value) if is_of_library(value) or hasattr(value, "_tf_decorator") else value
    return value if isinstance(value, (types.FunctionType, types.BuiltinFunctionType, np.ufunc)) else None


def references(function: Any) -> Iterator[Tuple[str, str, Any]]:
    """(Kind, name, value) of the closure variables and globals that a function refers to."""
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or ()):
        try:
            yield "variable", name, cell.cell_contents
        except ValueError:  # the variable has no value yet
            continue
    found: Dict[str, Any] = {}
    for names in _globals(code):
        value = function.__globals__.get(names[0])
        depth = 1
        while isinstance(value, types.ModuleType) and depth < len(names) and value.__name__.partition(".")[0] not in _LIBRARIES:
            value = getattr(value, names[depth], None)
            depth += 1
        if names[0] in function.__globals__:
            found[".".join(names[:depth])] = value
    yield from (("global", name, value) for name, value in sorted(found.items()))


def attributes_of(code: Any) -> List[str]:
    """Names of the attributes that the code reads, of any object."""
    return [each.argval for each in _instructions(code) if each.opname in _OF_ATTRIBUTES]


def iterated(code: Any) -> Tuple[Set[str], List[List[str]]]:
    """(Names of variables, attributes and methods whose values the code iterates over, literal sets that the code
    iterates over). A set is given by the texts of its elements, in the order of this process."""
    names, sets = set(), []
    instructions = _instructions(code)
    for number, each in enumerate(instructions):
        before = instructions[max(number - 4, 0) : number][::-1]
        if each.opname == "GET_ITER" and before and before[0].opname.startswith("CALL") and before[0].arg == 0:
            before = before[1:]  # iterates over the result of a call
        elif each.opname.startswith("CALL"):
            is_in_order = each.arg == 1 and any(
                load.opname in _OF_GLOBALS and load.argval in _IN_ORDER for load in before[1:]
            )
            before = before if is_in_order else []
        elif each.opname != "GET_ITER":
            before = []
        if before and before[0].opname == "SET_UPDATE":
            before = before[1:]
        if before and isinstance(before[0].argval, frozenset):
            sets.append(list(map(repr, before[0].argval)))
        elif before and before[0].opname.startswith("LOAD") and isinstance(before[0].argval, str):
            names.add(before[0].argval)
    return names, sets


def returned(code: Any) -> Set[str]:
    """Names of variables and attributes whose values the code returns unchanged."""
    instructions = _instructions(code)
    pairs = zip(instructions, instructions[1:])
    return {load.argval for load, then in pairs if then.opname == "RETURN_VALUE" and isinstance(load.argval, str)}


def digest(code: Any) -> str:
    """ "code of Python 3.11 0123456789ab at model.py:12". The place after "at" may differ between ranks."""
    text = hashlib.sha256(repr(_comparable_code(code)).encode()).hexdigest()[:12]
    return f"{_CODE}{text} at {os.path.basename(code.co_filename)}:{code.co_firstlineno}"


def is_digest(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("code of Python ")


def is_same_digest(left: str, right: str) -> bool:
    """True if the digests are equal, or if they are of different versions of Python, which cannot be compared."""
    return left.split()[:4] != right.split()[:4] or left.split()[4] == right.split()[4]


def shown_digest(value: str) -> str:
    """ "the code at model.py:12 (0123456789ab)"."""
    return f"the code at {value.split(' at ', 1)[1]} ({value.split()[4]})"


def _instructions(code: Any) -> List[Any]:
    """The instructions of the code and of the functions that are nested in the code."""
    found = [each for each in dis.get_instructions(code) if each.opname not in _NO_EFFECT]
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            found += _instructions(each)
    return found


def _globals(code: Any) -> Iterator[List[str]]:
    """Global names that the code reads, each followed by the chain of attributes read from it."""
    instructions = _instructions(code)
    for number, each in enumerate(instructions):
        if each.opname in _OF_GLOBALS:
            names = [each.argval]
            for then in instructions[number + 1 :]:
                if then.opname not in _OF_ATTRIBUTES:
                    break
                names.append(then.argval)
            yield names


def _comparable_code(code: Any) -> Any:
    constants = [_comparable_code(each) if isinstance(each, types.CodeType) else _comparable_constant(each) for each in code.co_consts]
    return [code.co_code, code.co_names, code.co_varnames, code.co_freevars, constants]


def _comparable_constant(value: Any) -> str:
    """Text of a constant. Elements of sets are sorted, because their order differs between processes."""
    return repr(sorted(map(repr, value))) if isinstance(value, frozenset) else repr(value)
