# SPDX-License-Identifier: Apache-2.0
"""Training without fit: loops of tf.distribute, loops as for Horovod, and train_on_batch."""

import keras
import numpy as np
import tensorflow as tf
from comparison import program
from keras import layers

import farandole.tensorflow as hvd

RANDOM = np.random.default_rng(21)
X = RANDOM.normal(size=(41, 6)).astype("float32")
Y = (X @ RANDOM.normal(size=(6, 3))).argmax(axis=1)


def network():
    return keras.Sequential([keras.Input((6,)), layers.Dense(8, activation="tanh"), layers.Dense(3)])


def place(scope):
    """(Rank, number of ranks) of a program that deals out its data itself: one of one, where it runs alone."""
    with scope():
        is_together = tf.distribute.has_strategy()
    return (hvd.rank(), hvd.size()) if is_together else (0, 1)


# ---- tf.distribute


# The guide divides by the size of full batches, so that the rows are as many as make all batches full.
@program()
def tutorial_of_tf_distribute(scope):
    """TensorFlow's tutorial on custom training: losses divided by the global batch, metrics in the replicas."""
    with scope():
        strategy = tf.distribute.get_strategy()
        model = network()
        optimizer = keras.optimizers.Adam(0.01)
        optimizer.build(model.trainable_variables)
        loss_object = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
        test_loss = keras.metrics.Mean(name="test_loss")
        train_accuracy = keras.metrics.SparseCategoricalAccuracy(name="train_accuracy")
        test_accuracy = keras.metrics.SparseCategoricalAccuracy(name="test_accuracy")
    rows = tf.data.Dataset.from_tensor_slices((X[:40], Y[:40]))
    train_data = strategy.experimental_distribute_dataset(rows.shuffle(40, seed=4).batch(8))
    test_data = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices((X, Y)).batch(8))

    def train_step(inputs):
        images, labels = inputs
        with tf.GradientTape() as tape:
            predictions = model(images, training=True)
            loss = tf.nn.compute_average_loss(loss_object(labels, predictions), global_batch_size=8)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        train_accuracy.update_state(labels, predictions)
        return loss

    def test_step(inputs):
        images, labels = inputs
        predictions = model(images, training=False)
        test_loss.update_state(loss_object(labels, predictions))
        test_accuracy.update_state(labels, predictions)

    @tf.function
    def distributed_train_step(inputs):
        return strategy.reduce("SUM", strategy.run(train_step, args=(inputs,)), axis=None)

    @tf.function
    def distributed_test_step(inputs):
        strategy.run(test_step, args=(inputs,))

    epochs = []
    for _ in range(2):
        losses = [distributed_train_step(batch) for batch in train_data]
        for batch in test_data:
            distributed_test_step(batch)
        epochs.append([losses, train_accuracy.result(), test_loss.result(), test_accuracy.result()])
        for metric in (train_accuracy, test_loss, test_accuracy):
            metric.reset_state()
    return {"epochs": epochs, "weights": model.get_weights()}


@program()
def epoch_in_a_function(scope):
    """tf.distribute's loop over the dataset within the tf.function, with a sum over a batch that is not full."""
    with scope():
        strategy = tf.distribute.get_strategy()
        model = network()
        optimizer = keras.optimizers.SGD(0.02, momentum=0.9)
        optimizer.build(model.trainable_variables)
    data = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices((X, Y)).batch(8))

    def step(x, y):
        with tf.GradientTape() as tape:
            losses = keras.losses.sparse_categorical_crossentropy(y, model(x, training=True), from_logits=True)
            loss = tf.reduce_sum(losses) / 8.0
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    @tf.function
    def epoch():
        total = 0.0
        for x, y in data:
            total += strategy.reduce("SUM", strategy.run(step, args=(x, y)), axis=None)
        return total

    return {"losses": [epoch(), epoch()], "weights": model.get_weights()}


