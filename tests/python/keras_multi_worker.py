# SPDX-License-Identifier: Apache-2.0
"""Keras 3's fit does not work with TensorFlow's own strategy for several processes. This test fails once it does, as a
reminder to change docs/keras.md."""

import faulthandler
import json
import os
import socket
import sys

import support

support.need("numpy", "tensorflow", "keras")

import farandole
from farandole import objects


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


faulthandler.dump_traceback_later(support.WATCHDOG_SECONDS, exit=True)
farandole.init()
workers = [f"127.0.0.1:{port}" for port in objects.allgather_object(free_port())]
os.environ["TF_CONFIG"] = json.dumps(
    {"cluster": {"worker": workers}, "task": {"type": "worker", "index": farandole.rank()}}
)

import keras
import numpy as np
import tensorflow as tf

with tf.distribute.MultiWorkerMirroredStrategy().scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
failure = None
try:
    model.fit(np.ones((8, 4), np.float32), np.ones((8, 1), np.float32), batch_size=4, verbose=0)
except Exception as error:  # pylint: disable=broad-exception-caught  # which one is TensorFlow's affair
    failure = f"{type(error).__name__}: {str(error).splitlines()[0]}"
print(f"rank {farandole.rank()}: {failure or 'fit works with MultiWorkerMirroredStrategy'}", flush=True)
sys.exit(0 if failure else 1)
