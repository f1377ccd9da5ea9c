# SPDX-License-Identifier: Apache-2.0
"""Reduces lists of gradients for tapes and optimizers."""

import inspect
import warnings
from typing import Any, Callable, Dict, List, Optional, Sequence, Union

import tensorflow as tf

from .. import _engine, _lifecycle, errors
from .._engine import Average, Min
from ..process_sets import ProcessSet, global_process_set
from . import mpi_ops
from ._reductions import divided, grouped_allreduce
from .compression import Compression

# In a graph, gradients are reduced in groups of at least this size, so that the first groups travel during the
# backward pass.
GROUP_BYTES = 8 << 20

Groups = Union[None, int, List[List[Any]]]


def variable_of(variable: Any) -> Any:
    """The TensorFlow variable of a Keras 3 variable. Any other object is returned unchanged."""
    value = getattr(variable, "value", None)
    return variable if value is None or callable(value) else value


def key_of(variable: Any) -> Any:
    """A hashable identity of a variable or tensor. A Keras variable has the key of its TensorFlow variable."""
    return variable_of(variable).ref()


def as_tensor(gradient: Any) -> Any:
    """Converts arrays and numbers to tensors. Tensors, IndexedSlices and None are returned unchanged."""
    is_one = gradient is None or isinstance(gradient, (tf.IndexedSlices, tf.Tensor))
    return gradient if is_one else tf.convert_to_tensor(gradient)


def can_be_reduced(dtype: tf.DType) -> bool:
    """True if the ops take tensors of this type."""
    return dtype.name in _engine.DTYPES


def _check_types(gradients: Sequence[Any], variables: Sequence[Any]) -> None:
    """Raises Unsupported, with the variable's name, if a gradient has a type that cannot be reduced."""
    for gradient, variable in zip(gradients, variables):
        if gradient is None or can_be_reduced(gradient.dtype):
            continue
        what = f"the gradient of {variable.name}" if hasattr(variable, "assign") else "a tensor"
        instead = "cast it"
        if gradient.dtype == tf.string:
            instead = "text can be gathered, by strategy.gather()"
        elif gradient.dtype.is_complex:
            instead = "reduce tf.math.real() and tf.math.imag() of it, and make tf.complex() of both"
        raise errors.Unsupported(
            f"{what} is {gradient.dtype.name} of shape {gradient.shape}, which ranks do not add up: {instead}. They reduce "
            f"{', '.join(_engine.DTYPES)}"
        )


def refuse_in_model_step(what: str) -> None:
    """Raises InvalidArgument in a step of a Keras model that was made in the scope of a
    MirroredStrategy. The optimizer of such a model weights the ranks by their samples
    and reduces. It can no longer weight gradients that were already reduced."""
    if getattr(tf.distribute.get_replica_context(), "model_step", "") and _lifecycle.size() > 1:
        raise errors.InvalidArgument(
            f"{what} reduces gradients over the ranks, and so does every optimizer of a model that was made in the scope of a "
            "MirroredStrategy: use a plain tape and a plain optimizer there"
        )


def reduce_but_local(
    reduce: Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]],
    gradients: Sequence[Any],
    variables: Sequence[Any],
    is_local: Sequence[bool],
    divisor: Optional[int],
) -> List[Any]:
    """Reduces the gradients that are not local. Local gradients are divided by `divisor` unless it is None. Returns all
    gradients in the given order."""
    results = list(gradients)
    shared = [i for i, local in enumerate(is_local) if not local]
    reduced = reduce([results[i] for i in shared], [variables[i] for i in shared])
    for i, gradient in zip(shared, reduced):
        results[i] = gradient
    if divisor is not None:
        for i, local in enumerate(is_local):
            results[i] = divided(results[i], divisor) if local and results[i] is not None else results[i]
    return results


def finite_everywhere(
    finite: Any,
    process_set: ProcessSet = global_process_set,
    name: Optional[str] = "farandole_finite",
    ignore_name_scope: bool = False,
) -> tf.Tensor:
    """True if `finite` is true on all ranks of the set. Otherwise all ranks skip the step: a rank that skipped alone
    would leave its peers waiting. Collective."""
    finite = tf.cast(finite, tf.int32)
    options = {"process_set": process_set, "name": name, "ignore_name_scope": ignore_name_scope}
    return mpi_ops._allreduce(finite, op=Min, **options) > 0


def _checked_groups(num_groups: int, groups: Groups) -> Groups:
    """Returns `groups`, or the value of the older argument `num_groups`."""
    if num_groups != 0:
        warnings.warn("num_groups is the older form of groups", DeprecationWarning, stacklevel=4)
        groups = num_groups if groups is None else groups
    if groups is not None and not isinstance(groups, (list, tuple)) and not groups > 0:
        raise errors.InvalidArgument(
            f"groups must be a positive number or a list of lists of variables, not {groups!r}"
        )
    return groups


def reducer_options(arguments: Dict[str, Any]) -> Dict[str, Any]:
    """Selects and checks the arguments of a GradientReducer among the arguments of a tape or an optimizer."""
    if arguments["gradient_predivide_factor"] != 1.0 and arguments["op"] != Average:
        raise errors.InvalidArgument("gradient_predivide_factor splits the division of op=Average; other ops have none")
    taken = set(inspect.signature(GradientReducer).parameters) - {"name"}
    options = {name: value for name, value in arguments.items() if name in taken}
    return {**options, "groups": _checked_groups(arguments["num_groups"], arguments["groups"])}