@program(full_only=True)  # epoch_in_a_function covers iterators in a function
def steps_of_an_iterator(scope):
    """An iterator that is passed to a tf.function, which takes several batches; all rows are gathered at the end."""
    with scope():
        strategy = tf.distribute.get_strategy()
        model = network()
        optimizer = keras.optimizers.SGD(0.1)
        optimizer.build(model.trainable_variables)
    batches = tf.data.Dataset.from_tensor_slices((X, Y)).repeat().batch(8)
    iterator = iter(strategy.experimental_distribute_dataset(batches))

    def step(batch):
        x, y = batch
        with tf.GradientTape() as tape:
            outputs = model(x, training=True)
            losses = keras.losses.sparse_categorical_crossentropy(y, outputs, from_logits=True)
            loss = tf.nn.compute_average_loss(losses, global_batch_size=8)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return outputs

    @tf.function
    def several(iterator):
        for _ in tf.range(3):
            strategy.run(step, args=(next(iterator),))
        return strategy.gather(strategy.run(step, args=(next(iterator),)), axis=0)

    return {"outputs": [several(iterator), several(iterator)], "weights": model.get_weights()}


# ---- Horovod


@program()
def horovod_style_loop(scope):
    """Horovod's example for TensorFlow 2: each rank has its part of the data, and a DistributedGradientTape."""
    rank, size = place(scope)
    model = network()
    loss_object = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
    optimizer.build(model.trainable_variables)
    rows = tf.data.Dataset.from_tensor_slices((X[:36], Y[:36])).shard(size, rank)

    @tf.function
    def training_step(x, y):
        with tf.GradientTape() as tape:
            loss = loss_object(y, model(x, training=True))
        if size > 1:
            tape = hvd.DistributedGradientTape(tape)
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
        return loss

    losses = []
    for step, (x, y) in enumerate(rows.repeat(2).batch(12 // size)):
        loss = training_step(x, y)
        if size > 1 and step == 0:
            hvd.broadcast_variables(model.variables, root_rank=0)
            hvd.broadcast_variables(optimizer.variables, root_rank=0)
        losses.append(hvd.allreduce(loss) if size > 1 else loss)
    return {"losses": losses, "weights": model.get_weights()}


@program()
def horovod_under_fit(scope):
    """Horovod's example for Keras: a DistributedOptimizer and its callbacks, each rank fitting its part of the data."""
    import farandole.tensorflow.keras as keras_hvd

    rank, size = place(scope)
    model = network()
    optimizer, callbacks = keras.optimizers.SGD(0.1, momentum=0.9), []
    if size > 1:
        optimizer = keras_hvd.DistributedOptimizer(optimizer)
        callbacks = [
            keras_hvd.callbacks.BroadcastGlobalVariablesCallback(0),
            keras_hvd.callbacks.MetricAverageCallback(),
        ]
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"], jit_compile=False)
    mine = slice(rank, 36, size)
    history = model.fit(
        X[mine], Y[mine], batch_size=12 // size, epochs=2, callbacks=callbacks, shuffle=False, verbose=0
    )
    return {"history": history.history, "weights": model.get_weights()}


# ---- Batch by batch


@program()
def batch_by_batch(scope):
    """train_on_batch with this rank's part of each batch, and a learning rate that the loop sets."""
    rank, size = place(scope)
    with scope():
        model = network()
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(0.02), loss, metrics=["accuracy"])
    for begin in range(0, 40, 8):
        model.optimizer.learning_rate = 0.02 / (1 + begin)
        rows = np.array_split(np.arange(begin, begin + 8), size)[rank]
        model.train_on_batch(X[rows], Y[rows])
    rows = np.array_split(np.arange(41), size)[rank]
    weights = model.get_weights()
    return {
        "weights": weights,
        "predicted": model.predict_on_batch(X[rows]),
        "evaluated": model.evaluate(X, Y, verbose=0),
    }


@program(full_only=True)  # batch_by_batch covers train_on_batch
def weights_batch_by_batch(scope):
    """train_on_batch with weights of samples and classes, in parts that differ in size; other callers' model(x)."""
    rank, size = place(scope)
    with scope():
        model = network()
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.1), loss)
    for begin in range(0, 40, 10):
        rows = np.array_split(np.arange(begin, begin + 10), size)[rank]
        model.train_on_batch(X[rows], Y[rows], sample_weight=0.5 + rows / 41)
    for begin in range(0, 40, 10):
        rows = np.array_split(np.arange(begin, begin + 10), size)[rank]
        model.train_on_batch(X[rows], Y[rows], class_weight={0: 1.0, 1: 2.0, 2: 0.5})
    return {"weights": model.get_weights(), "outputs": model(X)}
