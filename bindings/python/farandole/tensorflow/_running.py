"""Adding an op of the library to a graph, or running it at once."""

import re
from typing import Any, Callable, List, Optional, Sequence

import tensorflow as tf

from .. import _engine
from . import _errors


def normalize_name(name: str) -> str:
    """`name` with what TensorFlow does not allow in names of ops replaced."""
    return re.sub("[^a-zA-Z0-9_]", "_", name)


def set_number(process_set: Any) -> int:
    """Number of a process set, given as None, a number or an object. Raises InvalidArgument if it has none yet."""
    if process_set is None:
        return _engine.GLOBAL_SET
    if hasattr(process_set, "process_set_id"):
        from ..process_sets import id_of

        return id_of(process_set)
    return int(process_set)


def factor_text(value: Any) -> str:
    """All digits of a number: attributes of type float would keep seven."""
    return repr(float(value))


def tensors_of(values: Sequence[Any]) -> List[tf.Tensor]:
    if isinstance(values, (tf.Tensor, tf.Variable)):
        raise ValueError("a grouped collective takes a list of tensors, not one tensor")
    return [tf.convert_to_tensor(value) for value in values]


def run(
    function: Callable[..., Any], default_name: str, inputs: Sequence[tf.Tensor], name: Optional[str], /, **arguments
) -> Any:
    """Runs an op of the library, or adds it to the graph, where it waits for nothing but its inputs.

    There the op has the name `name`, else one made of `default_name` and the names of the first and the last input.
    """
    if tf.executing_eagerly():
        return run_eagerly(function, tensor_name=name or "", **arguments)
    if name is None:
        ends = [inputs[0].name] if len(inputs) == 1 else [inputs[0].name, inputs[-1].name]
        name = "_".join([default_name, *ends])
    result = function(name=normalize_name(name), **arguments)
    _run_independently(result)
    return result


def run_eagerly(function: Callable[..., Any], **arguments) -> Any:
    try:
        return function(caller_waits=True, **arguments)
    except tf.errors.AbortedError as error:
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
    name = forward and f"{forward.name.rpartition('/')[2] if ignore_name_scope else forward.name}_{suffix}"
    return {"name": name, "ignore_name_scope": ignore_name_scope, "process_set": op.get_attr("process_set")}


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
