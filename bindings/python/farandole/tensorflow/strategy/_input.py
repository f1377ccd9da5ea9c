# SPDX-License-Identifier: Apache-2.0
"""Distributed datasets: each rank computes its own rows of every batch."""

import itertools
import random
import weakref
from typing import Any, Callable, Iterator, List, Optional, Sequence, Tuple

import tensorflow as tf

from ... import _lifecycle, errors, objects
from .. import mpi_ops
from ._private_names import context as eager_context
from ._progress import BATCH, END, progress

_WITHOUT_DIGEST = (tf.variant, tf.resource)


def rows_of(leaf: Any) -> Any:
    """Number of rows of a tensor, RaggedTensor or SparseTensor: an int if static, otherwise an int64 tensor."""
    if isinstance(leaf, tf.SparseTensor):
        return leaf.dense_shape[0]
    if isinstance(leaf, tf.RaggedTensor):
        return leaf.nrows(out_type=tf.int64)
    if leaf.shape.rank is not None and leaf.shape[0] is not None:
        return leaf.shape[0]
    return tf.shape(leaf, out_type=tf.int64)[0]


def _is_batched(leaf: Any) -> bool:
    return isinstance(leaf, (tf.SparseTensor, tf.RaggedTensor)) or (tf.is_tensor(leaf) and leaf.shape.rank != 0)


def _slice(leaf: Any, begin: Any, end: Any) -> Any:
    if isinstance(leaf, tf.SparseTensor):
        start = tf.concat([[begin], tf.zeros_like(leaf.dense_shape[1:])], axis=0)
        size = tf.concat([[end - begin], leaf.dense_shape[1:]], axis=0)
        return tf.sparse.slice(leaf, tf.cast(start, tf.int64), tf.cast(size, tf.int64))
    return leaf[begin:end]


def _digest(leaves: Sequence[Any]) -> tf.Tensor:
    """An int64 digest of the contents, equal for equal batches. Batches with different contents almost always have
    different digests: of a tensor above 1 MiB only a sample of about 256 KiB is read."""
    flat = tf.nest.flatten(list(leaves), expand_composites=True)
    return mpi_ops._LIB.farandole_digest(tensors=[each for each in flat if each.dtype not in _WITHOUT_DIGEST])


def _is_divisible(spec: Any) -> bool:
    """True if the rows of such values can be sliced. False for composite tensors, such as extension types, whose class
    alone knows which parts belong to a row."""
    is_composite = issubclass(getattr(spec, "value_type", object), tf.__internal__.CompositeTensor)
    return not is_composite or isinstance(spec, (tf.RaggedTensorSpec, tf.SparseTensorSpec))


def _check_batched(spec: Any) -> None:
    for leaf in tf.nest.flatten(spec):
        if not _is_divisible(leaf):
            raise errors.Unsupported(
                f"a batch of the dataset has a {leaf.value_type.__qualname__}, which the ranks cannot divide by rows as they do "
                "tensors, RaggedTensors and SparseTensors. Let the dataset give its parts in a tuple or dictionary, or give each "
                "rank data of its own by distribute_datasets_from_function()"
            )
    ranks = [leaf.shape.rank for leaf in tf.nest.flatten(spec) if hasattr(leaf, "shape")]
    if not ranks or 0 in ranks:
        raise errors.InvalidArgument(
            f"the elements of a distributed dataset must be batches, but there is {spec}: call .batch(n) first; each "
            "rank takes its part of every batch"
        )


