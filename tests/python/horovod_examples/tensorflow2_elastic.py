# SPDX-License-Identifier: Apache-2.0
"""A training loop of TensorFlow 2 whose state is committed and restored."""

import digits
import tensorflow as tf

import horovod.tensorflow as hvd
from horovod.common.exceptions import HostsUpdatedInterrupt

hvd.init()
images, classes = digits.load(2048, seed=hvd.rank())
data = iter(tf.data.Dataset.from_tensor_slices((images, classes)).repeat().shuffle(2048).batch(32))
model = tf.keras.Sequential(
    [tf.keras.layers.Flatten(input_shape=(digits.SIDE, digits.SIDE, 1)), tf.keras.layers.Dense(10)]
)
losses = tf.losses.SparseCategoricalCrossentropy(from_logits=True)
optimizer = tf.optimizers.Adam(0.005 * hvd.size())
interrupted_at = 25  # where each rank pretends, once, that it was told of other hosts
resets = 0


@tf.function
def training_step(batch, expected, allreduce=True):
    with tf.GradientTape() as tape:
        loss = losses(expected, model(batch, training=True))
    if allreduce:
        tape = hvd.DistributedGradientTape(tape)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss


training_step(*next(data), allreduce=False)  # makes the variables


@hvd.elastic.run
def train(state):
    global interrupted_at
    for state.batch in range(state.batch, 60):
        if state.batch == interrupted_at:
            interrupted_at = None
            raise HostsUpdatedInterrupt(False)
        state.loss = float(training_step(*next(data)))
        if state.batch % 10 == 0:
            state.commit()


def on_state_reset():
    global resets
    resets += 1
    optimizer.learning_rate.assign(0.005 * hvd.size())


state = hvd.elastic.TensorFlowKerasState(model, optimizer, batch=0, loss=None)
state.register_reset_callbacks([on_state_reset])
train(state)
assert state.batch == 59 and resets == 1, (state.batch, resets)
assert state.loss < 1.0, state.loss
weights = hvd.allgather(tf.reshape(model.trainable_variables[-1], [1, -1]))
assert tf.reduce_all(weights == weights[:1]), weights
if hvd.rank() == 0:
    print(f"loss {state.loss:.3f} after {state.batch + 1} batches")
