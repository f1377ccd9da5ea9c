# SPDX-License-Identifier: Apache-2.0
"""What the graph of a step says of how a tensor comes about. In eager mode there is no graph to ask."""

from typing import Any, Callable, Iterable, Iterator, List

import numpy as np
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


def _behind(
    tensor: Any, is_end: Callable[[Any], bool], inputs: Callable[[Any], Iterable[Any]] = lambda op: op.inputs
) -> Iterator[Any]:
    """The tensor and all that it is computed from, but nothing that is behind an end. inputs: of an op, those to
    follow."""
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
            waiting.extend(inputs(each.op))


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


_REDUCTIONS = ("Sum", "Mean", "Prod", "Max", "Min", "All", "Any")
# Their other inputs say of what form the result is, or what is taken of the first one.
_OF_FIRST = (*_REDUCTIONS, "Reshape", "BroadcastTo", "StridedSlice", "Slice", "ExpandDims", "Transpose", "Tile", "Pad")
# What is in them can not be seen from here.
_CALLS = ("PartitionedCall", "StatefulPartitionedCall", "While", "StatelessWhile", "If", "StatelessIf", "PyFunc", "EagerPyFunc")


def _value_inputs(op: Any) -> Iterable[Any]:
    """The inputs whose elements come into those of the result."""
    if op.type in _OF_FIRST:
        return op.inputs[:1]
    return op.inputs[1:] if op.type == "Fill" else op.inputs


def _reduces_rows(op: Any) -> bool:
    """Whether the op may make one number of those of several rows."""
    if op.type not in _REDUCTIONS:
        return False
    axes, rank = tf.get_static_value(op.inputs[1]), op.inputs[0].shape.rank
    return axes is None or rank is None or 0 in np.atleast_1d(axes) % max(rank, 1)


def has_no_other_rows(tensor: Any) -> bool:
    """Whether it is known that neither values of several rows are combined in the tensor, nor that it counts them."""

    def is_seen(each: Any) -> bool:
        if not is_symbolic(each):
            return not tf.executing_eagerly()
        return not (each.op.type in (*_OF_SHAPES, *_CALLS) or _reduces_rows(each.op))

    return all(is_seen(each) for each in _behind(tensor, lambda each: each.op.type in READS, _value_inputs))


def is_of_each_row(tensor: Any, rows: Any) -> bool:
    """Whether it is known that each row's values are its own: in one process they would be the same. `rows`: their
    number on this rank; if that is known (an int) a constant may be the program's own division by it."""
    if isinstance(rows, int) and any(
        is_symbolic(each) and each.op.type == "Const" for each in _behind(tensor, lambda each: False, _value_inputs)
    ):
        return False
    return has_no_other_rows(tensor)


# ---- Where a dimension comes from ----

_BINARY = ("AddV2", "Add", "Sub", "Mul", "MulNoNan", "RealDiv", "DivNoNan", "Maximum", "Minimum", "Pow", "SquaredDifference")
_MATMULS = {"MatMul": ("transpose_a", "transpose_b"), "BatchMatMulV2": ("adj_x", "adj_y")}


def may_have_rows(tensor: Any) -> bool:
    """Whether a dimension of the tensor may be the one of the rows of the step's data: of what is known of the ops,
    none says that it is not."""
    if not is_symbolic(tensor) or tensor.shape.rank is None:
        return True
    seen = set()
    waiting = [(tensor, axis) for axis in range(tensor.shape.rank)]
    while waiting:
        each, axis = waiting.pop()
        each = origin(each)
        if not is_symbolic(each) or (each.graph, each.name, axis) in seen:
            continue
        seen.add((each.graph, each.name, axis))
        if axis == 0 and _is_beginning(each.op):
            return True
        waiting.extend(_before(each, axis))
    return False


def _is_beginning(op: Any) -> bool:
    """Whether rows may begin with this op: those of data, or of random numbers."""
    if op.type in (*READS, "Const", "VarHandleOp"):
        return False
    return op.type in ("Fill", "Range") or "Random" in op.type or all(each.dtype == tf.resource for each in op.inputs)


def _before(tensor: Any, axis: int) -> List[Any]:
    """(Input, its axis) from which the axis of the tensor may come."""
    op, rank = tensor.op, tensor.shape.rank
    if op.type in (*READS, *_OF_SHAPES):
        return []
    inputs = [each for each in _value_inputs(op) if each.dtype != tf.resource and each.shape.rank != 0]
    if op.type == "Reshape":
        return [(inputs[0], i) for i in range(inputs[0].shape.rank or 1)] if inputs else []
    if op.type in ("Transpose", *_REDUCTIONS):
        return _moved(op, axis)
    if op.type in _MATMULS and rank is not None and axis >= rank - 2:
        side = axis - (rank - 2)  # rows of the first operand, columns of the second
        is_turned = op.get_attr(_MATMULS[op.type][side])
        return [(op.inputs[side], rank - 2 + (side ^ is_turned))]
    results = []
    for each in inputs:
        missing = rank - each.shape.rank if None not in (rank, each.shape.rank) else None
        if missing is None or (missing != 0 and op.type not in _BINARY):
            results.append((each, 0))
        elif axis >= missing and (each.shape[axis - missing] != 1 or tensor.shape[axis] == 1):  # else it is repeated
            results.append((each, axis - missing))
    return results


def _moved(op: Any, axis: int) -> List[Any]:
    """The same for a transposition or reduction."""
    first, numbers = op.inputs[0], tf.get_static_value(op.inputs[1])
    if numbers is None or first.shape.rank is None:
        return [(first, 0)]
    if op.type == "Transpose":
        return [(first, int(numbers[axis]))]
    reduced = np.atleast_1d(numbers) % max(first.shape.rank, 1)
    if op.get_attr("keep_dims"):
        return [] if axis in reduced else [(first, axis)]
    return [(first, [i for i in range(first.shape.rank) if i not in reduced][axis])]


# ---- Sums over rows ----


def is_sum_over_rows(tensor: Any, rows: Any) -> bool:
    """Whether a number is, or has as a term, a sum of elements of the step's rows that is not divided by their number:
    of elements of which it is not known before the step how many there are, not even with a constant factor; or of
    `rows` times so many, if that is known (an int), without a factor."""
    waiting = [(tensor, False)]
    while waiting:
        each, has_factor = waiting.pop()
        each = source(each)
        if not is_symbolic(each) or each.shape.rank != 0:
            continue
        if each.op.type == "Sum":
            summed = each.op.inputs[0].shape
            is_of_rows = isinstance(rows, int) and rows > 1 and summed.rank and summed[0] == rows and not has_factor
            # What is summed up may have been divided before.
            if (summed.num_elements() is None and has_no_other_rows(each.op.inputs[0])) or is_of_rows:
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
