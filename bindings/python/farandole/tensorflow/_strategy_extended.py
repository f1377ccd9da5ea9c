# SPDX-License-Identifier: Apache-2.0
"""What tf.distribute asks of a strategy: one replica in each process, all work inline."""

import contextlib
import sys
from typing import Any, Callable, Iterator, Optional, Sequence, Tuple

import tensorflow as tf

from .. import _engine, _lifecycle, errors
from .._engine import Sum
from . import _strategy_input, _strategy_share, _strategy_variables, mpi_ops
from ._gradients import GradientReducer
from ._private_names import DistributedVariable, UpdateContext
from ._reductions import divided
from ._strategy_gather import gathered
from ._strategy_graph import may_have_rows
from ._strategy_names import named
from ._strategy_progress import READ, progress

_ReduceOp = tf.distribute.ReduceOp


def _own_device() -> str:
    """The device of this process: the GPU of its number on the host, else the CPU."""
    gpus = tf.config.list_logical_devices("GPU")
    return gpus[_lifecycle.local_rank() % len(gpus)].name if gpus else "/device:CPU:0"


def _component(value: Any) -> Any:
    """The variable or tensor of this process in a distributed value."""
    return value.values[0] if isinstance(value, tf.distribute.DistributedValues) else value


_LIBRARIES = ("tensorflow", "keras", "farandole")  # and their modules


def _caller() -> Optional[str]:
    """File and line of the code of the program that has called TensorFlow; None if it is not the program's."""
    frame = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module not in (__name__, "tensorflow.python.distribute.distribute_lib"):
            is_own = module.partition(".")[0] not in _LIBRARIES
            return f"{frame.f_code.co_filename}:{frame.f_lineno}" if is_own else None
        frame = frame.f_back
    return None


_has_warned_of_hand_division = False


def _warn_of_hand_division() -> None:
    """Once, if the number of ranks is read by the program."""
    global _has_warned_of_hand_division
    caller = None if _has_warned_of_hand_division or _lifecycle.rank() != 0 else _caller()
    if caller is None:
        return
    _has_warned_of_hand_division = True
    _engine.log(
        "warning",
        f"{caller} reads num_replicas_in_sync within a step of a Keras model. There a loss is the mean over this rank's "
        "rows, and gradients are averaged over the ranks: do not divide by the number of ranks",
    )


_MODEL_STEPS = ("train_step", "test_step", "predict_step")


def _model_step(fn: Any) -> Tuple[Any, str]:
    """The model and the name of `fn`, if that is one of the steps of a Keras 3 model; else None and empty."""
    keras, name = sys.modules.get("keras"), getattr(fn, "__name__", "")
    while keras is not None and name in _MODEL_STEPS and fn is not None:
        if isinstance(getattr(fn, "__self__", None), keras.Model):
            return fn.__self__, name
        fn = getattr(fn, "__wrapped__", None)  # AutoGraph has put something around the method
    return None, ""


