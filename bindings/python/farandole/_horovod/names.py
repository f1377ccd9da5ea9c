# SPDX-License-Identifier: Apache-2.0
"""Table of Horovod's public names: the corresponding name here, and differences. The modules that `import horovod…`
finds, the texts about missing names, and the tables of docs/coming-from-horovod.md are made from this table.

Imports only Python's standard library.
"""

from typing import Dict, List, NamedTuple, Optional

VERSION = "0.28.1"  # of Horovod, to which the table applies

WORKS, DIFFERS, MISSING = "works", "differs", "not there"


class Row(NamedTuple):
    module: str
    name: str
    state: str  # WORKS, DIFFERS, MISSING
    note: str  # the difference or the alternative


class Place(NamedTuple):
    module: str
    name: str


# Horovod's modules, and the corresponding modules here. None: a package with submodules only.
MODULES: Dict[str, Optional[str]] = {
    "horovod": "farandole",
    "horovod.common": "farandole",
    "horovod.common.basics": "farandole._horovod.basics",
    "horovod.common.elastic": "farandole.elastic",
    "horovod.common.exceptions": "farandole.errors",
    "horovod.common.process_sets": "farandole.process_sets",
    "horovod.common.util": "farandole._horovod.common_util",
    "horovod.runner": "farandole",
    "horovod.runner.common": None,
    "horovod.runner.common.util": None,
    "horovod.runner.common.util.env": "farandole._horovod.runner_env",
    "horovod.runner.util": None,
    "horovod.runner.util.threads": "farandole._horovod.runner_threads",
    "horovod.tensorflow": "farandole.tensorflow",
    "horovod.tensorflow.compression": "farandole.tensorflow.compression",
    "horovod.tensorflow.data": None,
    "horovod.tensorflow.data.compute_service": "farandole.tensorflow.data.compute_service",
    "horovod.tensorflow.data.compute_worker": "farandole.tensorflow.data.compute_worker",
    "horovod.tensorflow.elastic": "farandole.tensorflow.elastic",
    "horovod.tensorflow.functions": "farandole.tensorflow.functions",
    "horovod.tensorflow.gradient_aggregation": "farandole.tensorflow.gradient_aggregation",
    "horovod.tensorflow.gradient_aggregation_eager": "farandole.tensorflow.gradient_aggregation",
    "horovod.tensorflow.mpi_ops": "farandole.tensorflow.mpi_ops",
    "horovod.tensorflow.sync_batch_norm": "farandole.tensorflow.sync_batch_norm",
    "horovod.tensorflow.util": "farandole.tensorflow.util",
    "horovod.tensorflow.keras": "farandole.tensorflow.keras",
    "horovod.tensorflow.keras.callbacks": "farandole.tensorflow.keras.callbacks",
    "horovod.tensorflow.keras.elastic": "farandole.tensorflow.keras.elastic",
    "horovod.keras": "farandole.keras",
    "horovod.keras.callbacks": "farandole.keras.callbacks",
    "horovod.keras.elastic": "farandole.keras.elastic",
    "horovod._keras": "farandole._horovod.keras_backend",
    "horovod._keras.callbacks": "farandole.tensorflow.keras.callbacks",
    "horovod._keras.elastic": "farandole.tensorflow.keras.elastic",
}

# Modules of Horovod that are missing together with their submodules, and alternatives.
MISSING_MODULES = {
    "horovod.data": "it loads data for PyTorch; use tf.data",
    "horovod.mxnet": "Farandole is for TensorFlow and Keras",
    "horovod.ray": "start programs with mpirun or python -m farandole.run",
    "horovod.runner": "start programs with mpirun, python -m farandole.run or horovod.run",
    "horovod.spark": "start programs with mpirun or python -m farandole.run",
    "horovod.tensorflow.mpi_lib": "it is Horovod's library; call the functions of horovod.tensorflow.mpi_ops",
    "horovod.torch": "Farandole is for TensorFlow and Keras",
}

_PLACE = "init shutdown is_initialized rank size local_rank local_size cross_rank cross_size"
_BUILT = """mpi_threads_supported mpi_enabled mpi_built gloo_enabled gloo_built nccl_built ddl_built ccl_built
    cuda_built rocm_built"""
_LIFECYCLE = f"{_PLACE} {_BUILT} start_timeline stop_timeline"
_SETS = "ProcessSet global_process_set add_process_set remove_process_set"
_OPERATIONS = "Average Sum Adasum Min Max Product"
_SIZES = "rank_op local_rank_op size_op local_size_op process_set_included_op"
_OBJECTS = "allgather_object broadcast_object broadcast_object_fn broadcast_variables"
_KERAS = """DistributedOptimizer Compression Average Sum allreduce allgather broadcast reducescatter
    broadcast_global_variables load_model"""
