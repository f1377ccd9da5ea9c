# SPDX-License-Identifier: Apache-2.0
"""Adding an op of the library to a graph, or running it at once."""

import collections
import functools
import inspect
import operator
import re
from typing import Any, Callable, List, Optional, Sequence

import tensorflow as tf
from tensorflow.python.ops import control_flow_util

from .. import _engine, _waiting, errors
from ..process_sets import id_of
from . import _errors, _graph_frames

# All eager calls without a name have this one. They come one at a time and in the same order on all ranks, as calls of MPI
# do; ranks that disagree in what they call are told at once, since the name is the same.
_UNNAMED = "(unnamed)"

# Raised before the engine has a request. What an op raises after that is known to all ranks.
_NOT_SUBMITTED = (errors.Error, TypeError, ValueError, tf.errors.InvalidArgumentError, tf.errors.UnimplementedError)


def collective(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator of a function with the arguments `name` and `process_set`. If it runs eagerly, and raises before the
    engine has its request, the ranks that make the same call would wait for this one: they raise Mismatch."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except _NOT_SUBMITTED as error:
            _refuse(error, signature, args, kwargs)
            raise

    return wrapper


def _refuse(error: Any, signature: inspect.Signature, args: Any, kwargs: Any) -> None:
    if _errors.is_known_to_all(error) or not tf.executing_eagerly() or not _engine.is_initialized():
        return
    _errors.known_to_all(error)  # this function may be called by another collective
    try:
        arguments = signature.bind(*args, **kwargs).arguments
    except TypeError:
        return  # there is no such argument
    try:
        process_set = set_number(arguments.get("process_set"))
    except (errors.InvalidArgument, TypeError, ValueError):
        # There is no such set: the others, if they made the call rightly, made it in another one. Most are in that of all
        # ranks, where the next call of this rank must not take the place of this one.
        process_set = _engine.GLOBAL_SET
    _engine.refuse(str(arguments.get("name") or _UNNAMED), process_set, error)


def normalize_name(name: str) -> str:
    """`name` with what TensorFlow does not allow in names of ops replaced."""
    return re.sub("[^a-zA-Z0-9_]", "_", name)


def set_number(process_set: Any) -> int:
    """Number of a process set, given as None, a number or an object. Raises InvalidArgument if it has none yet, and in a
    job if there is no set of this number, also where a graph is made."""
    if process_set is None:
        return _engine.GLOBAL_SET
    number = id_of(process_set) if hasattr(process_set, "process_set_id") else int(process_set)
    if number == _engine.GLOBAL_SET or not _engine.is_initialized():
        return number
    if _engine.process_set_ranks(number) is None:
        text = f"there is no process set {number}; there are {sorted(_engine.process_sets())}"
        raise _errors.invalid_argument(text) if tf.executing_eagerly() else errors.InvalidArgument(text)
    return number


def root_number(root_rank: Any) -> int:
    """As an attribute of 32 bits. What has more is none of the ranks, and neither is what becomes of it."""
    return min(max(operator.index(root_rank), -1), 2**31 - 1)


def factor_text(value: Any) -> str:
    """All digits of a number: attributes of type float would keep seven."""
    return repr(float(value))


def tensors_of(values: Sequence[Any]) -> List[tf.Tensor]:
    if isinstance(values, (tf.Tensor, tf.Variable)):
        raise ValueError("a grouped collective takes a list of tensors, not one tensor")
    return [tf.convert_to_tensor(value) for value in values]


def numbered(name: str) -> str:
    """`name`, and how often it has been asked for in the graph: also in those of the functions within it, whose ops may run
    side by side."""
    graph = tf.compat.v1.get_default_graph()
    while getattr(graph, "outer_graph", None) is not None and graph.outer_graph.building_function:
        graph = graph.outer_graph
    counts = getattr(graph, "_farandole_names", None)
    if counts is None:
        counts = graph._farandole_names = collections.Counter()
    counts[name] += 1
    return f"{name}_{counts[name] - 1}"


def name_from(default_name: str, inputs: Sequence[tf.Tensor]) -> Optional[str]:
    """Name of a collective in a graph that was given none, made of those of the first and the last input. None for
    eager calls."""
    if tf.executing_eagerly():
        return None
    ends = [inputs[0].name] if len(inputs) == 1 else [inputs[0].name, inputs[-1].name]
    return "_".join([default_name, *ends])


def run(
    function: Callable[..., Any], default_name: str, inputs: Sequence[tf.Tensor], name: Optional[str], /, **arguments
) -> Any:
    """Runs an op of the library, or adds it to the graph, where it waits for nothing but its inputs.

    There the op has the name `name`, else one made of `default_name` and the names of the first and the last input.
    """
    if tf.executing_eagerly():
        return run_named(function, name, **arguments)
    refuse_xla(default_name)
    with _graph_frames.hidden():
        result = function(name=normalize_name(name or name_from(default_name, inputs)), **arguments)
    _run_independently(result)
    return result


def refuse_xla(what: str) -> None:
    """Raises Unsupported where a function is traced that XLA will compile, which would fail later, without a hint."""
    if control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()):
        raise errors.Unsupported(
            f"{what} is in a function with jit_compile=True: XLA has no kernel for collectives between processes. Compile what "
            "comes before and after it by functions of its own; with Keras, compile(jit_compile=False)"
        )


