# SPDX-License-Identifier: Apache-2.0
"""A graph of TensorFlow 1 in a monitored session, with hooks."""

import digits
import tensorflow.compat.v1 as tf

import horovod.tensorflow as hvd

tf.disable_v2_behavior()
hvd.init()
images = tf.placeholder(tf.float32, [None, digits.SIDE, digits.SIDE, 1])
classes = tf.placeholder(tf.int64, [None])
with tf.variable_scope("layer"):
    weights = tf.get_variable("weights", [digits.SIDE**2, 10], initializer=tf.zeros_initializer())
    bias = tf.get_variable("bias", [10], initializer=tf.random_normal_initializer(seed=hvd.rank()))
logits = tf.reshape(images, [-1, digits.SIDE**2]) @ weights + bias
loss = tf.losses.sparse_softmax_cross_entropy(classes, logits)
optimizer = hvd.DistributedOptimizer(tf.train.AdamOptimizer(0.005 * hvd.size()))
global_step = tf.train.get_or_create_global_step()
train_op = optimizer.minimize(loss, global_step=global_step)
hooks = [
    hvd.BroadcastGlobalVariablesHook(0),
    tf.train.StopAtStepHook(last_step=120 // hvd.size()),
    tf.train.LoggingTensorHook(tensors={"step": global_step, "loss": loss}, every_n_iter=20),
]
all_images, all_classes = digits.load(2048, seed=hvd.rank())
same = tf.reduce_all(tf.equal(hvd.allgather(tf.expand_dims(bias, 0)), bias))
seen = None
with tf.train.MonitoredTrainingSession(hooks=hooks) as session:
    number = 0
    while not session.should_stop():
        part = slice(32 * number % 2048, 32 * number % 2048 + 32)
        seen = session.run([train_op, loss, same], {images: all_images[part], classes: all_classes[part]})
        number += 1
assert number == 120 // hvd.size(), number
assert seen[1] < 1.0, seen
if hvd.rank() == 0:
    print(f"loss {seen[1]:.3f} after {number} steps")
