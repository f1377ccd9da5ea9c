# SPDX-License-Identifier: Apache-2.0
"""A Keras program written for Horovod. `python -m farandole.as_horovod` runs it, on Keras 3 and on tf-keras."""

import os

import support

support.need("numpy", "tensorflow", "tf_keras" if "TF_USE_LEGACY_KERAS" in os.environ else "keras")

import tempfile
from pathlib import Path

import numpy as np
import tensorflow as tf

import horovod.keras
import horovod.tensorflow.keras as hvd
from horovod.tensorflow.keras.callbacks import BroadcastGlobalVariablesCallback

hvd.init()
is_legacy = not hasattr(tf.keras, "ops")

random = np.random.default_rng(hvd.rank())
inputs = random.normal(size=(512, 4)).astype(np.float32)
targets = (inputs @ np.array([1.0, 2.0, -1.0, 0.5], np.float32) > 0).astype(np.int64)
dataset = tf.data.Dataset.from_tensor_slices((inputs, targets)).repeat().shuffle(512).batch(32)

model = tf.keras.Sequential([tf.keras.layers.Dense(8, activation="relu"), tf.keras.layers.Dense(2, activation="softmax")])
learning_rate = 0.01 * hvd.size()
optimizer = hvd.DistributedOptimizer(
    tf.optimizers.Adam(learning_rate), backward_passes_per_step=1, average_aggregated_gradients=True
)
# Horovod's examples pass an argument that Keras 3 does not have; farandole.as_horovod lets Keras ignore it.
loss = tf.losses.SparseCategoricalCrossentropy()
model.compile(optimizer, loss=loss, metrics=["accuracy"], experimental_run_tf_function=False)

callbacks = [
    BroadcastGlobalVariablesCallback(0),
    hvd.callbacks.MetricAverageCallback(),
    hvd.callbacks.LearningRateWarmupCallback(initial_lr=learning_rate, warmup_epochs=2, verbose=1),
]
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / ("checkpoint.h5" if is_legacy else "checkpoint.keras")
    if hvd.rank() == 0:
        callbacks.append(tf.keras.callbacks.ModelCheckpoint(str(path)))
    history = model.fit(
        dataset, steps_per_epoch=64 // hvd.size(), epochs=4, callbacks=callbacks, verbose=2 if hvd.rank() == 0 else 0
    )
    if hvd.rank() == 0:
        loaded = hvd.load_model(str(path))
        assert int(loaded.optimizer.iterations.numpy()) == 4 * (64 // hvd.size())

accuracy = history.history["accuracy"][-1]
assert accuracy > 0.9, accuracy
np.testing.assert_allclose(hvd.allgather([accuracy]), accuracy)  # what MetricAverageCallback is for
weights = np.concatenate([weight.ravel() for weight in model.get_weights()])[np.newaxis]
gathered = horovod.keras.allgather(weights)
assert (gathered == gathered[0]).all(), gathered
if hvd.rank() == 0:
    print(f"accuracy {accuracy:.3f} on {hvd.size()} ranks, {'tf-keras' if is_legacy else 'Keras 3'}")