_CALLBACKS = """BroadcastGlobalVariablesCallback MetricAverageCallback LearningRateScheduleCallback
    LearningRateWarmupCallback BestModelCheckpoint"""
_KERAS_ELASTIC = """KerasState CommitStateCallback UpdateBatchStateCallback UpdateEpochStateCallback TensorFlowKerasState
    run"""

# The names of each module.
NAMES = {
    "horovod": "__version__ run",
    "horovod.common": "",
    "horovod.common.basics": "HorovodBasics MPI ProcessSet global_process_set",
    "horovod.common.elastic": """State ObjectState run_fn HorovodInternalError HostsUpdatedInterrupt HostUpdateResult
        WorkerNotificationManager notification_manager""",
    "horovod.common.exceptions": """HorovodInternalError HostsUpdatedInterrupt HorovodVersionMismatchError
        get_version_mismatch_message""",
    "horovod.common.process_sets": f"{_SETS} HorovodBasics MPI is_iterable",
    "horovod.common.util": """EXTENSIONS HorovodVersionMismatchError _cache ccl_built check_extension
        check_installed_version ddl_built env extension_available get_average_backwards_compatibility_fun get_ext_suffix
        get_extension_full_path get_version_mismatch_message gloo_built gpu_available is_iterable
        is_version_greater_equal_than mpi_built nccl_built num_rank_is_power_2 split_list""",
    "horovod.runner": "run",
    "horovod.runner.common.util.env": """IGNORE_REGEXES KUBEFLOW_MPI_EXEC LOG_LEVEL_STR get_env_rank_and_size
        is_exportable is_kubeflow_mpi""",
    "horovod.runner.util.threads": "execute_function_multithreaded in_thread on_event",
    "horovod.tensorflow": f"""{_LIFECYCLE} is_homogeneous {_SETS} {_OPERATIONS} {_SIZES} {_OBJECTS}
        allreduce grouped_allreduce allgather grouped_allgather broadcast broadcast_ alltoall reducescatter
        grouped_reducescatter join broadcast_global_variables BroadcastGlobalVariablesHook Compression
        DistributedOptimizer DistributedGradientTape PartialDistributedGradientTape SyncBatchNormalization
        LocalGradientAggregationHelper check_extension check_num_rank_power_of_2 gpu_available
        handle_average_backwards_compatibility refs_to_vars split_list vars_to_refs
        _allreduce _cache _executing_eagerly _grouped_allreduce _make_subgraph""",
    "horovod.tensorflow.compression": "Compression Compressor FP16Compressor NoneCompressor",
    "horovod.tensorflow.data.compute_service": """ComputeClient TfDataServiceConfig compute_worker_fn send_to_data_service
        tf_data_service""",
    "horovod.tensorflow.data.compute_worker": "ComputeService TfDataServiceConfig compute_worker_fn main",
    "horovod.tensorflow.elastic": """HorovodInternalError ObjectState TensorFlowKerasState TensorFlowState broadcast_object
        broadcast_object_fn broadcast_variables init rank run run_fn shutdown""",
    "horovod.tensorflow.functions": f"{_OBJECTS} ProcessSet global_process_set allgather broadcast broadcast_ rank size",
    "horovod.tensorflow.gradient_aggregation": """LocalGradientAggregationHelper apply_op_to_not_none_tensors
        get_not_none_from_list global_process_set size_op""",
    "horovod.tensorflow.gradient_aggregation_eager": "LocalGradientAggregationHelperEager global_process_set size_op",
    "horovod.tensorflow.mpi_ops": f"""{_LIFECYCLE} is_homogeneous {_SETS} {_OPERATIONS} {_SIZES}
        allgather grouped_allgather broadcast broadcast_ alltoall join _basics _allreduce _grouped_allreduce
        _executing_eagerly check_installed_version check_num_rank_power_of_2 get_average_backwards_compatibility_fun
        get_ext_suffix gpu_available handle_average_backwards_compatibility num_rank_is_power_2""",
    "horovod.tensorflow.sync_batch_norm": "SyncBatchNormalization Sum rank size",
    "horovod.tensorflow.util": "_cache _executing_eagerly _make_subgraph refs_to_vars vars_to_refs",
    "horovod.tensorflow.keras": f"{_LIFECYCLE} {_SETS} {_KERAS} is_version_greater_equal_than",
    "horovod.tensorflow.keras.callbacks": f"{_CALLBACKS} is_version_greater_equal_than",
    "horovod.tensorflow.keras.elastic": _KERAS_ELASTIC,
    "horovod.keras": f"{_LIFECYCLE} global_process_set {_KERAS} Adasum PartialDistributedOptimizer",
    "horovod.keras.callbacks": _CALLBACKS,
    "horovod.keras.elastic": _KERAS_ELASTIC,
    "horovod._keras": """CallableList LocalGradientAggregationHelper LocalGradientAggregationHelperEager allgather allreduce
        broadcast broadcast_global_variables create_distributed_optimizer load_model rank reducescatter size_op""",
    "horovod._keras.callbacks": """BroadcastGlobalVariablesCallbackImpl MetricAverageCallbackImpl
        LearningRateScheduleCallbackImpl LearningRateWarmupCallbackImpl""",
    "horovod._keras.elastic": "CommitStateCallbackImpl UpdateBatchStateCallbackImpl UpdateEpochStateCallbackImpl",
}

