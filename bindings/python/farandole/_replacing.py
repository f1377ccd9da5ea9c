# SPDX-License-Identifier: Apache-2.0
"""Replaces functions of other packages. tensorflow/strategy/_patches.py
lists all functions that this package replaces."""

import functools
from typing import Any, Callable


def replace(owner: Any, name: str, replacement: Callable[..., Any], shows_base: bool = True) -> None:
    """Sets the attribute `name` of a class or module to a function that calls `replacement(base, …)`, where `base` is
    the old value.

    shows_base: whether the new function has the old function as its __wrapped__, as functools.wraps does.
    """
    base = getattr(owner, name)

    @functools.wraps(base)
    def replaced(*args: Any, **kwargs: Any) -> Any:
        return replacement(base, *args, **kwargs)

    if not shows_base:
        del replaced.__wrapped__
    setattr(owner, name, replaced)
