# SPDX-License-Identifier: Apache-2.0
"""What tapes and optimizers do with a list of gradients."""

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

# In a graph, gradients are reduced in groups of this size, so that the first ones travel while backward goes on.
GROUP_BYTES = 8 << 20

Groups = Union[None, int, List[List[Any]]]


def variable_of(variable: Any) -> Any:
    """The TensorFlow variable in a variable of Keras 3; other things as they are."""
    value = getattr(variable, "value", None)
    return variable if value is None or callable(value) else value


def key_of(variable: Any) -> Any:
    """Identifies a variable or tensor, also where Keras has put another object around it."""
    return variable_of(variable).ref()


def as_tensor(gradient: Any) -> Any:
    """Arrays and numbers as tensors; tensors, IndexedSlices and None as they are."""
    is_one = gradient is None or isinstance(gradient, (tf.IndexedSlices, tf.Tensor))
    return gradient if is_one else tf.convert_to_tensor(gradient)


def can_be_reduced(dtype: tf.DType) -> bool:
    """Whether the ops take tensors of this type."""
    return dtype.name in _engine.DTYPES


def _check_types(gradients: Sequence[Any], variables: Sequence[Any]) -> None:
    """Raises Unsupported for what can not be added up, and names it."""
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


def refuse_in_a_model_of_the_strategy(what: str) -> None:
    """Raises InvalidArgument in a step of a Keras model that was made in the scope of a MirroredStrategy. Its optimizer
    weights the ranks by their samples and reduces; gradients that are reduced already have lost who had how many."""
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
    """The gradients in the same order, reduced but for those that are local, which are divided by `divisor` if there
    is one."""
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
    """Whether it is true on all ranks of the set: they skip a step for gradients that are not finite together, or some
    would wait for the others. Collective."""
    finite = tf.cast(finite, tf.int32)
    options = {"process_set": process_set, "name": name, "ignore_name_scope": ignore_name_scope}
    return mpi_ops._allreduce(finite, op=Min, **options) > 0


def _checked_groups(num_groups: int, groups: Groups) -> Groups:
    """`groups`, or what the older `num_groups` says."""
    if num_groups != 0:
        warnings.warn("num_groups is the older form of groups", DeprecationWarning, stacklevel=4)
        groups = num_groups if groups is None else groups
    if groups is not None and not isinstance(groups, (list, tuple)) and not groups > 0:
        raise errors.InvalidArgument(
            f"groups must be a positive number or a list of lists of variables, not {groups!r}"
        )
    return groups


def reducer_options(arguments: Dict[str, Any]) -> Dict[str, Any]:
    """Of the arguments of a tape or an optimizer, by name, those of its GradientReducer, checked."""
    if arguments["gradient_predivide_factor"] != 1.0 and arguments["op"] != Average:
        raise errors.InvalidArgument("gradient_predivide_factor splits the division of op=Average; other ops have none")
    taken = set(inspect.signature(GradientReducer).parameters) - {"name"}
    options = {name: value for name, value in arguments.items() if name in taken}
    return {**options, "groups": _checked_groups(arguments["num_groups"], arguments["groups"])}


class GradientReducer:
    """Reduces lists of gradients that belong to variables. None stays None.

    Const after construction but for the set of local variables.
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
        if op == Average:  # the reduction divides by the number of ranks besides
            self._options["prescale_factor"] = 1.0 / gradient_predivide_factor
            self._options["postscale_factor"] = gradient_predivide_factor
        self.sparse_as_dense = sparse_as_dense
        self.process_set = process_set
        self._groups = groups
        self._scale_local_gradients = scale_local_gradients
        self._local: set = set()
        self._about = ""

    def tell_passes(self, passes: int, are_averaged: bool) -> None:
        """What is reduced are the sums of so many backward passes, or their means: the ranks agree on that too."""
        if passes > 1:
            self._about = f"{'mean' if are_averaged else 'sum'} of {passes} backward passes"

    def register_local(self, variable: Any) -> None:
        """The gradient of this variable is not reduced: it belongs to this rank alone."""
        self._local.add(key_of(variable))

    def is_local(self, variable: Any) -> bool:
        return bool(self._local) and key_of(variable) in self._local

    def reduce(
        self, gradients: Sequence[Any], variables: Sequence[Any], name: Optional[str] = None, about: str = ""
    ) -> List[Any]:
        """The reduced gradients, in the same order. Those of local variables are divided by the number of ranks, as
        their loss counts among all, unless `scale_local_gradients` is off.

        name: what the ranks know the gradients by, with a number for each group, whatever scope they are in; None: names
        of the graph, which Keras's automatic names are part of.
        about: what else the ranks have to agree on, for people.
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
        if any(sparse):  # their values are gathered, which has no factors; both together are 1 then
            options.pop("prescale_factor", None)
            options.pop("postscale_factor", None)
        return grouped_allreduce(gradients, name=name, ignore_name_scope=name is not None, _about=about, **options)

    def _split(self, places: List[int], gradients: List[Any], variables: Sequence[Any]) -> List[List[int]]:
        """Which gradients are reduced together."""
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
    """Dense and sparse gradients apart. In a graph in groups of GROUP_BYTES, from the last to the first, as backward
    makes them; in eager mode all are there already."""
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