_FIXED_HOSTS = "the ranks and hosts of a job are fixed"
_CALLBACKS_BEHIND = f"{NAMES['horovod._keras.callbacks']} {NAMES['horovod._keras.elastic']}".split()
_PLAIN_CALLBACK = "derive from the class without Impl in its name, in horovod.tensorflow.keras.callbacks or .elastic"
# Missing names, by name or "module:name", and alternatives.
INSTEAD = {
    "MPI": "it is a placeholder for a type; use MPI of mpi4py",
    "HostUpdateResult": _FIXED_HOSTS,
    "WorkerNotificationManager": _FIXED_HOSTS,
    "notification_manager": _FIXED_HOSTS,
    "apply_op_to_not_none_tensors": "write [None if each is None else function(each) for each in tensors]",
    "get_not_none_from_list": "write [each for each in tensors if each is not None]",
    **{name: _PLAIN_CALLBACK for name in _CALLBACKS_BEHIND},
}

_ELASTIC = "[Elastic](#elastic)"
# Differences of names, by name or "module:name".
DIFFERENCES = {
    "init": "a list of ranks as `comm` raises `Unsupported`: use process sets. `expected_size` is new",
    "shutdown": "in an MPI job, `init` after `shutdown` needs a program that has initialised MPI itself (mpi4py)",
    "gloo_built": "False: Farandole has its own transports",
    "gloo_enabled": "False: Farandole has its own transports",
    "mpi_threads_supported": "raises `InvalidArgument` in a job [without MPI](quickstart.md#without-mpi)",
    "nccl_built": "the version of the NCCL that is found at run time",
    "cuda_built": "True if the plug-in for CUDA is installed: [GPUs](gpu.md#tensorflow)",
    "ProcessSet": "a set from an MPI communicator raises `Unsupported`: pass its ranks. "
    "A set without ranks cannot be registered",
    "add_process_set": "at any time, without `HOROVOD_DYNAMIC_PROCESS_SETS`; an empty list raises `InvalidArgument`: "
    "`global_process_set` is the set of all ranks",
    "remove_process_set": "at any time, without `HOROVOD_DYNAMIC_PROCESS_SETS`",
    "join": "accepts a process set; ranks that have joined do not affect `Min`, `Max`, `Product`: [Collectives](#collectives)",
    "Adasum": "also for numbers of ranks that are not powers of two, and in process sets",
    "broadcast_variables": "always in place; `inplace` has no effect",
    "Compression": "tensors of 16 bits stay unchanged; `.bf16` is new",
    "allgather_object": "sends JSON and numpy; other objects need `pickle=True`: [Objects](#objects)",
    "broadcast_object": "sends JSON and numpy; other objects need `pickle=True`: [Objects](#objects)",
    "broadcast_object_fn": "sends JSON and numpy; other objects need `pickle=True`: [Objects](#objects)",
    "DistributedGradientTape": "reduces gradients in groups; `jacobian` is this rank's: [Gradients](#gradients)",
    "SyncBatchNormalization": "weights ranks by their samples, so batches may differ in size or be empty",
    "State": _ELASTIC,
    "ObjectState": _ELASTIC,
    "TensorFlowState": _ELASTIC,
    "TensorFlowKerasState": _ELASTIC,
    "KerasState": _ELASTIC,
    "run_fn": _ELASTIC,
    "horovod.tensorflow.elastic:run": _ELASTIC,
    "horovod.tensorflow.keras.elastic:run": _ELASTIC,
    "horovod.keras.elastic:run": _ELASTIC,
    "HostsUpdatedInterrupt": _ELASTIC,
    "HorovodVersionMismatchError": "never raised: the ops are compiled for the installed TensorFlow",
    "check_extension": "looks for the framework that `ext_name` ends with, not for a file",
    "check_installed_version": "no-op: the ops are compiled for the installed TensorFlow",
    "extension_available": "looks for the framework without importing it",
    "gpu_available": "asks TensorFlow in this process",
    "HorovodBasics": "arguments of the constructor have no effect",
    "horovod:run": "starts mpirun, mpiexec or srun: [Launching](#launching)",
    "horovod.runner:run": "starts mpirun, mpiexec or srun: [Launching](#launching)",
}

