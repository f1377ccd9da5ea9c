# SPDX-License-Identifier: Apache-2.0
"""Analysis of the graph of a step: how a tensor is computed. In eager mode there is no graph."""

from typing import Any, Callable, Iterable, Iterator, List

import numpy as np
import tensorflow as tf

# The results of these ops depend on the shapes of their inputs only.
_SHAPE_OPS = ("Shape", "ShapeN", "Size", "Rank", "VariableShape")
# These ops pass on the values of their input.
_PASS_THROUGH = ("Identity", "Cast", "StopGradient", "EnsureShape", "CheckNumerics")
READS = ("ReadVariableOp", "ResourceGather", "ResourceGatherNd")


def is_symbolic(tensor: Any) -> bool:
    """True for a tensor of a graph, False for an eager tensor or another object."""
    return tf.is_tensor(tensor) and not hasattr(tensor, "numpy") and hasattr(tensor, "op")


def origin(tensor: Any) -> Any:
    """The tensor of the outermost graph if a function, a branch or a loop has captured `tensor`; otherwise `tensor`."""
    while is_symbolic(tensor) and tensor.op.type == "Placeholder":
        captured = [outer for outer, inner in tensor.graph.captures if inner.name == tensor.name]
        if not captured:
            break
        tensor = captured[0]
    return tensor


def source(tensor: Any) -> Any:
    """Follows the tensor back through ops that pass on their input's values."""
    tensor = origin(tensor)
    while is_symbolic(tensor) and tensor.op.type in _PASS_THROUGH:
        tensor = origin(tensor.op.inputs[0])
    return tensor


def _ancestors(
    tensor: Any, is_end: Callable[[Any], bool], inputs: Callable[[Any], Iterable[Any]] = lambda op: op.inputs
) -> Iterator[Any]:
    """Yields the tensor and its ancestors, but no ancestors of a tensor for
    which `is_end` is true. inputs: selects the inputs of an op to follow."""
    seen = set()
    pending: List[Any] = [tensor]
    while pending:
        each = origin(pending.pop())
        key = (id(each.graph), each.name) if is_symbolic(each) else id(each)
        if key in seen:
            continue
        seen.add(key)
        yield each
        if is_symbolic(each) and not is_end(each):
            pending.extend(inputs(each.op))


def depends_on_data(tensor: Any) -> bool:
    """True if the tensor may depend on values of the step's inputs or on random numbers, and so differ between ranks.
    Sizes of the inputs do not count. Without a graph: True, because nothing is known."""
    if not is_symbolic(tensor):
        return True

    def is_end(each: Any) -> bool:
        return each.op.type in _SHAPE_OPS

    for each in _ancestors(tensor, is_end):
        if not is_symbolic(each):
            continue  # a value from before the step
        op = each.op
        is_stateful = op.op_def is not None and op.op_def.is_stateful and op.type not in READS
        if op.type == "Placeholder" or (is_stateful and each.dtype != tf.resource):
            return True
    return False


_REDUCTIONS = ("Sum", "Mean", "Prod", "Max", "Min", "All", "Any")
# The other inputs of these ops determine the shape of the result, or which elements of the first input it holds.
_FIRST_INPUT_ONLY = (*_REDUCTIONS, "Reshape", "BroadcastTo", "StridedSlice", "Slice", "ExpandDims", "Transpose", "Tile", "Pad")
# Ops whose computation the graph does not show.
_OPAQUE = ("PartitionedCall", "StatefulPartitionedCall", "While", "StatelessWhile", "If", "StatelessIf", "PyFunc", "EagerPyFunc")


def _value_inputs(op: Any) -> Iterable[Any]:
    """The inputs whose elements become elements of the result."""
    if op.type in _FIRST_INPUT_ONLY:
        return op.inputs[:1]
    return op.inputs[1:] if op.type == "Fill" else op.inputs


def _reduces_rows(op: Any) -> bool:
    """True if the op may combine values of several rows into a number."""
    if op.type not in _REDUCTIONS:
        return False
    axes, rank = tf.get_static_value(op.inputs[1]), op.inputs[0].shape.rank
    return axes is None or rank is None or 0 in np.atleast_1d(axes) % max(rank, 1)


def has_no_other_rows(tensor: Any) -> bool:
    """True if the tensor is known not to combine values of several rows, and not to depend on the number of rows."""

    def is_seen(each: Any) -> bool:
        if not is_symbolic(each):
            return not tf.executing_eagerly()
        return not (each.op.type in (*_SHAPE_OPS, *_OPAQUE) or _reduces_rows(each.op))

    return all(is_seen(each) for each in _ancestors(tensor, lambda each: each.op.type in READS, _value_inputs))