def run_named(function: Callable[..., Any], name: Optional[str], /, **arguments) -> Any:
    """Runs an op of the library now. Ranks know it by its name, or by its turn."""
    return run_eagerly(function, tensor_name=name or _UNNAMED, **arguments)


def run_eagerly(function: Callable[..., Any], **arguments) -> Any:
    try:
        return function(caller_waits=_waiting.caller_is_alone(), **arguments)
    except tf.errors.OpError as error:
        ours = _errors.converted(error)
        if ours is None:
            raise
        raise ours from None


def _run_independently(result: Any) -> None:
    """Stateful ops of a `tf.function` run one after another, in the order in which they were written. Collectives must
    not: with another order on another rank they would wait for each other forever, and they are to overlap."""
    manager = getattr(tf.compat.v1.get_default_graph(), "experimental_acd_manager", None)
    if manager is not None and hasattr(manager, "run_independently"):
        first = result[0] if isinstance(result, (list, tuple)) else result
        manager.run_independently(first.op)


def of_gradient(op: Any, suffix: str = "gradient") -> dict:
    """Arguments of a collective that computes the gradient of `op`. Its name is made from that of `op`, because the
    names of the gradients' tensors may differ between ranks, which need not all use a result."""
    ignore_name_scope = op.get_attr("ignore_name_scope")
    forward = getattr(op.outputs[0], "op", None)  # None: it ran eagerly, and so does this
    name = forward and f"{forward.name}_{suffix}"
    if name and ignore_name_scope:
        # Several tapes may ask for it, each in a scope of its own, which is no part of the name.
        name = numbered(name.rpartition("/")[2])
    return {"name": name, "ignore_name_scope": ignore_name_scope, "process_set": op.get_attr("process_set")}


def is_in_strategy() -> bool:
    """Whether MirroredStrategy.run has called what is running. Each rank's loss is then its part of one, and gradients are
    those of that one; Horovod defines some otherwise."""
    return hasattr(tf.distribute.get_replica_context(), "function_name")


def need_sum_or_average(op: Any, what: str) -> None:
    if op.get_attr("reduce_op") not in (_engine.Sum, _engine.Average, _engine.Adasum):
        raise NotImplementedError(
            f"{what} has a gradient for Sum, Average and Adasum, not for "
            f"{_engine.ReduceOp(op.get_attr('reduce_op')).name}; use tf.stop_gradient if none is needed"
        )


def dense(gradients: Sequence[Any], like: Sequence[tf.Tensor]) -> List[tf.Tensor]:
    """Gradients as tensors: zeros where there is none, because the other ranks may have one."""
    return [
        tf.zeros_like(tensor) if gradient is None else tf.convert_to_tensor(gradient)
        for gradient, tensor in zip(gradients, like)
    ]
