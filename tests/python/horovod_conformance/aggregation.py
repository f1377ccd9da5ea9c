# SPDX-License-Identifier: Apache-2.0
"""Optimizers that reduce after every backward pass, or only after several passes."""

import tensorflow as tf
from conformance import EAGER, FUNCTION, GRAPH, case, own

import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_keras

STEPS = 4

# ---- Optimizers of TensorFlow 1

V1_OPTIONS = {
    "plain": {},
    "sums": {"op": hvd.Sum},
    "aggregated": {"backward_passes_per_step": 2},
    "aggregated sums": {"backward_passes_per_step": 2, "op": hvd.Sum},
    "averaged": {"backward_passes_per_step": 2, "average_aggregated_gradients": True},
    "predivided": {"gradient_predivide_factor": 4.0},
    "groups": {"num_groups": 1},
    "compressed": {"compression": hvd.Compression.fp16},
}


@case(tuple(V1_OPTIONS), modes=(GRAPH,))
def v1_optimizer(kind):
    """The variable after each of some steps, whose gradients differ on the ranks."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variable = tf.compat.v1.get_variable("variable", initializer=[8.0, 4.0])
        number = tf.compat.v1.placeholder(tf.float32, [])
        optimizer = hvd.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(0.25), **V1_OPTIONS[kind])
        step = optimizer.minimize(tf.reduce_sum(variable * number))
        session.run([tf.compat.v1.global_variables_initializer(), tf.compat.v1.local_variables_initializer()])
        values = []
        for index in range(STEPS):
            session.run(step, {number: float(index + hvd.rank())})
            values.append(session.run(variable).tolist())
    return repr(values)


@case((True, False), modes=(GRAPH,))
def v1_variables_broadcast(use_resource):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.compat.v1.get_variable("variable", initializer=own(), use_resource=use_resource)
        session.run(tf.compat.v1.global_variables_initializer())
        session.run(hvd.broadcast_global_variables(1))
        return repr(session.run(tf.compat.v1.global_variables()[0]).tolist())


@case(modes=(GRAPH,))
def v1_hook():
    with tf.Graph().as_default():
        variable = tf.compat.v1.get_variable("variable", initializer=own())
        with tf.compat.v1.train.MonitoredTrainingSession(hooks=[hvd.BroadcastGlobalVariablesHook(1)]) as session:
            return repr(session.run(variable).tolist())


# ---- Optimizers of Keras

KERAS_OPTIONS = {
    "plain": {},
    "sums": {"op": hvd.Sum},
    "aggregated": {"backward_passes_per_step": 2},
    "averaged": {"backward_passes_per_step": 2, "average_aggregated_gradients": True},
    "aggregated sums": {"backward_passes_per_step": 2, "op": hvd.Sum},
    "predivided": {"gradient_predivide_factor": 4.0},
    "groups": {"num_groups": 1},
    "sparse as dense": {"sparse_as_dense": True},
}
OPTIMIZERS = {"new": tf.keras.optimizers.SGD, "legacy": tf.keras.optimizers.legacy.SGD}


@case(tuple(OPTIMIZERS), tuple(KERAS_OPTIONS), (EAGER, FUNCTION), modes=(EAGER,))
def keras_minimize(generation, kind, way):
    """The variable after each of some steps, whose gradients differ on the ranks."""
    variable = tf.Variable([8.0, 4.0])
    optimizer = hvd_keras.DistributedOptimizer(OPTIMIZERS[generation](0.25), **KERAS_OPTIONS[kind])

    def step(number):
        optimizer.minimize(lambda: tf.reduce_sum(variable * number), [variable])

    step = tf.function(step) if way == FUNCTION else step
    values = []
    for index in range(STEPS):
        step(tf.constant(float(index + hvd.rank())))
        values.append(variable.numpy())
    return [*values, int(optimizer.iterations)]


@case(tuple(OPTIMIZERS), ("plain", "aggregated", "averaged"), modes=(EAGER,))
def keras_fit(generation, kind):
    """The weights after each of some steps of fit."""
    inputs = tf.keras.Input((2,))
    layer = tf.keras.layers.Dense(1, kernel_initializer="ones")
    model = tf.keras.Model(inputs, layer(inputs))
    optimizer = hvd_keras.DistributedOptimizer(OPTIMIZERS[generation](0.01), **KERAS_OPTIONS[kind])
    model.compile(optimizer, "mse")
    values = []
    note = tf.keras.callbacks.LambdaCallback(on_batch_end=lambda batch, logs: values.append(layer.kernel.numpy()))
    data = own("float32", (4, 2))
    model.fit(data, tf.reduce_sum(data, 1), batch_size=1, epochs=1, verbose=0, shuffle=False, callbacks=[note])
    return values


@case(tuple(OPTIMIZERS), modes=(EAGER,))
def keras_local_variables(generation):
    """What register_local_var leaves to the rank."""
    shared, local = tf.Variable([1.0]), tf.Variable([1.0])
    optimizer = hvd_keras.DistributedOptimizer(OPTIMIZERS[generation](0.5), scale_local_gradients=False)
    optimizer.register_local_var(local)
    optimizer.minimize(lambda: tf.reduce_sum(shared + local) * (hvd.rank() + 1.0), [shared, local])
    return [shared, local]


@case(("Adasum",), modes=(EAGER,))
def keras_by(op):
    return [] if hvd_keras.DistributedOptimizer(OPTIMIZERS["legacy"](0.5), op=getattr(hvd, op)) else None


@case(tuple(OPTIMIZERS), modes=(EAGER,))
def keras_is_recognised(generation):
    """What packages look at to find a wrapped optimizer."""
    optimizer = hvd_keras.DistributedOptimizer(OPTIMIZERS[generation](0.5))
    return [
        "horovod" in str(type(optimizer)).lower(),
        type(optimizer).__name__,
        isinstance(optimizer, OPTIMIZERS[generation]),
        hasattr(optimizer, "_compute_gradients"),
        hasattr(optimizer, "_aggregate_gradients"),
        hasattr(optimizer, "_agg_helper"),
    ]