def is_of_each_row(tensor: Any, rows: Any) -> bool:
    """True if the values of each row are known to depend on that row only; a single process would compute the same
    values. `rows`: the number of rows on this rank. If `rows` is static (an int), a constant may be the program's own
    division by that number, so the answer is False."""
    if isinstance(rows, int) and any(
        is_symbolic(each) and each.op.type == "Const" for each in _ancestors(tensor, lambda each: False, _value_inputs)
    ):
        return False
    return has_no_other_rows(tensor)


# ---- Where a dimension comes from ----

_BINARY = ("AddV2", "Add", "Sub", "Mul", "MulNoNan", "RealDiv", "DivNoNan", "Maximum", "Minimum", "Pow", "SquaredDifference")
_MATMULS = {"MatMul": ("transpose_a", "transpose_b"), "BatchMatMulV2": ("adj_x", "adj_y")}


def may_have_rows(tensor: Any) -> bool:
    """True unless the ops show that no dimension of the tensor is the row dimension of the step's data."""
    if not is_symbolic(tensor) or tensor.shape.rank is None:
        return True
    seen = set()
    pending = [(tensor, axis) for axis in range(tensor.shape.rank)]
    while pending:
        each, axis = pending.pop()
        each = origin(each)
        if not is_symbolic(each) or (each.graph, each.name, axis) in seen:
            continue
        seen.add((each.graph, each.name, axis))
        if axis == 0 and _starts_rows(each.op):
            return True
        pending.extend(_input_axes(each, axis))
    return False


def _starts_rows(op: Any) -> bool:
    """True if the first dimension of the op's result may be rows of data or random numbers."""
    if op.type in (*READS, "Const", "VarHandleOp"):
        return False
    return op.type in ("Fill", "Range") or "Random" in op.type or all(each.dtype == tf.resource for each in op.inputs)


def _input_axes(tensor: Any, axis: int) -> List[Any]:
    """(Input, axis of the input) pairs from which this axis of the tensor may come."""
    op, rank = tensor.op, tensor.shape.rank
    if op.type in (*READS, *_SHAPE_OPS):
        return []
    inputs = [each for each in _value_inputs(op) if each.dtype != tf.resource and each.shape.rank != 0]
    if op.type == "Reshape":
        return [(inputs[0], i) for i in range(inputs[0].shape.rank or 1)] if inputs else []
    if op.type in ("Transpose", *_REDUCTIONS):
        return _moved_axes(op, axis)
    if op.type in _MATMULS and rank is not None and axis >= rank - 2:
        side = axis - (rank - 2)  # rows of the first operand, columns of the second
        is_turned = op.get_attr(_MATMULS[op.type][side])
        return [(op.inputs[side], rank - 2 + (side ^ is_turned))]
    results = []
    for each in inputs:
        missing = rank - each.shape.rank if None not in (rank, each.shape.rank) else None
        if missing is None or (missing != 0 and op.type not in _BINARY):
            results.append((each, 0))
        elif axis >= missing and (each.shape[axis - missing] != 1 or tensor.shape[axis] == 1):  # else broadcast
            results.append((each, axis - missing))
    return results


def _moved_axes(op: Any, axis: int) -> List[Any]:
    """`_input_axes` of a transposition or reduction."""
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
    """True if a scalar is, or has as a term, a sum over the step's rows that is not divided by their number.

    Such a sum is recognised in two cases: the number of summed elements is dynamic, in which case a constant factor
    makes no difference; or `rows` is static (an int), the first summed dimension has that size, and there is no factor.
    """
    pending = [(tensor, False)]
    while pending:
        each, has_factor = pending.pop()
        each = source(each)
        if not is_symbolic(each) or each.shape.rank != 0:
            continue
        if each.op.type == "Sum":
            summed = each.op.inputs[0].shape
            is_of_rows = isinstance(rows, int) and rows > 1 and summed.rank and summed[0] == rows and not has_factor
            # The summed elements may have been divided before.
            if (summed.num_elements() is None and has_no_other_rows(each.op.inputs[0])) or is_of_rows:
                return True
        adds = each.op.type in _ADDITIONS
        pending.extend((term, has_factor or not adds) for term in _terms(each.op))
    return False


_ADDITIONS = ("AddV2", "Add", "AddN", "Sub", "Neg")


def _terms(op: Any) -> List[Any]:
    """The operands that the result contains unchanged or times a constant."""
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
    """True if the tensor depends on the value of one of the variables."""
    handles = {id(variable.handle) for variable in variables}

    def is_read(each: Any) -> bool:
        return each.op.type in READS

    return any(
        is_symbolic(each) and is_read(each) and id(origin(each.op.inputs[0])) in handles
        for each in _ancestors(tensor, is_read)
    )
