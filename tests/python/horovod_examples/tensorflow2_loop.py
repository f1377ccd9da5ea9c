# SPDX-License-Identifier: Apache-2.0
"""A training loop of TensorFlow 2, with a checkpoint that the first rank writes."""

import argparse
import os
import tempfile

import digits
import tensorflow as tf

import horovod.tensorflow as hvd

hvd.init()
for device in tf.config.experimental.list_physical_devices("GPU"):
    tf.config.experimental.set_memory_growth(device, True)
if tf.config.experimental.list_physical_devices("GPU"):
    own = tf.config.experimental.list_physical_devices("GPU")[hvd.local_rank()]
    tf.config.experimental.set_visible_devices(own, "GPU")

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=200)
arguments = parser.parse_args()

images, classes = digits.load(2048, seed=hvd.rank())
data = tf.data.Dataset.from_tensor_slices((images, classes)).repeat().shuffle(2048).batch(32)
model = tf.keras.Sequential(
    [
        tf.keras.layers.Conv2D(8, 3, activation="relu"),
        tf.keras.layers.MaxPooling2D(),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dropout(0.25),
        tf.keras.layers.Dense(10),
    ]
)
losses = tf.losses.SparseCategoricalCrossentropy(from_logits=True)
optimizer = tf.optimizers.Adam(0.002 * hvd.size())


@tf.function
def training_step(batch, expected, is_first):
    with tf.GradientTape() as tape:
        loss = losses(expected, model(batch, training=True))
    tape = hvd.DistributedGradientTape(tape)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    if is_first:  # after the first step, when all variables are there
        hvd.broadcast_variables(model.variables, root_rank=0)
        hvd.broadcast_variables(optimizer.variables() if callable(optimizer.variables) else optimizer.variables, root_rank=0)
    return loss


for number, (batch, expected) in enumerate(data.take(arguments.steps // hvd.size())):
    loss = training_step(batch, expected, number == 0)
    if number % 20 == 0 and hvd.local_rank() == 0:
        print(f"step {number}: loss {float(loss):.3f}")

with tempfile.TemporaryDirectory() as folder:
    if hvd.rank() == 0:
        path = tf.train.Checkpoint(model=model).save(os.path.join(folder, "checkpoint"))
        tf.train.Checkpoint(model=model).restore(path).assert_existing_objects_matched()

test_images, test_classes = digits.load(512, seed=100)
right = tf.reduce_mean(tf.cast(tf.argmax(model(test_images), 1) == test_classes, tf.float32))
weights = hvd.allgather(tf.reshape(model.trainable_variables[-1], [1, -1]))
assert right > 0.9, right
assert tf.reduce_all(weights == weights[:1]), weights
if hvd.rank() == 0:
    print(f"right: {float(right):.3f}")
