# SPDX-License-Identifier: Apache-2.0
"""Calls every function that the table of Horovod's names lists as working or differing, in eager mode, in a tf.function
and in a graph of TensorFlow 1, by the names that a program written for Horovod uses. All modes must give the same
results."""

import functools

import tensorflow_support
from tensorflow_support import OpTest

import numpy as np
import tensorflow as tf

import farandole
from farandole._horovod import names

farandole.install_as_horovod()

import horovod.tensorflow as hvd  # noqa: E402

RANK = 0  # are known in setUp
SIZE = 1


def eager(function, *values):
    return [np.asarray(each) for each in tf.nest.flatten(function(*map(tf.constant, values)))]


def traced(function, *values):
    return [each.numpy() for each in tf.nest.flatten(tf.function(function)(*map(tf.constant, values)))]


def graph(function, *values):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        fetched = tf.nest.flatten(function(*map(tf.constant, values)))
        session.run(tf.compat.v1.global_variables_initializer())
        return session.run(fetched)


MODES = {"eager": eager, "tf.function": traced, "graph": graph}


def mine(rows=1):
    """Other values on each rank."""
    return np.arange(2 * rows, dtype=np.float32).reshape(rows, 2) + 10 * RANK


def everyone(rows=1):
    return [np.arange(2 * rows, dtype=np.float32).reshape(rows, 2) + 10 * rank for rank in range(SIZE)]


def total(rows=1):
    return np.sum(everyone(rows), axis=0)


def _rows_of(value):
    """This rank's rows of a reduced value with one row for each rank."""
    return value[RANK : RANK + 1]


def _variables(function):
    """A function of a tensor, which calls `function` with variables that hold it, and returns their values then."""
    outside = [tf.Variable(mine()), tf.Variable(2 * mine())]

    def run(x):
        with tf.init_scope():
            is_graph = not tf.executing_eagerly()
        variables = [tf.Variable(mine()), tf.Variable(2 * mine())] if is_graph else outside
        done = function(variables)
        with tf.control_dependencies([] if done is None else tf.nest.flatten(done)):
            return [variable.read_value() + 0 * x for variable in variables]

    return run


# Name: function of tensors, its arguments, and the results, of each rank.
CASES = {
    "allreduce": lambda: (hvd.allreduce, [mine()], [total() / SIZE]),
    "grouped_allreduce": lambda: (
        lambda x, y: hvd.grouped_allreduce([x, y], op=hvd.Sum),
        [mine(), mine(2)],
        [total(), total(2)],
    ),
    "allgather": lambda: (hvd.allgather, [mine()], [np.concatenate(everyone())]),
    "broadcast": lambda: (lambda x: hvd.broadcast(x, SIZE - 1), [mine()], [everyone()[-1]]),
    "alltoall": lambda: (
        hvd.alltoall,
        [mine(SIZE)],
        [np.stack([each[RANK] for each in everyone(SIZE)])],
    ),
    "reducescatter": lambda: (
        lambda x: hvd.reducescatter(x, op=hvd.Sum),
        [mine(SIZE)],
        [_rows_of(total(SIZE))],
    ),
    "grouped_reducescatter": lambda: (
        lambda x, y: hvd.grouped_reducescatter([x, y], op=hvd.Sum),
        [mine(SIZE), 2 * mine(SIZE)],
        [_rows_of(total(SIZE)), 2 * _rows_of(total(SIZE))],
    ),
    "join": lambda: (lambda x: [x, tf.minimum(hvd.join(), 0)], [mine()], [mine(), 0]),
    "broadcast_": lambda: (
        _variables(lambda variables: hvd.broadcast_(variables, 0)),
        [mine()],
        [everyone()[0], 2 * everyone()[0]],
    ),
    "broadcast_variables": lambda: (
        _variables(lambda variables: hvd.broadcast_variables(variables, root_rank=0)),
        [mine()],
        [everyone()[0], 2 * everyone()[0]],
    ),
    "rank_op": lambda: (lambda x: [x, hvd.rank_op()], [mine()], [mine(), RANK]),
    "size_op": lambda: (lambda x: [x, hvd.size_op()], [mine()], [mine(), SIZE]),
    "local_rank_op": lambda: (lambda x: [x, hvd.local_rank_op()], [mine()], [mine(), farandole.local_rank()]),
    "local_size_op": lambda: (lambda x: [x, hvd.local_size_op()], [mine()], [mine(), farandole.local_size()]),
    "process_set_included_op": lambda: (lambda x: [x, hvd.process_set_included_op(0)], [mine()], [mine(), 1]),
    "_allreduce": lambda: (hvd._allreduce, [mine()], [total()]),
    "_grouped_allreduce": lambda: (lambda x: hvd._grouped_allreduce([x]), [mine()], [total()]),
    "Compression": lambda: (
        lambda x: hvd.allreduce(x, op=hvd.Sum, compression=hvd.Compression.fp16),
        [mine()],
        [total()],
    ),
    "Average": lambda: (lambda x: hvd.allreduce(x, op=hvd.Average), [mine()], [total() / SIZE]),
    "Sum": lambda: (lambda x: hvd.allreduce(x, op=hvd.Sum), [mine()], [total()]),
    "Min": lambda: (lambda x: hvd.allreduce(x, op=hvd.Min), [mine()], [everyone()[0]]),
    "Max": lambda: (lambda x: hvd.allreduce(x, op=hvd.Max), [mine()], [everyone()[-1]]),
    "Product": lambda: (lambda x: hvd.allreduce(x, op=hvd.Product), [mine()], [np.prod(everyone(), axis=0)]),
    "Adasum": lambda: (lambda x: hvd.allreduce(0 * x + 1, op=hvd.Adasum), [mine()], [np.ones((1, 2))]),
    "refs_to_vars": lambda: (
        _variables(lambda variables: [each.assign_add([[1.0, 1.0]]) for each in hvd.refs_to_vars(hvd.vars_to_refs(variables))]),
        [mine()],
        [mine() + 1, 2 * mine() + 1],
    ),
    "_executing_eagerly": None,  # in horovod_names/check.py
}
# Functions of the process, the same in every mode.
PLAIN = set(
    """
    init shutdown is_initialized rank size local_rank local_size cross_rank cross_size is_homogeneous
    mpi_threads_supported mpi_enabled mpi_built gloo_enabled gloo_built nccl_built ddl_built ccl_built cuda_built rocm_built
    start_timeline stop_timeline ProcessSet global_process_set add_process_set remove_process_set check_extension
    check_num_rank_power_of_2 gpu_available handle_average_backwards_compatibility split_list vars_to_refs
    _cache _make_subgraph
    """.split()
)
# Names with separate tests in each of their modes in Horovod: the tests of optimizers, tapes, callbacks and layers.
ELSEWHERE = set(
    """
    DistributedOptimizer DistributedGradientTape PartialDistributedGradientTape SyncBatchNormalization
    LocalGradientAggregationHelper allgather_object broadcast_object broadcast_object_fn broadcast_global_variables
    BroadcastGlobalVariablesHook grouped_allgather
    """.split()
)


