# SPDX-License-Identifier: Apache-2.0
"""Arguments on which ranks must agree, as in agreement_test.py, for TensorFlow: eagerly and in functions."""

import time

import tensorflow_support as support

import numpy as np
import tensorflow as tf

import farandole.tensorflow as hvd
from farandole import errors
from farandole.tensorflow import _errors

SOON = 10.0  # seconds within which every rank hears of it; TensorFlow traces a function meanwhile


def slices(values):
    return tf.IndexedSlices(tf.constant(values), tf.constant([0, 1]), tf.constant([4, 1]))


# Made anew in each function: its names for what it captures differ between ranks.
def ones():
    return tf.ones([4])


def integers():
    return tf.constant([4, 8])


def rows():
    return tf.ones([2, 2])


# Calls about which the ranks disagree, each with a part of the expected error. A call takes True on the odd rank.
MISMATCHES = {
    "allreduce: op": (lambda odd: hvd.allreduce(ones(), op=hvd.Sum if odd else hvd.Max), "max"),
    "allreduce: op of integers": (lambda odd: hvd.allreduce(integers(), op=hvd.Sum if odd else hvd.Average), "average"),
    "allreduce: op of slices": (
        lambda odd: hvd.allreduce(slices([[1.0], [2.0]]), op=hvd.Sum if odd else hvd.Average).values,
        "Average of IndexedSlices",
    ),
    "allreduce: prescale_factor": (lambda odd: hvd.allreduce(ones(), prescale_factor=2.0 if odd else 1.0), "prescale 2"),
    "allreduce: compression": (
        lambda odd: hvd.allreduce(ones(), compression=hvd.Compression.fp16 if odd else hvd.Compression.none),
        "f16",
    ),
    "grouped_allreduce: number": (lambda odd: hvd.grouped_allreduce([ones()] * (1 if odd else 2), name="n"), r"f32\[4\] f32"),
    "grouped_allreduce: op of integers": (
        lambda odd: hvd.grouped_allreduce([integers()], op=hvd.Sum if odd else hvd.Average),
        "average",
    ),
    "reducescatter: op of integers": (
        lambda odd: hvd.reducescatter(integers(), op=hvd.Sum if odd else hvd.Average),
        "average",
    ),
    "broadcast: root_rank": (lambda odd: hvd.broadcast(ones(), 1 if odd else 0), "from root 1"),
    "alltoall: shape of a row": (
        lambda odd: hvd.alltoall(tf.ones([hvd.size(), 2 if odd else 3])),
        r"f32\[3\]",
    ),
    "allgather: shape of a row": (lambda odd: hvd.allgather(tf.ones([1, 2 if odd else 3])), r"f32\[3\]"),
}

# Eager calls alone.
EAGER_MISMATCHES = {
    "broadcast_variables: root_rank": (
        lambda odd: hvd.broadcast_variables([tf.Variable(ones())], root_rank=1 if odd else 0),
        "from root 1",
    ),
    "broadcast_variables: number": (
        lambda odd: hvd.broadcast_variables([tf.Variable(ones())] * (1 if odd else 2), root_rank=0),
        "the number of variables is 2 on ranks? [0, 1]+ and 1 on rank",
    ),
    "broadcast_variables: none here": (
        lambda odd: hvd.broadcast_variables([] if odd else [tf.Variable(ones())], root_rank=0),
        "the number of variables is 1 on ranks? [0, 1]+ and 0 on rank",
    ),
    "broadcast_variables: order": (
        lambda odd: hvd.broadcast_variables(
            [tf.Variable(ones(), name=name) for name in ("ba" if odd else "ab")], root_rank=0
        ),
        "variable 0 is 'a:0' on ranks? [0, 1]+ and 'b:0' on rank",
    ),
    "broadcast_variables: shape": (
        lambda odd: hvd.broadcast_variables([tf.Variable(tf.ones([3 if odd else 4]))], root_rank=0),
        r"f32\[3\]",
    ),
    "broadcast_variables: type": (
        lambda odd: hvd.broadcast_variables([tf.Variable(tf.ones([4], tf.float64 if odd else tf.float32))], root_rank=0),
        "f64",
    ),
    "broadcast_object: root_rank": (lambda odd: hvd.broadcast_object("x", 1 if odd else 0), "object of root 1"),
    "broadcast_object_fn: root_rank": (lambda odd: hvd.broadcast_object_fn(1 if odd else 0)("x"), "object of root 1"),
    "allgather_object: pickle": (lambda odd: hvd.allgather_object("x", pickle=odd), "pickle=True"),
    "DistributedGradientTape: gradient_predivide_factor": (
        lambda odd: gradient(gradient_predivide_factor=2.0 if odd else 1.0),
        "prescale 0.5",
    ),
    "DistributedGradientTape: op": (lambda odd: gradient(op=hvd.Sum if odd else hvd.Average), "average"),
    "DistributedOptimizer: backward_passes_per_step": (
        lambda odd: [optimize(backward_passes_per_step=2 if odd else 1) for _ in range(1)],
        "sum of 2 backward passes",
    ),
    "DistributedOptimizer: average_aggregated_gradients": (
        lambda odd: optimize(backward_passes_per_step=2, average_aggregated_gradients=odd),
        "mean of 2 backward passes",
    ),
    "keras.broadcast: root_rank": (lambda odd: hvd_keras().broadcast(1.0, 1 if odd else 0), "from root 1"),
    "keras.allreduce: average": (lambda odd: hvd_keras().allreduce(1.0, average=odd), "average"),
    "MetricAverageCallback: names of the logs": (
        lambda odd: hvd_keras().callbacks.MetricAverageCallback().on_epoch_end(0, {"loss": 1.0, "x" if odd else "y": 2.0}),
        "rank . has loss, x",
    ),
    "BroadcastGlobalVariablesCallback: root_rank": (lambda odd: broadcast_callback(1 if odd else 0), "from root 1"),
    "another kind of call": (lambda odd: hvd.allgather(ones()) if odd else hvd.allreduce(ones()), "allgather"),
}