class ReplicaContext(tf.distribute.ReplicaContext):
    """Of one call of `run` on this rank.

    model_step: the method of a Keras model that is called, as `fit` does, or empty. Within it everything is as in one
    process, see docs/decisions/0012-losses-in-the-eyes-of-a-model.md; other functions see what tf.distribute defines.
    function, function_name: what is called.
    """

    def __init__(self, strategy: Any, fn: Callable[..., Any], inputs: Any):
        super().__init__(strategy, replica_id_in_sync_group=_lifecycle.rank())
        self.model, self.model_step = _model_step(fn)
        self.function, self.function_name = fn, getattr(fn, "__name__", "function")
        self._samples_are_agreed = getattr(fn, "samples_are_agreed", False)
        self._share: Optional[tf.Tensor] = None
        self._is_share_used = False
        named_batch = _strategy_share.taken_name()
        self._is_named = named_batch is not None
        # The tensors among which the batch is, of whose rows each rank has its share.
        self._counted = _strategy_share.with_rows(named_batch if self._is_named else inputs)

        self._graph: Optional[tf.Graph] = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
        # The optimizer whose loss Keras' own train_step is about to scale, and whether it has.
        self._to_scale: Any = None
        self.has_scaled = False
        self.is_applying = False
        self.is_differentiating = False

    def takes(self, batch: Any) -> None:
        """The function itself has taken a batch of a distributed dataset, of which all ranks have said how many rows they
        have. It may take several, one after the other: each counts by itself, unless it comes before the share of the one
        before was asked for."""
        if self._is_named:
            return
        taken = _strategy_share.with_rows(batch)
        if not self._counted or (self._samples_are_agreed and self._is_share_used):
            self._counted, self._samples_are_agreed = taken, True
        else:  # beside what there was
            self._counted, self._samples_are_agreed = self._counted + taken, False
        self._share, self._is_share_used = None, False

    def share(self) -> Optional[tf.Tensor]:
        """This rank's part of the samples of all ranks, a float64 scalar. None if the program says that there is no batch.

        In Keras's own loops the ranks have told each other when they agreed on the batch. Elsewhere it is one collective,
        where it is asked for, which runs while the forward pass does.
        """
        self._is_share_used = True
        if self._samples_are_agreed:
            return progress().share()  # of a variable, in whatever graph this is
        if self._share is None and not (self._is_named and not self._counted):
            # The first to ask for it may be in a branch or a loop, which the others are not.
            with self._of_step():
                self._share = _strategy_share.of_rows(self._counted)
        return self._share

    def meet(self) -> None:
        """Runs the collective of `share`, if there is one. To be called before anything is asked that may be known
        beforehand on some ranks only, such as whether there are rows: all ranks then make the same collectives."""
        if not self._samples_are_agreed:
            self.share()

    def _of_step(self) -> Any:
        """The graph in which `run` was called."""
        if tf.executing_eagerly():
            return contextlib.nullcontext()
        if self._graph is tf.compat.v1.get_default_graph():
            return contextlib.nullcontext()
        if self._graph is None:
            raise errors.Unsupported(
                "a function of TensorFlow that is called in a step that runs eagerly can not tell how many samples the "
                "step has: remove the @tf.function from it, or run_eagerly from compile()"
            )
        return self._graph.as_default()

    def weight(self) -> tf.Tensor:
        """What this rank counts in averages over the ranks, a float64 scalar: its share, if unknown 1/ranks."""
        share = self.share()
        return self.even_weight() if share is None else share

    def even_weight(self) -> tf.Tensor:
        """That of ranks which all count alike."""
        return tf.constant(1.0 / _lifecycle.size(), tf.float64)

    def rows(self) -> Any:
        """Of the first tensor of the inputs: an int where it is known, else a tensor; None if there is none."""
        return _strategy_share.rows_of(self._counted[0]) if self._counted else None

    def is_of_rows(self, value: Any) -> bool:
        """Whether the value, a loss, has a number for each row of the inputs, or several."""
        if isinstance(value, tf.RaggedTensor):
            return True
        if not tf.is_tensor(value) or value.shape.rank == 0:
            return False
        if not may_have_rows(value):
            return False
        elements = value.shape.num_elements()
        if elements is None:
            return True
        rows = self.rows()
        # What has a size that is known although the rows are not counted yet does not come from them one by one.
        if not isinstance(rows, int) or rows == 0:
            return rows == 0 and elements == 0
        if tf.executing_eagerly() and rows == 1:
            return 1 in value.shape
        return elements % rows == 0

    @contextlib.contextmanager
    def scaling(self, optimizer: Any) -> Iterator[None]:
        """Keras' own train_step, which differentiates what scale_loss() of the optimizer returns."""
        before = self._to_scale, self.has_scaled
        self._to_scale, self.has_scaled = optimizer, False
        try:
            yield
        finally:
            self._to_scale, self.has_scaled = before

    def begins_to_scale(self, optimizer: Any) -> bool:
        """Whether the loss of this optimizer has to be weighted. From then on `has_scaled` says so: for this optimizer, and
        for those that it is made of."""
        if optimizer is not self._to_scale:
            return False
        self._to_scale, self.has_scaled = None, True
        return True

    @contextlib.contextmanager
    def applying(self) -> Iterator[None]:
        """While an optimizer applies gradients that are weighted."""
        self.is_applying = True
        try:
            yield
        finally:
            self.is_applying = False

    @contextlib.contextmanager
    def differentiating(self) -> Iterator[None]:
        """While a tape goes backward."""
        self.is_differentiating = True
        try:
            yield
        finally:
            self.is_differentiating = False

    def without_nan(self, gradients: Any) -> Any:
        """The gradients, with zeros for what is not finite if this rank has no rows."""
        # Tensors of a batch that the ranks have agreed on have as many rows.
        counted = self._counted[:1] if self._samples_are_agreed else self._counted
        return _strategy_share.without_nan(gradients, counted)

    def average(self, value: tf.Tensor) -> tf.Tensor:
        """The average over the ranks, by their samples. A rank without samples does not count, even with a NaN."""
        if _lifecycle.size() == 1:
            return value
        # A function without data counts as much on all ranks.
        share = self.share() if self._counted else None
        if share is None:
            return self.all_reduce(_ReduceOp.MEAN, value)
        part = tf.math.multiply_no_nan(value, tf.cast(share, value.dtype))
        return mpi_ops._allreduce(part, op=Sum, **named("average"))


