# SPDX-License-Identifier: Apache-2.0
"""Pickles functions together with the names of their files.

Since version 3.1.3 cloudpickle replaces the file name of a function that it pickles by value with "<dynamic-code>". A
traceback on the receiving rank would then show neither the file nor the source lines of the user's function.
"""

import collections
import io
import types
from typing import Any, Callable, Tuple


def _with_file(make: Callable[..., types.CodeType], arguments: Tuple[Any, ...], file: str) -> types.CodeType:
    return make(*arguments).replace(co_filename=file)


def dumps(obj: Any) -> bytes:
    """cloudpickle's pickle of an object. Raises ImportError without cloudpickle, and cloudpickle's errors."""
    import cloudpickle

    def reduce(code: types.CodeType) -> Tuple[Any, ...]:
        make, arguments = cloudpickle.CloudPickler.dispatch_table[types.CodeType](code)[:2]
        return _with_file, (make, arguments, code.co_filename)

    class Pickler(cloudpickle.CloudPickler):
        dispatch_table = collections.ChainMap({types.CodeType: reduce}, cloudpickle.CloudPickler.dispatch_table)

    with io.BytesIO() as file:
        Pickler(file).dump(obj)
        return file.getvalue()
