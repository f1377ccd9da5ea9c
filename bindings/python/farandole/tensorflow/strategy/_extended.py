# SPDX-License-Identifier: Apache-2.0
"""The methods that tf.distribute calls on a strategy: one replica per process, no worker threads."""

import contextlib
import os
import sys
from typing import Any, Callable, Dict, List, Optional, Sequence

import tensorflow as tf

from ... import _engine, _lifecycle, errors, objects
from ..._engine import Sum
from .._differences import ranks_in_words
from .._gradients import GradientReducer
from .._reductions import divided
from . import _input, _variables
from ._context import ReplicaContext, step_context
from ._gather import gathered
from ._names import named
from ._private_names import DistributedVariable, UpdateContext
from ._progress import READ, progress

_ReduceOp = tf.distribute.ReduceOp


def hide_other_gpus() -> None:
    """Leaves TensorFlow the GPU whose number is this process's local rank, modulo the number of GPUs. No-op once TensorFlow
    has run an op, which opens all GPUs that it sees."""
    visible = tf.config.get_visible_devices("GPU")
    if len(visible) > 1:
        with contextlib.suppress(RuntimeError):
            tf.config.set_visible_devices(visible[_lifecycle.local_rank() % len(visible)], "GPU")


def _own_device() -> str:
    """The GPU whose number is this process's local rank, modulo the number of GPUs; the CPU if there is no GPU."""
    gpus = tf.config.list_logical_devices("GPU")
    return gpus[_lifecycle.local_rank() % len(gpus)].name if gpus else "/device:CPU:0"


def _own_gpu(device: str) -> Any:
    """A value that is equal for two ranks only if they use the same GPU; None if `device` is no GPU."""
    kind, _, number = device.rpartition(":")
    if not kind.endswith("GPU"):
        return None
    visible = tf.config.get_visible_devices("GPU")[int(number)].name
    return [_engine.place().host_index, os.environ.get("CUDA_VISIBLE_DEVICES", ""), visible]


def _warn_shared_gpu(device: str) -> None:
    """Warns once if several ranks use one GPU. Collective."""
    ranks_by_gpu: Dict[str, List[int]] = {}
    for rank, gpu in enumerate(objects.allgather_object(_own_gpu(device), name="farandole.strategy.gpu")):
        if gpu is not None:
            ranks_by_gpu.setdefault(str(gpu), []).append(rank)
    shared = next((ranks for ranks in ranks_by_gpu.values() if len(ranks) > 1), None)
    if shared:
        _lifecycle.warn_once(
            f"{ranks_in_words(shared)} use the same GPU, which NCCL does not support: start as many ranks on a host as it has "
            "GPUs, or let each rank see one of its own (CUDA_VISIBLE_DEVICES). FARANDOLE_CUDA=off shares a GPU, and reduces "
            "on the processor"
        )


def _component(value: Any) -> Any:
    """The variable or tensor of this process in a distributed value."""
    return value.values[0] if isinstance(value, tf.distribute.DistributedValues) else value


_LIBRARIES = ("tensorflow", "keras", "farandole")  # top-level packages


def _caller() -> Optional[str]:
    """File and line of the frame that called TensorFlow, if that frame is the program's; otherwise None."""
    frame = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module not in (__name__, "tensorflow.python.distribute.distribute_lib"):
            is_own = module.partition(".")[0] not in _LIBRARIES
            return f"{frame.f_code.co_filename}:{frame.f_lineno}" if is_own else None
        frame = frame.f_back
    return None


_has_warned_division_by_size = False


def _warn_division_by_size() -> None:
    """Warns once if the program reads the number of ranks in a step of a Keras model."""
    global _has_warned_division_by_size
    caller = None if _has_warned_division_by_size or _lifecycle.rank() != 0 else _caller()
    if caller is None:
        return
    _has_warned_division_by_size = True
    _engine.log(
        "warning",
        f"{caller} reads num_replicas_in_sync within a step of a Keras model. There a loss is the mean over this rank's "
        "rows, and gradients are averaged over the ranks: do not divide by the number of ranks",
    )


def is_farandole_strategy(strategy: Any) -> bool:
    """True for a MirroredStrategy of this package, not for TensorFlow's."""
    return isinstance(getattr(strategy, "extended", None), Extended)


class Extended(tf.compat.v1.distribute.StrategyExtended):
    """Implements tf.distribute.StrategyExtended. TensorFlow determines the names of the methods."""

    def __init__(self, container_strategy: Any):
        super().__init__(container_strategy)
        self._device = _own_device()
        _warn_shared_gpu(self._device)
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
            _warn_division_by_size()
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
            return _variables.create(self._container_strategy(), next_creator, kwargs)

    def colocate_vars_with(self, colocate_with_variable: Any) -> Any:
        return contextlib.nullcontext()  # there is only one device

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
        return False  # merge_call would combine replicas of the process, which has only one

    def _call_for_each_replica(self, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        with tf.device(self._device), ReplicaContext(self._container_strategy(), fn, (args, kwargs)):
            return fn(*args, **kwargs)

    # ---- Data -------------------------------------------------------------------------------------------------------

    def _experimental_distribute_dataset(self, dataset: Any, options: Any) -> Any:
        _check_options(options)
        return _input.distributed(dataset)

    def _distribute_datasets_from_function(self, dataset_fn: Callable[..., Any], options: Any) -> Any:
        _check_options(options)
        context = tf.distribute.InputContext(_lifecycle.size(), _lifecycle.rank(), _lifecycle.size())
        return _input.distributed(dataset_fn(context), is_own=True)

    def _experimental_distribute_values_from_function(self, value_fn: Callable[..., Any]) -> Any:
        return value_fn(tf.distribute.experimental.ValueContext(_lifecycle.rank(), _lifecycle.size()))

    # ---- Collectives ------------------------------------------------------------------------------------------------

    def reduce_gradients(self, gradients: Sequence[Any], variables: Sequence[Any]) -> Sequence[Any]:
        """Sums gradients over the ranks, in groups of a few MiB, so
        that the first groups travel during the backward pass."""
        return self._reducer.reduce(gradients, variables, named("gradients")["name"])

    def _replica_ctx_all_reduce(self, reduce_op: Any, value: Any, options: Any = None) -> Any:
        if isinstance(reduce_op, str):
            reduce_op = _ReduceOp(reduce_op.upper())
        flat = [_to_reduce(each) for each in tf.nest.flatten(value)]
        # The ranks exchange a sum. For a mean, each rank divides the result.
        name = named("all_reduce")["name"]
        results = list(self._reducer.reduce(flat, flat, name, about=f"ReduceOp.{reduce_op.name}"))
        if reduce_op == _ReduceOp.MEAN:
            results = [divided(each, _lifecycle.size()) for each in results]
        return tf.nest.pack_sequence_as(value, results)

    def read_together(self, read: Callable[[], tf.Tensor]) -> tf.Tensor:
        """Calls `read`, which runs a collective, once all ranks are about to do so. In eager mode, ranks that do
        something else make all ranks raise Mismatch."""
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
        return _variables.from_first_rank(tf.convert_to_tensor(tensor))

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