_UTIL = "farandole._horovod.common_util"
# Places of names that are not in the module given by MODULES. Keys are a name or "module:name".
PLACES = {
    "__version__": "farandole._horovod.names:VERSION",
    **{name: f"farandole:{name}" for name in f"{_LIFECYCLE} is_homogeneous {_SETS}".split()},
    **{name: f"farandole.tensorflow:{name}" for name in _OBJECTS.split()},
    **{name: f"{_UTIL}:{name}" for name in NAMES["horovod.common.util"].split() if not name.endswith("_built")},
    **{
        f"horovod.common.util:{name}": f"{_UTIL}:{name}"
        for name in ("_cache", "mpi_built", "gloo_built", "nccl_built", "ddl_built", "ccl_built")
    },
    "HorovodVersionMismatchError": "farandole._horovod.exceptions:HorovodVersionMismatchError",
    "get_version_mismatch_message": "farandole._horovod.exceptions:get_version_mismatch_message",
    **{name: f"farandole.tensorflow.mpi_ops:{name}" for name in f"allgather broadcast broadcast_ {_SIZES}".split()},
    **{name: f"farandole:{name}" for name in _OPERATIONS.split()},
    **{
        f"{module}:{name}": f"{MODULES[module]}:{name}"
        for module in ("horovod.keras", "horovod.tensorflow.keras", "horovod._keras")
        for name in ("allgather", "broadcast")
    },
    **{
        f"{module}:init": "farandole.tensorflow:init"
        for module in NAMES
        if module.startswith(("horovod.tensorflow", "horovod.keras"))
    },
    "_cache": "farandole.tensorflow.util:_cache",
    "_executing_eagerly": "farandole.tensorflow.util:_executing_eagerly",
    "_allreduce": "farandole.tensorflow.mpi_ops:_allreduce",
    "_grouped_allreduce": "farandole.tensorflow.mpi_ops:_grouped_allreduce",
    "_basics": "farandole._horovod.basics:basics",
    "HorovodBasics": "farandole._horovod.basics:HorovodBasics",
    "HorovodInternalError": "farandole.errors:HorovodInternalError",
    "HostsUpdatedInterrupt": "farandole.errors:HostsUpdatedInterrupt",
    "ObjectState": "farandole.elastic:ObjectState",
    "TensorFlowKerasState": "farandole.tensorflow.elastic:TensorFlowKerasState",
    "run_fn": "farandole.elastic:run_fn",
    "check_num_rank_power_of_2": f"{_UTIL}:num_rank_is_power_2",
    "handle_average_backwards_compatibility": "farandole.tensorflow:handle_average_backwards_compatibility",
    "CallableList": "farandole.tensorflow._keras_optimizer:CallableList",
    "LocalGradientAggregationHelper": "farandole.tensorflow.gradient_aggregation:LocalGradientAggregationHelper",
    "LocalGradientAggregationHelperEager": "farandole.tensorflow.gradient_aggregation:LocalGradientAggregationHelperEager",
}


def _row(module: str, name: str) -> Row:
    for state, notes in ((MISSING, INSTEAD), (DIFFERS, DIFFERENCES)):
        note = notes.get(f"{module}:{name}") or notes.get(name)
        if note:
            return Row(module, name, state, note)
    return Row(module, name, WORKS, "")


ROWS = {module: {name: _row(module, name) for name in names.split()} for module, names in NAMES.items()}


def find(module: str, name: str) -> Optional[Row]:
    """The table's row for a name; None if Horovod has no such name."""
    return ROWS.get(module, {}).get(name)


def place(module: str, name: str) -> Optional[Place]:
    """Module and name in Farandole, even if Farandole lacks the name. None if Horovod's module only has submodules."""
    listed = name in ROWS.get(module, {})
    found = PLACES.get(f"{module}:{name}") or (PLACES.get(name) if listed else None)
    if found:
        return Place(*found.split(":"))
    ours = MODULES[module]
    return None if ours is None else Place(ours, name)


def public_names(module: str) -> List[str]:
    """The names of a module that exist here, without those that begin with an underscore."""
    rows = ROWS.get(module, {}).values()
    return [row.name for row in rows if row.state != MISSING and not row.name.startswith("_")]


def missing_module(name: str) -> Optional[str]:
    """Alternative to a module of Horovod that is missing; None if the table does not know the module."""
    known = [prefix for prefix in MISSING_MODULES if name == prefix or name.startswith(prefix + ".")]
    return MISSING_MODULES[max(known, key=len)] if known else None
