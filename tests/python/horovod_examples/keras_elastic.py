# SPDX-License-Identifier: Apache-2.0
"""Keras' fit with a state that is committed and restored, and the callbacks that do so."""

import digits
import tensorflow as tf

import horovod.tensorflow as hvd_tensorflow
import horovod.tensorflow.keras as hvd

hvd.init()
rate = 0.005
images, classes = digits.load(1024, seed=hvd.rank())
data = tf.data.Dataset.from_tensor_slices((images, classes)).repeat().shuffle(1024).batch(32)
model = tf.keras.Sequential(
    [tf.keras.layers.Flatten(input_shape=(digits.SIDE, digits.SIDE, 1)), tf.keras.layers.Dense(10, activation="softmax")]
)
optimizer = hvd.DistributedOptimizer(tf.optimizers.Adam(rate * hvd.size()))
model.compile(optimizer=optimizer, loss=tf.losses.SparseCategoricalCrossentropy(), metrics=["accuracy"])
# Makes the variables.
model.fit(data, steps_per_epoch=1, epochs=1, verbose=0)


def on_state_reset():
    model.optimizer.learning_rate.assign(rate * hvd.size())
    model.fit(data, steps_per_epoch=1, epochs=1, verbose=0)


state = hvd.elastic.KerasState(model, batch=0, epoch=0)
state.register_reset_callbacks([on_state_reset])
callbacks = [
    hvd.callbacks.MetricAverageCallback(),
    hvd.elastic.UpdateEpochStateCallback(state),
    hvd.elastic.UpdateBatchStateCallback(state),
    hvd.elastic.CommitStateCallback(state, batches_per_commit=5),
]


@hvd.elastic.run
def train(state):
    model.fit(
        data,
        steps_per_epoch=40 // hvd.size(),
        epochs=3 - state.epoch,
        callbacks=callbacks,
        verbose=2 if hvd.rank() == 0 else 0,
    )


train(state)
assert state.epoch == 3, state.epoch
weights = hvd_tensorflow.allgather(tf.reshape(model.trainable_variables[-1], [1, -1]))
assert tf.reduce_all(weights == weights[:1]), weights
