# SPDX-License-Identifier: Apache-2.0
"""Private names of TensorFlow and Keras that the strategy uses, and the versions that are known to have them.

TensorFlow's names are looked up when the strategy is imported, Keras' when the strategy is first used with Keras. A
missing name raises an ImportError that names it and the versions that work. _patches.py lists the functions that are
replaced.
"""

import importlib
from dataclasses import dataclass
from typing import Any, Dict, List, Tuple

import tensorflow as tf

from .._op_library import NEWEST, OLDEST


@dataclass(frozen=True)
class Library:
    """TensorFlow or Keras, with the first and the last version that the tests have run with.

    An older version raises ImportError. So does a newer version that lacks a name. A newer version that has all names
    is used; if the behaviour behind a name has changed, results may be wrong without an error.
    """

    name: str
    first: Tuple[int, int]
    last: Tuple[int, int]

    def tested(self) -> str:
        """"Keras 3.10 to 3.15"."""
        return f"{self.name} {self.first[0]}.{self.first[1]} to {self.last[0]}.{self.last[1]}"

    def version(self) -> str:
        """The installed version."""
        if self.name == "TensorFlow":
            return tf.version.VERSION
        import keras

        return keras.__version__


# Importing farandole.tensorflow raises ImportError for older versions, and warns of newer versions.
TENSORFLOW = Library("TensorFlow", OLDEST, NEWEST)
# Keras 3.8 and 3.9 have all the names, but weight losses and metrics in another way: histories would be wrong.
KERAS = Library("Keras", (3, 10), (3, 15))

# (Module, names of its attributes). A dot leads to an attribute of a class.
NAMES_OF_TENSORFLOW: List[Tuple[str, List[str]]] = [
    ("tensorflow.python.distribute.values", ["DistributedVariable", "MirroredVariable", "SyncOnReadVariable"]),
    ("tensorflow.python.distribute.values", ["DistributedVariable._update", "SyncOnReadVariable._get_cross_replica"]),
    ("tensorflow.python.distribute.distribute_lib", ["UpdateContext", "Strategy.__init__", "ReplicaContext.__init__"]),
    ("tensorflow.python.distribute.distribute_lib", ["get_update_replica_id"]),
    ("tensorflow.python.distribute.values_util", ["is_saving_non_distributed"]),
    ("tensorflow.python.eager.context", ["context", "global_seed"]),
    ("tensorflow.python.eager.record", ["could_possibly_record"]),
    ("tensorflow.python.ops.resource_variable_ops", ["is_resource_variable"]),
]
# Methods of tf.distribute.StrategyExtended that TensorFlow calls and the strategy overrides. If TensorFlow renamed a
# method, it would no longer call the strategy's.
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
NAMES_OF_KERAS: List[Tuple[str, List[str]]] = [
    ("keras.src.callbacks.callback_list", ["CallbackList._configure_async_dispatch"]),
    ("keras.src.backend.tensorflow.trainer", ["TensorFlowTrainer.distribute_strategy"]),
    ("keras.src.trainers.trainer", ["Trainer._symbolic_build"]),
]

# Attributes that only instances have. They cannot be looked up at import; a test checks them.
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


def find(library: Library, module: str, name: str) -> Any:
    """The attribute of a module by its dotted name; the module itself
    if the name is empty. Raises ImportError if it does not exist."""
    try:
        value = importlib.import_module(module)
        for part in filter(None, name.split(".")):
            value = getattr(value, part)
    except (ImportError, AttributeError):
        raise ImportError(
            f"farandole.tensorflow.MirroredStrategy uses {module}.{name}, which {library.name} {library.version()} "
            f"does not have; it is known to work with {library.tested()}"
        ) from None
    return value


def _find_all(library: Library, names: List[Tuple[str, List[str]]]) -> Dict[str, Any]:
    """The objects by their dotted names. Raises ImportError if a name is missing."""
    return {name: find(library, module, name) for module, attributes in names for name in attributes}


_tensorflow = _find_all(TENSORFLOW, NAMES_OF_TENSORFLOW)
_find_all(TENSORFLOW, [("tensorflow.python.distribute.distribute_lib", [f"StrategyExtendedV1.{name}" for name in EXTENDED])])

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
    version = KERAS.version()
    if tuple(int(part) for part in version.split(".")[:2]) < KERAS.first:
        raise ImportError(
            f"farandole.tensorflow.MirroredStrategy is known to work with {KERAS.tested()}; this is {version}"
        )
    _find_all(KERAS, NAMES_OF_KERAS)
