# SPDX-License-Identifier: Apache-2.0
"""Trains with batches that another job prepares: usage: data_service_training.py FILE [training|compute]

`python -m horovod.tensorflow.data.compute_worker` writes FILE. The second argument says on which side the dispatchers of
TensorFlow's data service run.
"""

import sys

import digits
import tensorflow as tf

import horovod.tensorflow as hvd
from horovod.tensorflow.data.compute_service import TfDataServiceConfig, tf_data_service

file, side = sys.argv[1:]
hvd.init()
config = TfDataServiceConfig.read(file, wait_for_file_creation=True)
images, classes = digits.load(1024, seed=0)
data = tf.data.Dataset.from_tensor_slices((images, classes)).repeat().shuffle(1024).batch(32)
model = tf.keras.Sequential([tf.keras.layers.Flatten(), tf.keras.layers.Dense(10)])
losses = tf.losses.SparseCategoricalCrossentropy(from_logits=True)
optimizer = tf.optimizers.Adam(0.005 * hvd.size())


@tf.function
def training_step(batch, expected):
    with tf.GradientTape() as tape:
        loss = losses(expected, model(batch, training=True))
    tape = hvd.DistributedGradientTape(tape)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss


def train(prepared):
    for number, (batch, expected) in enumerate(prepared.take(60)):
        loss = training_step(batch, expected)
        if number == 0:
            hvd.broadcast_variables(model.variables, root_rank=0)
    return float(hvd.allreduce(loss))


if side == "compute":
    loss = train(data.send_to_data_service(config, hvd.rank(), hvd.size(), reuse_dataset=True, round_robin=False))
else:
    with tf_data_service(config, hvd.rank()) as service:
        distribute = tf.data.experimental.service.distribute("distributed_epoch", service, job_name="training")
        loss = train(data.apply(distribute))
hvd.join()
if hvd.rank() == 0:
    config.compute_client(verbose=1).shutdown()
    print(f"loss {loss:.3f}")
assert loss < 1.0, loss