class GradientReducer:
    """Reduces lists of gradients that belong to variables. None stays None.

    Immutable after construction, except for the set of local variables.
    """

    def __init__(
        self,
        name: str,
        device_dense: str = "",
        device_sparse: str = "",
        compression: Any = Compression.none,
        sparse_as_dense: bool = False,
        op: int = Average,
        gradient_predivide_factor: float = 1.0,
        groups: Groups = None,
        process_set: ProcessSet = global_process_set,
        scale_local_gradients: bool = True,
    ):
        self._name = name
        self._options = {
            "device_dense": device_dense,
            "device_sparse": device_sparse,
            "compression": compression,
            "op": op,
            "process_set": process_set,
        }
        if op == Average:  # besides these factors, the reduction divides by the number of ranks
            self._options["prescale_factor"] = 1.0 / gradient_predivide_factor
            self._options["postscale_factor"] = gradient_predivide_factor
        self.sparse_as_dense = sparse_as_dense
        self.process_set = process_set
        self._groups = groups
        self._scale_local_gradients = scale_local_gradients
        self._local: set = set()
        self._about = ""

    def set_passes(self, passes: int, are_averaged: bool) -> None:
        """Declares that the reduced values are sums or means of `passes` backward passes. The ranks compare this."""
        if passes > 1:
            self._about = f"{'mean' if are_averaged else 'sum'} of {passes} backward passes"

    def register_local(self, variable: Any) -> None:
        """Marks a variable as local: its gradient belongs to this rank and is not reduced."""
        self._local.add(key_of(variable))

    def is_local(self, variable: Any) -> bool:
        return bool(self._local) and key_of(variable) in self._local

    def reduce(
        self, gradients: Sequence[Any], variables: Sequence[Any], name: Optional[str] = None, about: str = ""
    ) -> List[Any]:
        """Returns the reduced gradients in the given order. Gradients of local variables are not reduced. They are
        divided by the number of ranks unless `scale_local_gradients` is off. Collective.

        name: name of the gradients for all ranks, independent of name scopes; a number is appended for each group.
            None: names made from the graph, which contain Keras' automatic names; the graphs of all ranks must then
            have the same names.
        about: a text that must be equal on all ranks.
        """
        dense = [self._dense(gradient) for gradient in gradients]
        if not self.process_set.included() or self.process_set.size() == 1:
            return dense
        is_local = [self.is_local(variable) for variable in variables]
        _check_types([None if local else each for local, each in zip(is_local, dense)], variables)
        divisor = self.process_set.size() if self._scale_local_gradients else None

        def reduce(shared: Sequence[Any], of: Sequence[Any]) -> List[Any]:
            return self._reduce_shared(list(shared), of, name, about or self._about)

        return reduce_but_local(reduce, dense, variables, is_local, divisor)

    def _reduce_shared(
        self, gradients: List[Any], variables: Sequence[Any], name: Optional[str], about: str
    ) -> List[Any]:
        places = [i for i, gradient in enumerate(gradients) if gradient is not None]
        with tf.name_scope(f"{self._name}_Allreduce"):
            for number, group in enumerate(self._split(places, gradients, variables)):
                of_group = f"{name}_{number}" if name else None
                reduced = self._reduce_group([gradients[i] for i in group], of_group, about)
                for i, gradient in zip(group, reduced):
                    gradients[i] = gradient
        return gradients

    def _dense(self, gradient: Any) -> Any:
        if self.sparse_as_dense and isinstance(gradient, tf.IndexedSlices):
            return tf.convert_to_tensor(gradient)
        return as_tensor(gradient)

    def _reduce_group(self, gradients: List[Any], name: Optional[str], about: str) -> List[Any]:
        options = dict(self._options)
        sparse = [isinstance(gradient, tf.IndexedSlices) for gradient in gradients]
        if any(sparse):  # slices are gathered, and an allgather has no factors; their product is 1 here
            options.pop("prescale_factor", None)
            options.pop("postscale_factor", None)
        return grouped_allreduce(gradients, name=name, ignore_name_scope=name is not None, _about=about, **options)

    def _split(self, places: List[int], gradients: List[Any], variables: Sequence[Any]) -> List[List[int]]:
        """Positions of the gradients that are reduced together."""
        if self._groups is None:
            return _split_by_kind_and_size(places, gradients)
        if not isinstance(self._groups, (list, tuple)):
            count = min(int(self._groups), max(len(places), 1))
            each, more = divmod(len(places), count)
            ends = [i * each + min(i, more) for i in range(count + 1)]
            return [places[begin:end] for begin, end in zip(ends, ends[1:]) if end > begin]
        left = {key_of(variables[i]): i for i in places}
        split = [[left.pop(key_of(v)) for v in group if key_of(v) in left] for group in self._groups]
        return [group for group in split if group] + [[i] for i in left.values()]


def _split_by_kind_and_size(places: List[int], gradients: List[Any]) -> List[List[int]]:
    """Makes one group of all sparse gradients. In a graph, makes groups of at least GROUP_BYTES of the dense gradients,
    from the last gradient to the first, the order of the backward pass. In eager mode, where all gradients are ready,
    makes a single group of the dense gradients."""
    sparse = [i for i in places if isinstance(gradients[i], tf.IndexedSlices)]
    groups = [sparse] if sparse else []
    group: List[int] = []
    payload_bytes = 0
    for i in reversed([i for i in places if not isinstance(gradients[i], tf.IndexedSlices)]):
        group.append(i)
        payload_bytes += (gradients[i].shape.num_elements() or 0) * gradients[i].dtype.size
        if payload_bytes >= GROUP_BYTES and not tf.executing_eagerly():
            groups.append(group)
            group, payload_bytes = [], 0
    return groups + ([group] if group else [])
