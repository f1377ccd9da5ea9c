# SPDX-License-Identifier: Apache-2.0
"""Variables of the strategy: mirrored (equal on all ranks), or combined over the ranks when they are read."""

import itertools
from typing import Any, Callable, List, Optional

import tensorflow as tf

from ... import _engine, _lifecycle, errors
from ..._engine import Max, Min
from .. import _errors, _running, mpi_ops
from ._names import named
from ._private_names import MirroredVariable, SyncOnReadVariable, get_update_replica_id, is_saving_non_distributed

_SYNCHRONIZATION = tf.VariableSynchronization
_AGGREGATION = tf.VariableAggregation
# Names of variables of Keras' normalisation layers that each replica assigns. Keras 3 does not set their aggregation.
_MOVING_STATISTICS = ("moving_mean", "moving_variance")


def from_first_rank(value: tf.Tensor) -> tf.Tensor:
    """Broadcasts rank 0's value. Raises Unsupported for strings, variants and resources. Collective."""
    if _lifecycle.size() == 1:
        return value
    dtype = value.dtype
    if dtype.is_complex:
        part = dtype.real_dtype
        parts = from_first_rank(tf.stack([tf.math.real(value), tf.math.imag(value)]))
        return tf.complex(tf.cast(parts[0], part), tf.cast(parts[1], part))
    if dtype in (tf.string, tf.variant, tf.resource):
        raise errors.Unsupported(f"a variable of {dtype.name} cannot be sent to the ranks; make it outside of scope()")
    return mpi_ops.broadcast(value, 0, **named("first_value"))


def _is_random_state(name: Any, value: tf.Tensor) -> bool:
    """True for the state of a keras.random.SeedGenerator: a seed and a counter."""
    return _last_part(name) == "seed_generator_state" and value.dtype.is_integer and value.shape == (2,)


def _last_part(name: Any) -> str:
    return str(name).rpartition("/")[2]


def initial_value(given: Any, dtype: Any, name: Any) -> Callable[[], tf.Tensor]:
    """Returns a function that computes the initial value of a variable: rank 0's value.

    The states of random generators are offset by the rank, so that dropout and augmentation differ between ranks as
    they differ between samples.
    """

    scope = tf.get_current_name_scope()  # the layer's
    path = f"{scope}/{name}" if scope else str(name)

    def compute() -> tf.Tensor:
        own = tf.convert_to_tensor(given() if callable(given) else given, dtype=dtype)
        try:
            value = from_first_rank(own)
        except errors.Mismatch as error:
            what = str(error).replace(f"broadcast '{_running._UNNAMED}' ", "")
            raise _errors.mismatch(
                f"the models of the ranks differ: while rank {_lifecycle.rank()} made the variable '{path}' of shape "
                f"{tuple(own.shape)}, {what}"
            ) from None
        if _last_part(name) == "learning_rate" and own.shape.rank == 0 and tf.executing_eagerly():
            warn_replaced_rate(float(own), float(value))
        if _is_random_state(name, value):
            value += tf.constant([_lifecycle.rank(), 0], value.dtype)
        return value

    return compute


def warn_replaced_rate(own: float, first: float) -> None:
    """Warns on a rank whose learning rate is replaced by a different rate of rank 0."""
    if own != first:
        _engine.log(
            "warning",
            f"the learning rate {own:g} of this rank is replaced by rank 0's {first:g}: all ranks must be given the same",
        )


class AveragedVariable(MirroredVariable):
    """A variable that a replica assigns, with the new value averaged over the ranks by their numbers of samples.

    For moving statistics of normalisation layers. With TensorFlow's rules the statistics would differ between the
    ranks, and each read would be a collective.
    """

    def _update_replica(self, update_fn: Callable[..., Any], value: Any, **kwargs: Any) -> Any:
        context = tf.distribute.get_replica_context()
        return update_fn(self._primary, context.average(tf.convert_to_tensor(value, self.dtype)), **kwargs)


# How the ranks' values of a variable are combined when it is read.
SUM, LARGEST, SMALLEST = "sum", "largest", "smallest"
_OPS = {LARGEST: Max, SMALLEST: Min}


