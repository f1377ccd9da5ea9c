# SPDX-License-Identifier: Apache-2.0
"""A training job in which rank 1 fails in the way that the argument names, while rank 0 trains. See keras_exit_driver.py."""

import sys
import time

import keras
import numpy as np
import tensorflow as tf

import farandole.tensorflow as hvd

how = sys.argv[1]
strategy = hvd.MirroredStrategy()
with strategy.scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")


def fail(where):
    # On the stream of the traceback, so that launchers keep the order.
    print(f"failing at {time.time()}", file=sys.stderr, flush=True)
    raise KeyError(f"nothing there, in {where}")


class Failing(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if how == "callback" and hvd.rank() == 1 and batch == 5:
            fail("a callback")
        if how == "interrupt" and batch == 5:
            print(f"training on rank {hvd.rank()}", flush=True)


def batches():
    for batch in range(10**9):
        if how == "data" and hvd.rank() == 1 and batch == 20:
            fail("the data")
        yield np.ones((4, 4), np.float32), np.ones((4, 1), np.float32)


signature = (tf.TensorSpec([4, 4]), tf.TensorSpec([4, 1]))
dataset = tf.data.Dataset.from_generator(batches, output_signature=signature)
model.fit(dataset, verbose=0, callbacks=[Failing()])
