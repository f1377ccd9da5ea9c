# SPDX-License-Identifier: Apache-2.0
"""Names of TensorFlow and Keras that the package uses though they are not public: all of them, in one place.

TensorFlow's are looked up when the strategy is imported, Keras' when it is first used with Keras. One that is missing
is an ImportError that names it, and the versions that are known to work.
"""

import importlib
from typing import Any, Dict, List, Tuple

import tensorflow as tf

from .._op_library import supported

_TENSORFLOW_THAT_WORKS = f"TensorFlow {supported()}"
# Keras 3.8 and 3.9 have all the names, but weight losses and metrics in another way: histories would be wrong.
_FIRST_KERAS = (3, 10)
_KERAS_THAT_WORKS = "Keras 3.10 to 3.15"

# Module, attributes of it. A dot leads to an attribute of a class.
TENSORFLOW: List[Tuple[str, List[str]]] = [
    ("tensorflow.python.distribute.values", ["DistributedVariable", "MirroredVariable", "SyncOnReadVariable"]),
    ("tensorflow.python.distribute.values", ["DistributedVariable._update", "SyncOnReadVariable._get_cross_replica"]),
    ("tensorflow.python.distribute.distribute_lib", ["UpdateContext", "Strategy.__init__", "ReplicaContext.__init__"]),
    ("tensorflow.python.distribute.distribute_lib", ["get_update_replica_id"]),
    ("tensorflow.python.distribute.values_util", ["is_saving_non_distributed"]),
    ("tensorflow.python.eager.context", ["context", "global_seed"]),
    ("tensorflow.python.eager.record", ["could_possibly_record"]),
    ("tensorflow.python.ops.resource_variable_ops", ["is_resource_variable"]),
]
# Methods of tf.distribute.StrategyExtended that TensorFlow calls and the strategy overrides: under another name, what
# is written for them would never run.
EXTENDED: List[str] = [
    "_batch_gather_to",
    "_batch_reduce_to",
    "_broadcast_to",
    "_call_for_each_replica",
    "_container_strategy",
    "_create_variable",
    "_distribute_datasets_from_function",
    "_experimental_distribute_dataset",
    "_experimental_distribute_values_from_function",
    "_gather_to_implementation",
    "_in_multi_worker_mode",
    "_local_results",
    "_num_replicas_in_sync",
    "_reduce_to",
    "_replica_ctx_all_reduce",
    "_replica_ctx_update",
    "_scope",
    "_update",
    "_update_non_slot",
    "_use_merge_call",
    "colocate_vars_with",
    "read_var",
    "value_container",
    "worker_devices",
]
KERAS: List[Tuple[str, List[str]]] = [
    (
        "keras.src.backend.tensorflow.optimizer",
        ["TFOptimizer.apply", "TFOptimizer._clip_gradients", "TFOptimizer._all_reduce_sum_gradients"],
    ),
    ("keras.src.backend.tensorflow.optimizer", ["TFOptimizer.add_variable_from_reference", "TFOptimizer.scale_loss"]),
    ("keras.src.backend.tensorflow.core", ["Variable._direct_assign"]),
    ("keras.src.losses.loss", ["scale_loss_for_distribution", "unscale_loss_for_distribution", "reduce_values"]),
    ("keras.src.optimizers.loss_scale_optimizer", ["LossScaleOptimizer.apply", "LossScaleOptimizer.check_finite"]),
    ("keras.src.callbacks.callback_list", ["CallbackList.set_model", "CallbackList._configure_async_dispatch"]),
    (
        "keras.src.backend.tensorflow.trainer",
        ["TensorFlowTrainer.distribute_strategy", "TensorFlowTrainer._maybe_symbolic_build", "TFEpochIterator"],
    ),
    (
        "keras.src.backend.tensorflow.trainer",
        ["TensorFlowTrainer._make_function", "TensorFlowTrainer.fit", "TensorFlowTrainer.train_on_batch"],
    ),
    ("keras.src.backend.tensorflow.trainer", ["TensorFlowTrainer.train_step"]),
    ("keras.src.backend.tensorflow.trainer", ["TensorFlowTrainer._aggregate_additional_loss"]),
    ("keras.src.layers.normalization.batch_normalization", ["BatchNormalization._moments"]),
    ("keras.src.metrics.reduction_metrics", ["Mean.update_state"]),
    ("keras.src.metrics.metric", ["Metric.add_variable"]),
    ("keras.src.trainers.compile_utils", ["CompileLoss.call"]),
    ("keras.src.trainers.trainer", ["Trainer.compile", "Trainer._symbolic_build", "Trainer._get_metrics_result_or_logs"]),
]

