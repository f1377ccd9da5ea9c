# SPDX-License-Identifier: Apache-2.0
"""Patches of Keras' fit, evaluate, predict and *_on_batch: check that all ranks call the same function and, in fit,
evaluate and predict, pass the same arguments.

Without the check, ranks that call different functions would wait for each other, and ranks that pass different
arguments would train different models. The ranks compare a digest of the facts that must be equal. If digests differ,
they exchange the facts and raise an error in the program's own terms.
"""

import functools
import hashlib
import inspect
import json
import os
from typing import Any, Callable, Dict, Iterator, List

import tensorflow as tf

from ... import _engine, _lifecycle, objects
from .._differences import difference, shortened
from . import _drift, _models
from ._extended import is_farandole_strategy
from ._input import DistributedIterator
from ._progress import BATCH, BEGIN, progress, raise_mismatch
from ._variables import number_of

# Arguments of fit, evaluate and predict that are compared by value.
_PLAIN = (
    "batch_size",
    "epochs",
    "initial_epoch",
    "steps",
    "steps_per_epoch",
    "validation_batch_size",
    "validation_freq",
    "validation_split",
    "validation_steps",
    "class_weight",
)
# Entries of configurations that may differ between ranks, or that other code compares or makes equal.
_LEFT_OUT = ("name", "learning_rate")


# ---- Facts: values that ranks compare, by their description in words ------------------------------------------------


def _described(value: Any) -> str:
    """Describes a value by its name or type and its configuration, without addresses, so that equivalent objects on
    different ranks give the same text."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {_described(each)}" for key, each in sorted(_kept(value).items())) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_described(each) for each in value) + "]"
    name = str(getattr(value, "__name__", None) or type(value).__name__)
    configuration = ", ".join(f"{key}={_described(each)}" for key, each in sorted(_configuration(value).items()))
    return f"{name}({configuration})" if configuration else name


def _kept(configuration: Dict[Any, Any]) -> Dict[str, Any]:
    """Drops the entries in _LEFT_OUT. Exception: a sole entry is kept, because it identifies the object (a dtype policy
    has only a `name`)."""
    is_known = len(configuration) == 1
    return {str(key): each for key, each in configuration.items() if is_known or key not in _LEFT_OUT}


def _configuration(value: Any) -> Dict[str, Any]:
    """The configuration of a Keras object; empty for other objects."""
    try:
        configuration = _kept(value.get_config())
    except (AttributeError, NotImplementedError, TypeError, ValueError):  # the program's class may not support saving
        return {}
    return {key: each for key, each in configuration.items() if _is_plain(each)}


def _is_plain(value: Any) -> bool:
    """True if the text of the value is the same in every process."""
    if isinstance(value, dict):
        return all(_is_plain(each) for each in value.values())
    if isinstance(value, (list, tuple)):
        return all(_is_plain(each) for each in value)
    return value is None or isinstance(value, (bool, int, float, str))


def _facts_of_model(model: Any) -> Dict[str, str]:
    facts = {}
    if getattr(model, "compiled", False):
        loss, metrics = getattr(model, "_compile_loss", None), getattr(model, "_compile_metrics", None)
        facts["compile(): the loss"] = _described(getattr(loss, "_user_loss", None))
        facts["compile(): loss_weights"] = _described(getattr(loss, "_user_loss_weights", None))
        facts["compile(): the metrics"] = _described(getattr(metrics, "_user_metrics", None))
        facts["compile(): weighted_metrics"] = _described(getattr(metrics, "_user_weighted_metrics", None))
        facts["compile(): the optimizer"] = type(model.optimizer).__name__
        for name, value in _configuration(model.optimizer).items():
            facts[f"compile(): {name} of the optimizer"] = _described(value)
        facts["compile(): steps_per_execution"] = _described(model.steps_per_execution)
        facts["compile(): run_eagerly"] = _described(model.run_eagerly)
    if model.built:
        facts["the model, counted as they were made"] = str(_number(model))
        variables = model.trainable_variables
        facts["the number of trainable variables"] = str(len(variables))
        for number, variable in enumerate(variables):
            facts[f"trainable variable {number}"] = f"{variable.dtype} {tuple(variable.shape)}"
    return facts


def _rows(structure: Any) -> List[int]:
    """Number of rows of each array and tensor in the structure."""
    return [int(leaf.shape[0]) for leaf in tf.nest.flatten(structure) if len(getattr(leaf, "shape", None) or ()) > 0]


def _facts_of_data(call: str, arguments: Dict[str, Any]) -> Dict[str, str]:
    """Numbers of rows and batches, unless `steps` says how many are taken."""
    if arguments.get("steps") or arguments.get("steps_per_epoch"):
        return {}
    facts = {}
    for name in ("x", "y", "sample_weight"):
        value = arguments.get(name)
        if isinstance(value, tf.data.Dataset):
            batches = int(value.cardinality())
            if batches >= 0:
                facts[f"{call}(): the number of batches in {name}"] = str(batches)
            continue
        rows = _rows(value)
        if rows:
            facts[f"{call}(): the number of rows of {name}"] = ", ".join(map(str, rows))
    return facts


def _facts(model: Any, call: str, arguments: Dict[str, Any]) -> Dict[str, str]:
    facts = {f"{call}(): {name}": _described(arguments[name]) for name in _PLAIN if arguments.get(name) is not None}
    if "validation_data" in arguments:
        facts["fit(): validation_data"] = "given" if arguments["validation_data"] is not None else "not given"
    return {**facts, **_facts_of_data(call, arguments), **_facts_of_model(model)}


def _digest(facts: Dict[str, str]) -> int:
    text = json.dumps(facts, sort_keys=True).encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "little", signed=True)


def _compare(facts: Dict[str, str]) -> None:
    """Raises Mismatch on all ranks if a fact differs. A fact that some ranks lack differs too, except facts about
    trainable variables, which are compared only if all ranks have them. Collective."""
    of_ranks = objects.allgather_object(facts)
    missing = "left out"
    names = {name: None for each in of_ranks for name in each if not name.startswith("trainable variable ")}
    names.update({name: None for name in facts if all(name in each for each in of_ranks)})
    differences = []
    for name in names:
        values = [each.get(name, missing) for each in of_ranks]
        if not (name.startswith("the number of train") and missing in values):
            differences.append(difference(name, dict(enumerate(values))))
    differences = list(filter(None, differences))
    if differences:
        raise_mismatch(f"{shortened(differences)}: all ranks must compile and call alike, with the same data")


_has_warned_empty_parts = False


def _warn_empty_parts(model: Any, arguments: Dict[str, Any]) -> None:
    """Warns once if a rank will have no rows of the last batch and the model has convolutions or pooling, for which
    TensorFlow's oneDNN kernels may fail without rows."""
    global _has_warned_empty_parts
    of_data = _rows(arguments.get("x"))
    left = of_data[0] % (arguments.get("batch_size") or 32) if of_data else 0
    if _has_warned_empty_parts or not 0 < left < _lifecycle.size() or _lifecycle.rank() != 0:
        return
    kinds = sorted({type(layer).__name__ for layer in model._flatten_layers() if _is_image_layer(layer)})
    if kinds and os.environ.get("TF_ENABLE_ONEDNN_OPTS") != "0":
        _has_warned_empty_parts = True
        rows = f"{left} row{'s' if left > 1 else ''}"
        _engine.log(
            "warning",
            f"the last batch has {rows} for {_lifecycle.size()} ranks. TensorFlow's kernels of oneDNN for {', '.join(kinds)} may "
            "fail on a rank that has none: leave these rows out, choose another batch_size, or set "
            "TF_ENABLE_ONEDNN_OPTS=0",
        )


