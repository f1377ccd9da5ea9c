# SPDX-License-Identifier: Apache-2.0
"""What the graph of a step says of how a tensor comes about. In eager mode there is no graph to ask."""

from typing import Any, Callable, Iterator, List

import tensorflow as tf

# What an op of these types gives is known without the values of its inputs.
_OF_SHAPES = ("Shape", "ShapeN", "Size", "Rank", "VariableShape")
# They keep the values.
_SAME = ("Identity", "Cast", "StopGradient", "EnsureShape", "CheckNumerics")
READS = ("ReadVariableOp", "ResourceGather", "ResourceGatherNd")


def is_symbolic(tensor: Any) -> bool:
    """Whether it is in a graph."""
    return tf.is_tensor(tensor) and not hasattr(tensor, "numpy") and hasattr(tensor, "op")


def origin(tensor: Any) -> Any:
    """The tensor itself; of one that a function, a branch or a loop has captured, that of the graph outside."""
    while is_symbolic(tensor) and tensor.op.type == "Placeholder":
        captured = [outer for outer, inner in tensor.graph.captures if inner.name == tensor.name]
        if not captured:
            break
        tensor = captured[0]
    return tensor


def source(tensor: Any) -> Any:
    """The tensor before what only hands its value on."""
    tensor = origin(tensor)
    while is_symbolic(tensor) and tensor.op.type in _SAME:
        tensor = origin(tensor.op.inputs[0])
    return tensor


def _behind(tensor: Any, is_end: Callable[[Any], bool]) -> Iterator[Any]:
    """The tensor and all that it is computed from, but nothing that is behind an end."""
    seen = set()
    waiting: List[Any] = [tensor]
    while waiting:
        each = origin(waiting.pop())
        key = (id(each.graph), each.name) if is_symbolic(each) else id(each)
        if key in seen:
            continue
        seen.add(key)
        yield each
        if is_symbolic(each) and not is_end(each):
            waiting.extend(each.op.inputs)


def depends_on_data(tensor: Any) -> bool:
    """Whether values of the step's inputs, or random numbers, may be in it: then it differs from rank to rank. Sizes of
    the inputs may be in it all the same. Without a graph there is no way to tell: True."""
    if not is_symbolic(tensor):
        return True

    def is_end(each: Any) -> bool:
        return each.op.type in _OF_SHAPES

    for each in _behind(tensor, is_end):
        if not is_symbolic(each):
            continue  # a value that was there before the step
        op = each.op
        is_stateful = op.op_def is not None and op.op_def.is_stateful and op.type not in READS
        if op.type == "Placeholder" or (is_stateful and each.dtype != tf.resource):
            return True
    return False


def is_sum_over_rows(tensor: Any, rows: Any) -> bool:
    """Whether a number is, or has as a term, a sum of elements of the step's rows that is not divided by their number: of
    elements of which it is not known before the step how many there are, not even with a constant factor; or of `rows`
    times so many, if that is known (an int), without a factor."""
    waiting = [(tensor, False)]
    while waiting:
        each, has_factor = waiting.pop()
        each = source(each)
        if not is_symbolic(each) or each.shape.rank != 0:
            continue
        if each.op.type == "Sum":
            summed = each.op.inputs[0].shape
            is_of_rows = isinstance(rows, int) and rows > 1 and summed.rank and summed[0] == rows and not has_factor
            if summed.num_elements() is None or is_of_rows:
                return True
        adds = each.op.type in _ADDITIONS
        waiting.extend((term, has_factor or not adds) for term in _terms(each.op))
    return False


_ADDITIONS = ("AddV2", "Add", "AddN", "Sub", "Neg")


def _terms(op: Any) -> List[Any]:
    """The operands that are in the result as they are, or times a constant."""
    inputs = list(op.inputs)
    if op.type in _ADDITIONS:
        return inputs
    if op.type in ("RealDiv", "DivNoNan"):
        return inputs[:1] if _is_constant(inputs[1]) else []
    if op.type in ("Mul", "MulNoNan"):
        return [each for each, factor in (inputs, inputs[::-1]) if _is_constant(factor)]
    return []


def _is_constant(tensor: Any) -> bool:
    return tf.get_static_value(source(tensor)) is not None


def reads(tensor: Any, variables: Any) -> bool:
    """Whether the value of one of the variables is in the tensor."""
    handles = {id(variable.handle) for variable in variables}

    def is_read(each: Any) -> bool:
        return each.op.type in READS

    return any(
        is_symbolic(each) and is_read(each) and id(origin(each.op.inputs[0])) in handles
        for each in _behind(tensor, is_read)
    )