# Calls that are invalid on the odd rank only, each with a part of its error.
INVALID = {
    "broadcast: root_rank after the last": (lambda odd: hvd.broadcast(ones(), hvd.size() if odd else 0), "root . is none of"),
    "broadcast: root_rank before the first": (lambda odd: hvd.broadcast(ones(), -1 if odd else 0), "root -1 is none of"),
    "broadcast: root_rank beyond 32 bits": (lambda odd: hvd.broadcast(ones(), 2**32 if odd else 0), "root 2147483647 is none"),
    "allreduce: op": (lambda odd: hvd.allreduce(ones(), op=77 if odd else hvd.Sum), "op 77 is none of"),
    "allreduce: average and op": (
        lambda odd: hvd.allreduce(ones(), average=True if odd else None, op=hvd.Average),
        "not both",
    ),
    "allreduce: factor of bool": (
        lambda odd: hvd.allreduce(tf.constant([True]), op=hvd.Sum, prescale_factor=0.5 if odd else 1.0),
        "need numbers",
    ),
    "alltoall: splits": (
        lambda odd: hvd.alltoall(tf.ones([hvd.size()]), splits=[1] * (hvd.size() + odd)),
        "splits",
    ),
}
EAGER_INVALID = {
    "allreduce: a type that no collective has": (
        lambda odd: hvd.allreduce(tf.ones([2], tf.complex64 if odd else tf.int32), op=hvd.Sum),
        "complex64",
    ),
    "allreduce: no tensor": (lambda odd: hvd.allreduce(object() if odd else ones()), "object"),
    "allreduce: factor of slices": (
        lambda odd: hvd.allreduce(slices([[1.0], [2.0]]), op=hvd.Sum, prescale_factor=0.5 if odd else 1.0),
        "are not scaled",
    ),
    "alltoall: type of splits": (
        lambda odd: hvd.alltoall(tf.ones([hvd.size()]), splits=tf.ones([hvd.size()], tf.float32 if odd else tf.int32)),
        "must be integers",
    ),
    "broadcast_variables: root_rank": (
        lambda odd: hvd.broadcast_variables([tf.Variable(ones())], root_rank=hvd.size() if odd else 0),
        "root . is none of",
    ),
    "broadcast_object: root_rank": (lambda odd: hvd.broadcast_object("x", 99 if odd else 0), "root_rank 99 is none of"),
}


def hvd_keras():
    import farandole.tensorflow.keras

    return farandole.tensorflow.keras


def gradient(**arguments):
    variable = tf.Variable(ones())
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(variable * variable)
    return hvd.DistributedGradientTape(tape, **arguments).gradient(loss, [variable])


def optimize(**arguments):
    """Two steps: as many as the aggregated gradients of the table need."""
    variable = tf.Variable(ones())
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1), **arguments)
    for _ in range(2):
        optimizer.apply_gradients([(ones(), variable)])