def _is_image_layer(layer: Any) -> bool:
    return "Conv" in type(layer).__name__ or "Pooling" in type(layer).__name__


# ---- Replacements of Keras' functions -------------------------------------------------------------------------------


def _is_single_rank(model: Any) -> bool:
    """True if no other rank takes part in the model's functions."""
    return _lifecycle.size() == 1 or not is_farandole_strategy(getattr(model, "distribute_strategy", None))


def call(name: str) -> Callable[..., Any]:
    """Returns the replacement of fit, evaluate or predict:
    compares arguments and models, then calls Keras' function."""

    def function(base: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
        if _is_single_rank(self):
            return base(self, *args, **kwargs)
        arguments = inspect.signature(base).bind(self, *args, **kwargs).arguments
        facts, model = _facts(self, name, arguments), _models.describe_model(self)
        _warn_empty_parts(self, arguments)
        with progress().within(name):
            digest = _digest({**facts, "model": model.digest() if model else ""})
            if not progress().agree(BEGIN, digest):
                _compare(facts)
                _models.refuse_difference(model)
            return base(self, *args, **kwargs)

    return function


def call_on_batch(name: str) -> Callable[..., Any]:
    """Returns the replacement of train_on_batch, test_on_batch or predict_on_batch. In train_on_batch and
    test_on_batch, the ranks agree on the batch when Keras passes it to the function of `make_function`."""

    def function(base: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
        if _is_single_rank(self):
            return base(self, *args, **kwargs)
        with progress().within(name):
            if name == "predict_on_batch":
                progress().agree(BATCH)
            result = base(self, *args, **kwargs)
        if name == "train_on_batch":
            _compare_models_at_intervals(self)
        return result

    return function


def _compare_models_at_intervals(model: Any) -> None:
    """Compares the models after 10, 100 and 1000 batches, and
    then after every 1000. `fit` compares after each epoch."""
    count = getattr(model, "_farandole_batches", 0) + 1
    object.__setattr__(model, "_farandole_batches", count)
    if count in (10, 100) or count % 1000 == 0:
        _drift.check(model, f"after {count} batches")


def _agreed(model: Any, batches: Any) -> Iterator[Any]:
    """Yields this rank's own batches. Before each batch, the ranks exchange their numbers of samples and compare the
    model's number."""
    for batch in batches:
        rows = _rows(batch)
        progress().agree(BATCH, _number(model), samples=rows[0] if rows else 0)
        yield batch


def _number(model: Any) -> int:
    """Distinguishes models of the same shape: the number of the
    first variable that was created for the model in a scope."""
    return min((number_of(variable.value) for variable in model.variables), default=0)


def make_function(base: Callable[..., Any], self: Any, step: Callable[..., Any]) -> Callable[..., Any]:
    """TensorFlowTrainer._make_function: returns the function that fit, evaluate,
    train_on_batch and test_on_batch call for each batch, or for several. The ranks
    agree on each batch beforehand, so the step need not exchange numbers of samples."""
    if _is_single_rank(self):
        return base(self, step)

    @functools.wraps(step)
    def agreed_step(data: Any) -> Any:
        return step(data)

    # ReplicaContext recognises steps by these attributes, also if the program's step has another name.
    agreed_step.__name__ = "train_step" if step == self.train_step else "test_step"
    agreed_step.__self__ = self
    agreed_step.samples_are_agreed = True
    function = base(self, agreed_step)

    def step_on(iterator: Any) -> Any:
        return function(iterator if isinstance(iterator, DistributedIterator) else _agreed(self, iterator))

    return step_on
