# SPDX-License-Identifier: Apache-2.0
"""Warns if each rank trains a Keras model on its own because the program has forgotten the strategy's scope.

Without the warning, each rank would train with all data, as if it had no peers. Keras may be imported before or after
the job is joined, or never; this module does not import Keras.
"""

import importlib.abc
import importlib.util
import sys
from typing import Any, Callable, Optional

from . import _engine
from ._replacing import replace

_TEXT = """each of {size} ranks trains or evaluates this model alone, with all data, because it was made outside of \
strategy.scope(). Add these lines, and make the model in the last one:
    import farandole.tensorflow as farandole
    strategy = farandole.MirroredStrategy()
    with strategy.scope():
If every rank is meant to have a model of its own, this is no fault."""

_has_warned = False
_requests_of_strategies = 0  # number of requests when the last strategy had been constructed


def watch() -> None:
    """Watches Keras' fit and evaluate from now on. Called on one rank, after it has joined the job."""
    keras = sys.modules.get("keras")
    if keras is None:
        sys.meta_path.insert(0, _Finder())
    elif hasattr(keras, "callbacks"):
        _watch(keras)


def ignore_collectives_so_far() -> None:
    """Called when a strategy has been constructed: the collectives so far are not the program's own."""
    global _requests_of_strategies
    _requests_of_strategies = _requests()


def _requests() -> int:
    return _engine.counters()["requests"]


class _Finder(importlib.abc.MetaPathFinder):
    """Import hook that delegates to the other finders, and patches Keras once it is imported."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname != "keras":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        loader = getattr(spec, "loader", None)
        if loader is not None:
            execute = loader.exec_module

            def exec_module(module: Any) -> None:
                execute(module)
                _watch(module)

            loader.exec_module = exec_module
        return spec


def _watch(keras: Any) -> None:
    """Patches CallbackList, once."""
    callback_list = getattr(getattr(keras, "callbacks", None), "CallbackList", None)
    is_watched = hasattr(callback_list, "_farandole_watches")
    if callback_list is None or is_watched or not hasattr(keras, "config") or keras.config.backend() != "tensorflow":
        return
    callback_list._farandole_watches = True
    replace(callback_list, "set_model", set_model)


def set_model(base: Callable[..., Any], self: Any, model: Any) -> None:
    """CallbackList.set_model: adds a callback that observes training, if nothing keeps the ranks together."""
    if model and not _has_warned and _is_alone(model, self.callbacks):
        self.callbacks.append(_make_observer())
    base(self, model)


def _is_alone(model: Any, callbacks: Any) -> bool:
    """True if the model has no strategy and no callback of this package, and no optimizer that reduces gradients."""
    strategy = getattr(model, "distribute_strategy", None)
    optimizer = getattr(model, "optimizer", None)
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    objects = [*type(strategy).__mro__, *map(type, callbacks)]
    is_ours = any(kind.__module__.startswith("farandole.") for kind in objects)
    return not is_ours and not getattr(type(optimizer), "_farandole_reduces", False)


def _make_observer() -> Any:
    import keras

    class Observer(keras.callbacks.Callback):
        """Warns if a training step has run no collective, for example by a gradient tape of Horovod's API. Warns, too,
        if the program evaluates a model before it has run a collective of its own."""

        requests: Optional[int] = None  # None: not training

        def on_train_begin(self, logs: Any = None) -> None:
            self.requests = _requests()

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if self.requests is not None and self.requests == _requests():
                _warn()

        def on_test_begin(self, logs: Any = None) -> None:
            if self.requests is None and _requests() == _requests_of_strategies:
                _warn()

    return Observer()


def _warn() -> None:
    global _has_warned
    if not _has_warned:
        _has_warned = True
        _engine.log("warning", _TEXT.format(size=_engine.place().size))
