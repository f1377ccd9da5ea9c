# SPDX-License-Identifier: Apache-2.0
# A model and its strategy.
import keras

import farandole.tensorflow as farandole

strategy = farandole.MirroredStrategy()
with strategy.scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
# BLOCK