def broadcast_callback(root_rank):
    model = tf.keras.Sequential([tf.keras.Input([2]), tf.keras.layers.Dense(1)])
    model.compile(tf.keras.optimizers.SGD(0.1), loss="mse")
    callback = hvd_keras().callbacks.BroadcastGlobalVariablesCallback(root_rank)
    callback.set_model(model)
    callback.on_batch_end(0)


class AgreementTest(support.OpTest):
    def setUp(self):
        super().setUp()
        if self.size < 2:
            self.skipTest("needs two ranks")
        self.odd = self.rank == self.size - 1

    def caught(self, call):
        began = time.monotonic()
        with self.assertRaises(Exception) as raised:
            call(self.odd)
        self.assertLess(time.monotonic() - began, SOON)
        return raised.exception

    def check_mismatch(self, error, text):
        error = _errors.converted(error) or error
        self.assertIsInstance(error, errors.Mismatch)
        self.assertRegex(str(error), text)

    def test_disagreements(self):
        for what, (call, text) in {**MISMATCHES, **EAGER_MISMATCHES}.items():
            with self.subTest(what):
                self.check_mismatch(self.caught(call), text)
                self.goes_on()

    def test_disagreements_in_functions(self):
        for what, (call, text) in MISMATCHES.items():
            with self.subTest(what):
                function = tf.function(lambda: call(self.odd))
                self.check_mismatch(self.caught(lambda odd: function()), text)
                self.goes_on()

    def test_invalid_values(self):
        for what, (call, text) in {**INVALID, **EAGER_INVALID}.items():
            with self.subTest(what):
                error = self.caught(call)
                self.assertRegex(str(error), text)
                if not self.odd:
                    self.check_mismatch(error, f"rank {self.size - 1}.*an invalid request")
                self.goes_on()

    def test_invalid_values_in_functions(self):
        """Errors of the engine. Errors that TensorFlow raises while tracing have no name that other ranks know."""
        for what in ("broadcast: root_rank after the last", "broadcast: root_rank beyond 32 bits", "alltoall: splits"):
            call, text = INVALID[what]
            with self.subTest(what):
                function = tf.function(lambda: call(self.odd))
                error = self.caught(lambda odd: function())
                self.assertRegex(str(error), text)
                if not self.odd:
                    self.check_mismatch(error, f"rank {self.size - 1}.*an invalid request")
                self.goes_on()

    def test_a_variable_without_a_value(self):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            variable = tf.compat.v1.Variable(np.ones(3), use_resource=True, name="v")
            broadcast = hvd.broadcast_variables([variable], root_rank=0)
            if not self.odd:
                session.run(variable.initializer)
            error = self.caught(lambda odd: session.run(broadcast))
            self.assertRegex(str(error), "an invalid request|Could not find resource")
        self.goes_on()

    def test_the_same_names_in_general(self):
        """Names may differ, as those of a second model do; only the same ones in another order are a mistake."""
        names = ["dense_1/kernel", "dense_1/bias"] if self.odd else ["dense/kernel", "dense/bias"]
        variables = [tf.Variable([float(self.rank)], name=name) for name in names]
        hvd.broadcast_variables(variables, root_rank=1)
        for variable in variables:
            self.check(variable, [1.0])

    def test_calls_without_a_name_after_a_join(self):
        for _ in range(self.rank):
            hvd.broadcast_object("x") if self.size == 1 else hvd.allreduce(ones(), name="x", op=hvd.Sum)
        hvd.join()
        self.assertEqual(hvd.broadcast_object(self.rank), 0)


class StrategyAgreementTest(support.OpTest):
    def setUp(self):
        super().setUp()
        if self.size < 2:
            self.skipTest("needs two ranks")
        self.odd = self.rank == self.size - 1
        self.strategy = hvd.MirroredStrategy()

    def mismatch(self, function, text):
        with self.assertRaisesRegex(errors.Mismatch, text):
            function()
        self.goes_on()

    def test_reduce(self):
        kind = tf.distribute.ReduceOp.MEAN if self.odd else tf.distribute.ReduceOp.SUM
        self.mismatch(lambda: self.strategy.reduce(kind, ones(), axis=None), "ReduceOp.MEAN")

    def test_gather(self):
        self.mismatch(lambda: self.strategy.gather(rows(), axis=1 if self.odd else 0), "along axis 1")

    def test_another_kind_of_read(self):
        def read():
            if self.odd:
                return self.strategy.gather(rows(), axis=0)
            return self.strategy.reduce(tf.distribute.ReduceOp.SUM, rows(), axis=None)

        self.mismatch(read, "ReduceOp.SUM")


if __name__ == "__main__":
    support.main()
