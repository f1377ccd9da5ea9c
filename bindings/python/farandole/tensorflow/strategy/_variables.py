# SPDX-License-Identifier: Apache-2.0
"""Variables of the strategy: the same on all ranks, or aggregated over them when they are read."""

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
# What Keras' normalisations call the variables that each replica assigns. Keras 3 says nothing of their aggregation.
_MOVING_STATISTICS = ("moving_mean", "moving_variance")


def from_first_rank(value: tf.Tensor) -> tf.Tensor:
    """The value of rank 0, of any type whose bytes can travel."""
    if _lifecycle.size() == 1:
        return value
    dtype = value.dtype
    if dtype.is_complex:
        part = dtype.real_dtype
        parts = from_first_rank(tf.stack([tf.math.real(value), tf.math.imag(value)]))
        return tf.complex(tf.cast(parts[0], part), tf.cast(parts[1], part))
    if dtype in (tf.string, tf.variant, tf.resource):
        raise errors.Unsupported(f"a variable of {dtype.name} can not be sent to the ranks; make it outside of scope()")
    return mpi_ops.broadcast(value, 0, **named("first_value"))


def _is_random_state(name: Any, value: tf.Tensor) -> bool:
    """Whether it is what a keras.random.SeedGenerator draws from: a seed and a counter."""
    return _last_part(name) == "seed_generator_state" and value.dtype.is_integer and value.shape == (2,)


def _last_part(name: Any) -> str:
    return str(name).rpartition("/")[2]


def initial_value(given: Any, dtype: Any, name: Any) -> Callable[[], tf.Tensor]:
    """What a variable starts with: the value of rank 0.

    The states of random generators are set apart by the rank: dropout and augmentation then differ from rank to rank,
    as they do from sample to sample.
    """

    scope = tf.get_current_name_scope()  # that of the layer
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
            warn_of_replaced_rate(float(own), float(value))
        if _is_random_state(name, value):
            value += tf.constant([_lifecycle.rank(), 0], value.dtype)
        return value

    return compute


def warn_of_replaced_rate(own: float, first: float) -> None:
    """On the rank whose learning rate rank 0's replaces."""
    if own != first:
        _engine.log(
            "warning",
            f"the learning rate {own:g} of this rank is replaced by rank 0's {first:g}: all ranks must be given the same",
        )


class AveragedVariable(MirroredVariable):
    """A variable whose new value is averaged over the ranks, by their numbers of samples, when it is assigned in a
    replica. The moving statistics of a normalisation are such: by TensorFlow's rules they would differ between the
    ranks and be averaged with each read, in which all ranks would have to take part."""

    def _update_replica(self, update_fn: Callable[..., Any], value: Any, **kwargs: Any) -> Any:
        context = tf.distribute.get_replica_context()
        return update_fn(self._primary, context.average(tf.convert_to_tensor(value, self.dtype)), **kwargs)


# How the ranks' values of a variable are combined when it is read.
SUM, LARGEST, SMALLEST = "sum", "largest", "smallest"
_OPS = {LARGEST: Max, SMALLEST: Min}


class CombinedVariable(SyncOnReadVariable):
    """A variable of which each rank has its own value, which are combined when it is read outside of a replica.

    By aggregation: SUM and MEAN over the ranks, ONLY_FIRST_REPLICA the value of rank 0, NONE this rank's. What a step
    shows to be a maximum or minimum is combined as such, though it says SUM.
    """

    def __init__(self, strategy: Any, variable: Any, aggregation: Any, start: Optional[tf.Tensor]):
        super().__init__(strategy, [variable], aggregation)
        self._start = start  # what all ranks have last set it to together; None if that was in a graph
        self._way: Optional[str] = None

    def is_combined_by(self, way: str) -> bool:
        """Combines the ranks' values in this way from now on. False if another one was chosen before."""
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
    """What this rank starts with. start: gets the value of all ranks, unless that is in a graph."""

    def compute() -> tf.Tensor:
        value = initial()
        if tf.executing_eagerly():
            start.append(value)
        return part_of_sum(value)

    return compute


def part_of_sum(value: tf.Tensor) -> tf.Tensor:
    """What this rank holds of a number that all ranks set together."""
    if _lifecycle.rank() == 0:
        return value
    # The value may come from a collective, which TensorFlow would leave out where nothing depends on it.
    with tf.control_dependencies([value]):
        return tf.identity(tf.zeros_like(value))


def is_of_strategy(variable: Any) -> bool:
    """Whether the tf.Variable was made in a strategy's scope."""
    return number_of(variable) != 0


_numbers = itertools.count(1)


def number_of(variable: Any) -> int:
    """Which one it is of those that were made in scopes, from 1 on; -1 for those that were adopted, 0 for others."""
    return getattr(getattr(variable, "_primary", variable), "_farandole_number", 0)


def adopt(variable: Any) -> None:
    """A tf.Variable that was made outside counts as one of the strategy from now on."""
    variable._farandole_number = -1


def is_sum_of_replicas(variable: Any) -> bool:
    """Whether what is assigned in a replica is summed up over the ranks."""
    is_mirrored = isinstance(variable, MirroredVariable) and not isinstance(variable, AveragedVariable)
    return is_mirrored and variable._aggregation == _AGGREGATION.SUM


def create(strategy: Any, next_creator: Callable[..., Any], kwargs: Any) -> Any:
    """Makes a variable in the strategy's scope, by what it says of its synchronisation and aggregation."""
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
    # Each rank assigns what it has computed; all have computed the same. So do scalars for which only the first replica
    # counts: they are counters and learning rates.
    is_plain = aggregation == _AGGREGATION.NONE
    if is_plain or (aggregation == _AGGREGATION.ONLY_FIRST_REPLICA and variable.shape.rank == 0):
        return variable
    return MirroredVariable(strategy, [variable], aggregation)