@tf.autograph.experimental.do_not_convert
def _own_part(structure: Any) -> Tuple[tf.Tensor, tf.Tensor, Any]:
    """(Digest of the whole batch, number of this rank's rows, this rank's rows)."""
    leaves = tf.nest.flatten(structure)
    batched = [leaf for leaf in leaves if _is_batched(leaf)]
    rank, size = _lifecycle.rank(), _lifecycle.size()
    rows = _same_rows(batched)
    if isinstance(rows, int) and rows < size:
        # Ranks with and without rows must trace the same graph, so the number must not be static on any rank.
        rows = tf.compat.v1.placeholder_with_default(tf.constant(rows, tf.int64), [])
    # If the rows do not divide evenly, each of the first ranks gets one row more.
    begin = rank * (rows // size) + _smaller(rank, rows % size)
    end = begin + rows // size + _smaller(1, _not_negative(rows % size - rank))
    parts = [_slice(leaf, begin, end) if _is_batched(leaf) else leaf for leaf in leaves]
    return _digest(leaves), tf.cast(end - begin, tf.int64), tf.nest.pack_sequence_as(structure, parts)


def _same_rows(batched: List[Any]) -> Any:
    """The number of rows of every tensor: an int if static, otherwise an int64 tensor. Raises InvalidArgument if the
    tensors have different numbers of rows, because then a slice would not hold all parts of a row."""
    text = (
        "the tensors of a batch have {} rows: each rank takes its rows of every tensor, so that all must have as many. "
        "Repeat what belongs to the whole batch for each row, or give each rank data of its own by "
        "distribute_datasets_from_function()"
    )
    counts = [rows_of(each) for each in batched]
    known = [count for count in counts if isinstance(count, int)]
    if len(set(known)) > 1:
        raise errors.InvalidArgument(text.format(" and ".join(map(str, dict.fromkeys(known)))))
    unknown = [count for count in counts if not isinstance(count, int)]
    if not unknown:
        return known[0]
    every = tf.stack([tf.cast(count, tf.int64) for count in counts])
    check = tf.debugging.assert_equal(every, every[:1], message=text.format("different numbers of"))
    with tf.control_dependencies([check]):
        return tf.identity(every[0])


def _smaller(left: Any, right: Any) -> Any:
    if isinstance(right, int):
        return min(left, right)
    return tf.minimum(tf.cast(left, tf.int64), tf.cast(right, tf.int64))


def _not_negative(value: Any) -> Any:
    return max(value, 0) if isinstance(value, int) else tf.maximum(value, 0)


@tf.autograph.experimental.do_not_convert
def _own_batch(structure: Any) -> Tuple[tf.Tensor, tf.Tensor, Any]:
    """`_own_part` of a batch that belongs to this rank as a whole: digest 0, number of rows, the batch."""
    batched = [leaf for leaf in tf.nest.flatten(structure) if _is_batched(leaf)]
    rows = rows_of(batched[0]) if batched else 0
    return tf.constant(0, tf.int64), tf.cast(rows, tf.int64), structure


def distributed(dataset: Any, is_own: bool = False) -> "DistributedDataset":
    """The result of `experimental_distribute_dataset`.

    is_own: the dataset holds this rank's data only, in batches of the rank's own size.

    Raises InvalidArgument for other objects and for datasets without batches, Unsupported for AutoShardPolicy.FILE and
    for elements that cannot be sliced by rows.
    """
    if isinstance(dataset, DistributedDataset):
        return dataset
    if not isinstance(dataset, tf.data.Dataset):
        raise errors.InvalidArgument(f"expected a tf.data.Dataset, got {type(dataset).__name__}")
    policy = dataset.options().experimental_distribute.auto_shard_policy
    if policy == tf.data.experimental.AutoShardPolicy.FILE and not is_own:
        raise errors.Unsupported(
            "AutoShardPolicy.FILE is not supported: every rank reads all files and takes its rows of each batch. To "
            "give each rank its own files, use distribute_datasets_from_function() and input_context.input_pipeline_id"
        )
    is_own = is_own or policy == tf.data.experimental.AutoShardPolicy.OFF or _lifecycle.size() == 1
    if not is_own:
        _check_batched(dataset.element_spec)
    part = _own_batch if is_own else _own_part
    is_tuple = type(dataset.element_spec) is tuple  # `map` passes the parts of a tuple as separate arguments

    def of_tuple(*parts: Any) -> Any:
        return part(parts)

    mapped = dataset.map(tf.autograph.experimental.do_not_convert(of_tuple) if is_tuple else part)
    return DistributedDataset(mapped)


class Order:
    """Shuffles in the same order on all ranks and in a different order in each epoch. TensorFlow's seeds
    can do only one of the two."""

    # Counters by TensorFlow's generator. Setting the seed replaces the generator, so a program that sets the same seed
    # again gets the same orders again, as in one process.
    _numbers: Any = weakref.WeakKeyDictionary()

    def __init__(self) -> None:
        # A seed that the program has set decides the order. The generator then continues as if nothing had been drawn.
        state = random.getstate()
        number = next(self._numbers.setdefault(eager_context()._rng, itertools.count()))
        seed = objects.broadcast_object(random.getrandbits(31) + number)
        random.setstate(state)
        with tf.init_scope():
            self._seed = tf.Variable([seed, 0], dtype=tf.int64, trainable=False, name="farandole_order")

    def next_epoch(self) -> None:
        self._seed.assign_add([0, 1])

    def shuffle(self, value: tf.Tensor, seed: Any = None, name: Optional[str] = None) -> tf.Tensor:
        """Replaces tf.random.shuffle, for integers. The first integer distinguishes the calls within an epoch."""
        front = tf.cast(tf.reduce_max(value[:1]), tf.int64) * 2**32
        return tf.random.experimental.stateless_shuffle(value, self._seed + [0, front])


class DistributedDataset(tf.distribute.DistributedDataset):
    """This rank's rows of the batches of a dataset. All ranks take a batch together, see DistributedIterator."""

    # Keras' fit recognises distributed datasets by the class name and "tensorflow.python." in the name of the module.
    __module__ = "farandole.tensorflow.python.strategy._input"

    def __init__(self, dataset: tf.data.Dataset):
        self._dataset = dataset
        self.order: Optional[Order] = None  # set if the dataset was made from arrays that are shuffled

    def __iter__(self) -> "DistributedIterator":
        if self.order is not None:
            self.order.next_epoch()
        return DistributedIterator(iter(self._dataset))

    @property
    def element_spec(self) -> Any:
        """Specification of this rank's rows of a batch."""
        return self._dataset.element_spec[-1]

    def cardinality(self) -> tf.Tensor:
        """Number of batches, as tf.data.Dataset.cardinality."""
        return self._dataset.cardinality()

    def __len__(self) -> int:
        return len(self._dataset)

    def map(self, map_func: Callable[..., Any]) -> "DistributedDataset":
        """Applies `map_func` to this rank's rows of each batch. Keras applies class_weight in this way."""

        def of_part(digest: tf.Tensor, samples: tf.Tensor, part: Any) -> Any:
            return digest, samples, map_func(*part) if type(part) is tuple else map_func(part)

        return self._derived(self._dataset.map(of_part))

    def prefetch(self, buffer_size: int) -> "DistributedDataset":
        """Prepares batches ahead of time, as tf.data.Dataset.prefetch."""
        return self._derived(self._dataset.prefetch(buffer_size))

    def _derived(self, dataset: tf.data.Dataset) -> "DistributedDataset":
        derived = DistributedDataset(dataset)
        derived.order = self.order
        return derived

    def reduce(self, initial_state: Any, reduce_func: Callable[[Any, Any], Any]) -> Any:
        """Calls `reduce_func(state, batch)` for each batch of this rank in
        order. AutoGraph converts a loop over the dataset to this call."""
        iterator = iter(self)
        if tf.executing_eagerly():
            state = initial_state
            for batch in iterator:
                state = reduce_func(state, batch)
            return state

        def body(batch: Any, state: Any) -> Any:
            state = reduce_func(state, batch.get_value())
            return iterator.get_next_as_optional(), state

        first = iterator.get_next_as_optional()
        # parallel_iterations=1, because all ranks take each batch together.
        loop = tf.while_loop(lambda batch, _: batch.has_value(), body, [first, initial_state], parallel_iterations=1)
        return loop[1]


class DistributedIterator(tf.distribute.DistributedIterator, tf.__internal__.CompositeTensor):
    """Iterator of a DistributedDataset; may be an argument of a tf.function.

    Collective: all ranks take the next batch together. Ranks with different data, or with different numbers of batches,
    make all ranks raise Mismatch.
    """

    def __init__(self, iterator: Any):
        self._iterator = iterator

    def __iter__(self) -> Iterator[Any]:
        return self

    @property
    def element_spec(self) -> Any:
        return self._iterator.element_spec[-1]

    @property
    def _type_spec(self) -> tf.TypeSpec:
        return DistributedIteratorSpec(self._iterator.element_spec)

    def __tf_tracing_type__(self, _: Any) -> Any:
        return self._type_spec

    def __next__(self) -> Any:
        if not tf.executing_eagerly():
            return self.get_next()
        try:
            digest, samples, element = next(self._iterator)
        except StopIteration:
            progress().agree(END)
            raise
        progress().agree(BATCH, digest, samples)
        return _report_batch(element)

    def get_next(self) -> Any:
        """The next batch. Raises tf.errors.OutOfRangeError at the
        end of the data, which all ranks must reach together."""
        if tf.executing_eagerly():
            try:
                return next(self)
            except StopIteration:
                raise tf.errors.OutOfRangeError(None, None, "End of sequence") from None
        # At the end of the data, the inner iterator raises OutOfRangeError.
        return _report_batch(self._agreed(lambda element: element, lambda: self._iterator.get_next()[-1]))

    def get_next_as_optional(self) -> Any:
        """The next batch, or an empty tf.experimental.Optional at
        the end of the data, which all ranks must reach together."""
        if tf.executing_eagerly():
            try:
                return tf.experimental.Optional.from_value(next(self))
            except StopIteration:
                return tf.experimental.Optional.empty(self.element_spec)
        make = tf.experimental.Optional
        return self._agreed(make.from_value, lambda: make.empty(self.element_spec))

    def _agreed(self, with_batch: Callable[[Any], Any], without: Callable[[], Any]) -> Any:
        """In a graph: returns `with_batch(batch)`, or `without()` at the end of the data, once all ranks agree."""
        optional = self._iterator.get_next_as_optional()

        def batch() -> Any:
            digest, samples, element = optional.get_value()
            return progress().agree_then(BATCH, lambda: with_batch(element), digest, samples)

        def end() -> Any:
            return progress().agree_then(END, without)

        return tf.cond(optional.has_value(), batch, end)


def _report_batch(batch: Any) -> Any:
    """Returns the batch. Within a function that `run` calls, adds the batch to the replica context."""
    context = tf.distribute.get_replica_context()
    if hasattr(context, "add_batch"):
        context.add_batch(batch)
    return batch


class DistributedIteratorSpec(tf.TypeSpec):
    """TypeSpec that makes iterators valid arguments of a tf.function."""

    __slots__ = ["_spec"]

    def __init__(self, spec: Any):
        self._spec = spec

    @property
    def value_type(self) -> type:
        return DistributedIterator

    def _serialize(self) -> Tuple[Any, ...]:
        return (self._spec,)

    @property
    def _component_specs(self) -> Any:
        return tf.data.IteratorSpec(self._spec)

    def _to_components(self, value: DistributedIterator) -> Any:
        return value._iterator

    def _from_components(self, components: Any) -> DistributedIterator:
        return DistributedIterator(components)