def is_farandole_strategy(strategy: Any) -> bool:
    """True for a MirroredStrategy of this package."""
    return isinstance(getattr(strategy, "extended", None), Extended)


def own_context() -> Optional[ReplicaContext]:
    """The context of the replica, if it is one of ours and not the only one."""
    context = tf.distribute.get_replica_context()
    return context if isinstance(context, ReplicaContext) and _lifecycle.size() > 1 else None


def step_context() -> Optional[ReplicaContext]:
    """The same, if it is in a step of a Keras model."""
    context = own_context()
    return context if context is not None and context.model_step else None


class Extended(tf.compat.v1.distribute.StrategyExtended):
    """Methods have the names under which TensorFlow calls them."""

    def __init__(self, container_strategy: Any):
        super().__init__(container_strategy)
        self._device = _own_device()
        self._reducer = GradientReducer("MirroredStrategy", op=Sum)
        self._cluster_resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec({"worker": [f"rank{rank}:0" for rank in range(_lifecycle.size())]}),
            task_type="worker",
            task_id=_lifecycle.rank(),
            rpc_layer="farandole",
        )
        self._task_type, self._task_id = "worker", _lifecycle.rank()
        self._retrace_functions_for_each_device = False

    # ---- Where things are -------------------------------------------------------------------------------------------

    @property
    def worker_devices(self) -> Sequence[str]:
        return (self._device,)

    @property
    def parameter_devices(self) -> Sequence[str]:
        return (self._device,)

    def non_slot_devices(self, var_list: Any) -> Sequence[str]:
        return (self._device,)

    @property
    def _num_replicas_in_sync(self) -> int:
        if step_context() is not None:
            _warn_of_hand_division()
        return _lifecycle.size()

    def _in_multi_worker_mode(self) -> bool:
        return _lifecycle.size() > 1

    def _get_local_replica_id(self, replica_id_in_sync_group: Any) -> int:
        return 0

    def _get_replica_id_in_sync_group(self, replica_id: int) -> int:
        return _lifecycle.rank()

    @property
    def experimental_between_graph(self) -> bool:
        return True

    @property
    def experimental_should_init(self) -> bool:
        return True

    @property
    def should_checkpoint(self) -> bool:
        return _lifecycle.rank() == 0

    @property
    def should_save_summary(self) -> bool:
        return _lifecycle.rank() == 0

    @property
    def _global_batch_size(self) -> bool:
        return True

    # ---- Variables --------------------------------------------------------------------------------------------------

    def _create_variable(self, next_creator: Callable[..., Any], **kwargs: Any) -> Any:
        with tf.device(self._device):
            return _strategy_variables.create(self._container_strategy(), next_creator, kwargs)

    def colocate_vars_with(self, colocate_with_variable: Any) -> Any:
        return contextlib.nullcontext()  # all of them are on the one device

    def read_var(self, variable: Any) -> tf.Tensor:
        return tf.identity(variable)

    def value_container(self, value: Any) -> Any:
        container = getattr(getattr(value, "handle", value), "_distributed_container", None)
        return value if container is None else container()

    def _local_results(self, value: Any) -> Any:
        return value.values if isinstance(value, tf.distribute.DistributedValues) else (value,)

    def _update(self, var: Any, fn: Callable[..., Any], args: Any, kwargs: Any, group: bool) -> Any:
        return self._update_non_slot(var, fn, (_component(var), *args), kwargs, group)

    def _update_non_slot(self, colocate_with: Any, fn: Callable[..., Any], args: Any, kwargs: Any, group: bool) -> Any:
        with tf.device(self._device), UpdateContext(0):
            result = fn(*args, **kwargs)
        return result if group else tf.nest.map_structure(self._local_results, result)

    def _replica_ctx_update(
        self, var: Any, fn: Callable[..., Any], args: Any = (), kwargs: Any = None, group: bool = True
    ) -> Any:
        return fn(_component(var), *args, **(kwargs or {}))

    # ---- Running ----------------------------------------------------------------------------------------------------

    def _use_merge_call(self) -> bool:
        return False  # there is no other replica in the process to merge with

    def _call_for_each_replica(self, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        with tf.device(self._device), ReplicaContext(self._container_strategy(), fn, (args, kwargs)):
            return fn(*args, **kwargs)

    # ---- Data -------------------------------------------------------------------------------------------------------

    def _experimental_distribute_dataset(self, dataset: Any, options: Any) -> Any:
        _check_options(options)
        return _strategy_input.distributed(dataset)

    def _distribute_datasets_from_function(self, dataset_fn: Callable[..., Any], options: Any) -> Any:
        _check_options(options)
        context = tf.distribute.InputContext(_lifecycle.size(), _lifecycle.rank(), _lifecycle.size())
        return _strategy_input.distributed(dataset_fn(context), is_own=True)

    def _experimental_distribute_values_from_function(self, value_fn: Callable[..., Any]) -> Any:
        return value_fn(tf.distribute.experimental.ValueContext(_lifecycle.rank(), _lifecycle.size()))

    # ---- Collectives ------------------------------------------------------------------------------------------------

    def reduce_gradients(self, gradients: Sequence[Any], variables: Sequence[Any]) -> Sequence[Any]:
        """The sums over the ranks, in groups of some MiB, so that the first travel while the backward pass goes on."""
        return self._reducer.reduce(gradients, variables, named("gradients")["name"])

    def _replica_ctx_all_reduce(self, reduce_op: Any, value: Any, options: Any = None) -> Any:
        if isinstance(reduce_op, str):
            reduce_op = _ReduceOp(reduce_op.upper())
        flat = [_to_reduce(each) for each in tf.nest.flatten(value)]
        # The mean is computed here: what travels is a sum in any case.
        name = named("all_reduce")["name"]
        results = list(self._reducer.reduce(flat, flat, name, about=f"ReduceOp.{reduce_op.name}"))
        if reduce_op == _ReduceOp.MEAN:
            results = [divided(each, _lifecycle.size()) for each in results]
        return tf.nest.pack_sequence_as(value, results)

    def read_together(self, read: Callable[[], tf.Tensor]) -> tf.Tensor:
        """What `read`, a collective, returns, when all ranks are about to call it."""
        if tf.executing_eagerly():
            progress().agree(READ)
        return read()

    def _reduce_to(self, reduce_op: Any, value: Any, destinations: Any, options: Any) -> Any:
        is_mirrored = isinstance(value, DistributedVariable) and value._is_mirrored()
        if is_mirrored and reduce_op == _ReduceOp.MEAN:
            return _component(value)
        return self.read_together(lambda: self._replica_ctx_all_reduce(reduce_op, _component(value)))

    def _batch_reduce_to(self, reduce_op: Any, value_destination_pairs: Any, options: Any) -> Any:
        return self._replica_ctx_all_reduce(reduce_op, [_component(value) for value, _ in value_destination_pairs])

    def _broadcast_to(self, tensor: Any, destinations: Any) -> Any:
        if isinstance(tensor, (bool, int, float)):
            return tensor
        return _strategy_variables.from_first_rank(tf.convert_to_tensor(tensor))

    def _gather_to_implementation(self, value: Any, destinations: Any, axis: int, options: Any) -> tf.Tensor:
        return self.read_together(lambda: gathered(_component(value), axis))

    def _batch_gather_to(self, value_destination_pairs: Any, axis: int, options: Any = None) -> Any:
        return [gathered(_component(value), axis) for value, _ in value_destination_pairs]


def _check_options(options: Any) -> None:
    mode = getattr(options, "experimental_replication_mode", None)
    if mode == tf.distribute.InputReplicationMode.PER_REPLICA:
        raise errors.Unsupported("InputReplicationMode.PER_REPLICA is not supported: a process has one replica")


def _to_reduce(value: Any) -> Any:
    value = _component(value)
    return value if isinstance(value, tf.IndexedSlices) else tf.convert_to_tensor(value)
