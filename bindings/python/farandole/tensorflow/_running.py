# SPDX-License-Identifier: Apache-2.0
"""Runs an op of the library: eagerly, or by adding the op to a graph."""

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

# The name of all eager calls without a name. Such calls run in sequence and in the same order on all ranks, like calls
# of MPI. Because the name is the same, ranks whose calls differ get an error immediately.
_UNNAMED = "(unnamed)"

# Errors that are raised before the engine has a request. Errors of an op are known to all ranks already.
_NOT_SUBMITTED = (errors.Error, TypeError, ValueError, tf.errors.InvalidArgumentError, tf.errors.UnimplementedError)


def collective(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator of a collective with arguments `name` and `process_set`. Reports an eager call that raises before the
    engine has the request: peers that make the same call raise Mismatch instead of waiting for this rank."""
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
    _errors.known_to_all(error)  # `function` may be called by another decorated collective
    try:
        arguments = signature.bind(*args, **kwargs).arguments
    except TypeError:
        return  # the arguments do not match the signature
    try:
        process_set = set_number(arguments.get("process_set"))
    except (errors.InvalidArgument, TypeError, ValueError):
        # There is no such set. Correct ranks made the call in another set, most likely in the set of all ranks. There,
        # this rank's next call must not be matched with their present call.
        process_set = _engine.GLOBAL_SET
    _engine.refuse(str(arguments.get("name") or _UNNAMED), process_set, error)


def normalize_name(name: str) -> str:
    """`name` with underscores in place of characters that TensorFlow does not allow in names of ops."""
    return re.sub("[^a-zA-Z0-9_]", "_", name)


def set_number(process_set: Any) -> int:
    """Returns the number of a process set. process_set: None for all ranks, a number or a ProcessSet. Raises
    InvalidArgument, also while a graph is built, if a ProcessSet is not registered or if the job has no set of this
    number."""
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
    """Converts `root_rank` to a 32-bit attribute. Clamps a number out of range to a number that is no rank."""
    return min(max(operator.index(root_rank), -1), 2**31 - 1)


def factor_text(value: Any) -> str:
    """A number with all digits. An attribute of type float would keep seven."""
    return repr(float(value))


def tensors_of(values: Sequence[Any]) -> List[tf.Tensor]:
    if isinstance(values, (tf.Tensor, tf.Variable)):
        raise ValueError("a grouped collective takes a list of tensors, not one tensor")
    return [tf.convert_to_tensor(value) for value in values]


def numbered(name: str) -> str:
    """`name` with a count of its uses in the outermost graph. Functions within
    the graph share the count, because their ops may run concurrently."""
    graph = tf.compat.v1.get_default_graph()
    while getattr(graph, "outer_graph", None) is not None and graph.outer_graph.building_function:
        graph = graph.outer_graph
    counts = getattr(graph, "_farandole_names", None)
    if counts is None:
        counts = graph._farandole_names = collections.Counter()
    counts[name] += 1
    return f"{name}_{counts[name] - 1}"


def name_from(default_name: str, inputs: Sequence[tf.Tensor]) -> Optional[str]:
    """Name of a collective in a graph without a given name: `default_name`
    and the names of the first and last input. None in eager mode."""
    if tf.executing_eagerly():
        return None
    ends = [inputs[0].name] if len(inputs) == 1 else [inputs[0].name, inputs[-1].name]
    return "_".join([default_name, *ends])


def run(
    function: Callable[..., Any], default_name: str, inputs: Sequence[tf.Tensor], name: Optional[str], /, **arguments
) -> Any:
    """Runs an op of the library. In a graph, adds the op instead, which then depends on its inputs only.

    In a graph the op's name is `name`, or else made by `name_from`.
    """
    if tf.executing_eagerly():
        return run_named(function, name, **arguments)
    refuse_xla(default_name)
    with _graph_frames.hidden():
        result = function(name=normalize_name(name or name_from(default_name, inputs)), **arguments)
    _run_independently(result)
    return result


def refuse_xla(what: str) -> None:
    """Raises Unsupported while XLA's compiler traces a function.
    Otherwise compilation would fail later, without a hint."""
    if control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()):
        raise errors.Unsupported(
            f"{what} is in a function with jit_compile=True: XLA has no kernel for collectives between processes. Compile what "
            "comes before and after it by functions of its own; with Keras, compile(jit_compile=False)"
        )


def run_named(function: Callable[..., Any], name: Optional[str], /, **arguments) -> Any:
    """Runs an op of the library eagerly. `name` matches the calls of the ranks; without a name, their order does."""
    return run_eagerly(function, tensor_name=name or _UNNAMED, **arguments)


def run_eagerly(function: Callable[..., Any], **arguments) -> Any:
    """Runs an op eagerly. Blocks. Raises the classes of `farandole.errors`."""
    try:
        return function(caller_waits=_waiting.is_only_thread(), **arguments)
    except tf.errors.OpError as error:
        ours = _errors.converted(error)
        if ours is None:
            raise
        raise ours from None


def _run_independently(result: Any) -> None:
    """Exempts the op from automatic control dependencies. TensorFlow runs stateful
    ops of a `tf.function` in sequence, in the order in which they were written.
    Collectives must overlap, and ranks with different orders would wait forever."""
    manager = getattr(tf.compat.v1.get_default_graph(), "experimental_acd_manager", None)
    if manager is not None and hasattr(manager, "run_independently"):
        first = result[0] if isinstance(result, (list, tuple)) else result
        manager.run_independently(first.op)


def of_gradient(op: Any, suffix: str = "gradient") -> dict:
    """Returns arguments of the collective that computes the gradient of `op`. Derives the name from the name of `op`,
    because names of gradient tensors may differ between ranks: a rank may leave a result unused."""
    ignore_name_scope = op.get_attr("ignore_name_scope")
    forward = getattr(op.outputs[0], "op", None)  # None: the op ran eagerly, and so does its gradient
    name = forward and f"{forward.name}_{suffix}"
    if name and ignore_name_scope:
        # Several tapes may compute this gradient, each within a
        # name scope of its own, which must not be part of the name.
        name = numbered(name.rpartition("/")[2])
    return {"name": name, "ignore_name_scope": ignore_name_scope, "process_set": op.get_attr("process_set")}


def is_in_strategy() -> bool:
    """True within a function that MirroredStrategy.run calls. There, each rank's loss is a term of one total loss, and
    gradients are derivatives of the total. Horovod defines the gradients of some collectives differently."""
    return hasattr(tf.distribute.get_replica_context(), "function_name")


def need_sum_or_average(op: Any, what: str) -> None:
    """Raises NotImplementedError unless the reduction of `op` is Sum, Average or Adasum, which have gradients."""
    if op.get_attr("reduce_op") not in (_engine.Sum, _engine.Average, _engine.Adasum):
        raise NotImplementedError(
            f"{what} has a gradient for Sum, Average and Adasum, not for "
            f"{_engine.ReduceOp(op.get_attr('reduce_op')).name}; use tf.stop_gradient if none is needed"
        )


def dense(gradients: Sequence[Any], like: Sequence[tf.Tensor]) -> List[tf.Tensor]:
    """Gradients as tensors. Zeros replace a missing gradient, because other ranks may have that gradient."""
    return [
        tf.zeros_like(tensor) if gradient is None else tf.convert_to_tensor(gradient)
        for gradient, tensor in zip(gradients, like)
    ]