# Attributes that only objects have, so that they can not be looked up here; a test does.
OF_OBJECTS: Dict[str, List[str]] = {
    "DistributedVariable": ["_primary", "_is_mirrored", "_aggregation", "_distribute_strategy"],
    "keras.Variable": ["_value"],
    "handle of a component of it": ["_distributed_container"],
    "graph of a tf.function": ["experimental_acd_manager", "captures"],
    "context": ["_context_handle", "_rng"],
    "keras.Model": ["_compile_config", "_distribute_strategy", "_flatten_layers", "_initial_epoch"],
    "functional keras.Model": ["_inputs_struct", "_nodes_by_depth", "_operations", "_outputs_struct"],
    "keras.Layer": ["_inbound_nodes", "_non_trainable_variables", "_trainable_variables"],
    "keras.Optimizer": ["_distribution_strategy", "_iterations", "_learning_rate"],
    "tf.GradientTape": ["_recording"],
    "tf.Variable": ["_distribute_strategy"],
    "TFEpochIterator": ["_distribute_strategy", "_distributed_dataset"],
}


def _found(what: str, version: str, that_work: str, names: List[Tuple[str, List[str]]]) -> Dict[str, Any]:
    """The objects by the last part of their names. Raises ImportError for what is missing."""
    found = {}
    for module_name, attributes in names:
        for attribute in attributes:
            try:
                value = importlib.import_module(module_name)
                for part in attribute.split("."):
                    value = getattr(value, part)
            except (ImportError, AttributeError):
                raise ImportError(
                    f"farandole.tensorflow.MirroredStrategy uses {module_name}.{attribute}, which {what} {version} "
                    f"does not have; it is known to work with {that_work}"
                ) from None
            found[attribute] = value
    return found


_tensorflow = _found("TensorFlow", tf.version.VERSION, _TENSORFLOW_THAT_WORKS, TENSORFLOW)
_found(
    "TensorFlow",
    tf.version.VERSION,
    _TENSORFLOW_THAT_WORKS,
    [("tensorflow.python.distribute.distribute_lib", [f"StrategyExtendedV1.{name}" for name in EXTENDED])],
)

DistributedVariable = _tensorflow["DistributedVariable"]
MirroredVariable = _tensorflow["MirroredVariable"]
SyncOnReadVariable = _tensorflow["SyncOnReadVariable"]
UpdateContext = _tensorflow["UpdateContext"]
get_update_replica_id = _tensorflow["get_update_replica_id"]
is_saving_non_distributed = _tensorflow["is_saving_non_distributed"]
context = _tensorflow["context"]
global_seed = _tensorflow["global_seed"]
could_possibly_record = _tensorflow["could_possibly_record"]


def check_keras() -> None:
    """Raises ImportError if this Keras is too old or lacks one of the names."""
    import keras

    if tuple(int(part) for part in keras.__version__.split(".")[:2]) < _FIRST_KERAS:
        raise ImportError(
            f"farandole.tensorflow.MirroredStrategy is known to work with {_KERAS_THAT_WORKS}; this is {keras.__version__}"
        )

    _found("Keras", keras.__version__, _KERAS_THAT_WORKS, KERAS)