class CombinedVariable(SyncOnReadVariable):
    """A variable with a value per rank. A read outside of a replica combines the values of all ranks.

    The aggregation determines how: SUM and MEAN over the ranks, ONLY_FIRST_REPLICA takes rank 0's value, NONE this
    rank's. A SUM variable of which a step computes a maximum or minimum is combined by maximum or minimum.
    """

    def __init__(self, strategy: Any, variable: Any, aggregation: Any, start: Optional[tf.Tensor]):
        super().__init__(strategy, [variable], aggregation)
        self._start = start  # the last value that all ranks assigned together; None if a graph computed it
        self._way: Optional[str] = None

    def is_combined_by(self, way: str) -> bool:
        """Sets how the ranks' values are combined. False if a different way was set before."""
        if self._way is None:
            self._way = way
            if way != SUM and self._start is not None:
                with tf.init_scope():
                    self._primary.assign(self._start)
        return self._way == way

    def assign(self, value: Any, use_locking: bool = False, name: Any = None, read_value: bool = True) -> Any:
        if self._aggregation != _AGGREGATION.SUM or not self._is_outside_of_replicas():
            return super().assign(value, use_locking, name, read_value)
        value = tf.convert_to_tensor(value, self.dtype)
        self._start = value if tf.executing_eagerly() else None
        mine = value if self._way in _OPS else part_of_sum(value)
        return self._primary.assign(mine, use_locking, name, read_value)

    def value(self) -> Any:
        return tf.convert_to_tensor(self._get_cross_replica()) if self._is_outside_of_replicas() else super().value()

    def _is_outside_of_replicas(self) -> bool:
        context = tf.distribute.get_replica_context()
        is_in_replica = context is not None and context.strategy is self._distribute_strategy
        return not is_in_replica and get_update_replica_id() is None and not is_saving_non_distributed()

    def _get_cross_replica(self) -> Any:
        extended = self._distribute_strategy.extended
        if self._aggregation == _AGGREGATION.NONE:
            return self._primary
        if self._aggregation == _AGGREGATION.ONLY_FIRST_REPLICA:
            return extended.read_together(lambda: from_first_rank(self._primary.read_value()))
        if self._way in _OPS:
            return extended.read_together(lambda: mpi_ops._allreduce(self._primary.read_value(), op=_OPS[self._way]))
        return super()._get_cross_replica()


def _as_part_of_sum(initial: Callable[[], tf.Tensor], start: List[tf.Tensor]) -> Callable[[], tf.Tensor]:
    """Wraps `initial` to return this rank's part of the sum. start: in eager mode, receives the whole value."""

    def compute() -> tf.Tensor:
        value = initial()
        if tf.executing_eagerly():
            start.append(value)
        return part_of_sum(value)

    return compute


def part_of_sum(value: tf.Tensor) -> tf.Tensor:
    """This rank's part of a value that all ranks assign together
    to a summed variable: the value on rank 0, zero elsewhere."""
    if _lifecycle.rank() == 0:
        return value
    # The value may come from a collective, which TensorFlow would prune on ranks where no tensor depends on it.
    with tf.control_dependencies([value]):
        return tf.identity(tf.zeros_like(value))


def is_of_strategy(variable: Any) -> bool:
    """True if the tf.Variable was created in, or adopted into, a strategy's scope."""
    return number_of(variable) != 0


_numbers = itertools.count(1)


def number_of(variable: Any) -> int:
    """Position of the variable among all variables created in scopes, from 1; -1 if adopted, 0 if of no strategy."""
    return getattr(getattr(variable, "_primary", variable), "_farandole_number", 0)


def adopt(variable: Any) -> None:
    """Makes a tf.Variable that was created outside of the scope count as the strategy's."""
    variable._farandole_number = -1


def is_sum_of_replicas(variable: Any) -> bool:
    """True if values that replicas assign are summed over the ranks."""
    is_mirrored = isinstance(variable, MirroredVariable) and not isinstance(variable, AveragedVariable)
    return is_mirrored and variable._aggregation == _AGGREGATION.SUM


def create(strategy: Any, next_creator: Callable[..., Any], kwargs: Any) -> Any:
    """Creates a variable in the strategy's scope. Its synchronization and aggregation decide the class."""
    kwargs.pop("colocate_with", None)
    kwargs.pop("experimental_batch_initialization", None)
    dtype = kwargs.get("dtype")
    aggregation = kwargs.get("aggregation") or _AGGREGATION.NONE
    synchronization = kwargs.get("synchronization") or _SYNCHRONIZATION.AUTO
    initial = initial_value(kwargs["initial_value"], dtype, kwargs.get("name"))
    start: List[tf.Tensor] = []
    if synchronization == _SYNCHRONIZATION.ON_READ and aggregation == _AGGREGATION.SUM:
        initial = _as_part_of_sum(initial, start)
    kwargs["initial_value"] = initial
    variable = next_creator(**kwargs)
    variable._farandole_number = next(_numbers)
    if _last_part(kwargs.get("name")) in _MOVING_STATISTICS and not variable.trainable and variable.dtype.is_floating:
        return AveragedVariable(strategy, [variable], _AGGREGATION.MEAN)
    if synchronization == _SYNCHRONIZATION.ON_READ:
        if aggregation == _AGGREGATION.MEAN:
            return AveragedVariable(strategy, [variable], aggregation)
        return CombinedVariable(strategy, variable, aggregation, start[0] if start else None)
    # All ranks compute and assign the same value. That includes scalars
    # with ONLY_FIRST_REPLICA, which are counters and learning rates.
    is_plain = aggregation == _AGGREGATION.NONE
    if is_plain or (aggregation == _AGGREGATION.ONLY_FIRST_REPLICA and variable.shape.rank == 0):
        return variable
    return MirroredVariable(strategy, [variable], aggregation)