class ModesTest(OpTest):
    def setUp(self):
        super().setUp()
        global RANK, SIZE
        RANK, SIZE = self.rank, self.size

    def test_every_name_has_a_place(self):
        there = {row.name for row in names.ROWS["horovod.tensorflow"].values() if row.state != names.MISSING}
        self.assertEqual(there - set(CASES) - PLAIN - ELSEWHERE, set())

    def check_in_every_mode(self, name):
        for mode, run in MODES.items():
            function, values, expected = CASES[name]()
            with self.subTest(name=name, mode=mode):
                results = run(function, *values)
                self.assertEqual(len(results), len(expected))
                for result, right in zip(results, expected):
                    np.testing.assert_allclose(result, right, rtol=1e-3)

    def test_grouped_allgather(self):
        for run in MODES.values():
            first, second = run(lambda x, y: hvd.mpi_ops.grouped_allgather([x, y]), mine(), mine(2))
            np.testing.assert_array_equal(first, np.concatenate(everyone()))
            np.testing.assert_array_equal(second, np.concatenate(everyone(2)))

    def test_gradients(self):
        """In a graph by tf.gradients, else by a tape."""

        def loss(x):
            return tf.reduce_sum(hvd.allreduce(x, op=hvd.Sum) * tf.constant([[1.0, 2.0]]))

        def by_tape(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                value = loss(x)
            return tape.gradient(value, x)

        right = SIZE * np.array([[1.0, 2.0]])
        np.testing.assert_array_equal(eager(by_tape, mine())[0], right)
        np.testing.assert_array_equal(traced(by_tape, mine())[0], right)
        np.testing.assert_array_equal(graph(lambda x: tf.gradients(loss(x), x), mine())[0], right)

    def test_distributed_tape(self):
        def gradient(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                value = tf.reduce_sum(x * x)
            return hvd.DistributedGradientTape(tape).gradient(value, x)

        for run in (eager, traced):
            np.testing.assert_allclose(run(gradient, mine())[0], 2 * total() / SIZE)

    def test_objects(self):
        for session in (None, object()):
            self.assertEqual(hvd.broadcast_object({"rank": self.rank}, 0, session), {"rank": 0})
        self.assertEqual(hvd.allgather_object(self.rank), list(range(self.size)))
        self.assertEqual(hvd.broadcast_object_fn(root_rank=0)([self.rank]), [0])

    def test_global_variables(self):
        with tf.Graph().as_default():
            variable = tf.compat.v1.get_variable("v", initializer=float(self.rank), use_resource=True)
            hook = hvd.BroadcastGlobalVariablesHook(0)
            with tf.compat.v1.train.MonitoredTrainingSession(hooks=[hook]) as session:
                self.assertEqual(session.run(variable), 0.0)


for _name, _case in CASES.items():
    if _case is not None:
        _test = functools.partialmethod(ModesTest.check_in_every_mode, _name)
        setattr(ModesTest, f"test_name_{_name}", _test)


if __name__ == "__main__":
    tensorflow_support.main()
