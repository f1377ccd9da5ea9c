# SPDX-License-Identifier: Apache-2.0
"""BatchNormalization(synchronized=True) with masks equals one process, even if ranks mask very different parts."""

import support

support.need("numpy", "tensorflow", "keras")

import keras
import numpy as np
from keras_support import KerasTest

layers = keras.layers
ROWS, STEPS = 41, 6  # in batches of 12: the last one leaves parts uneven
LENGTHS = np.where(np.arange(ROWS) % 12 < 6, STEPS, 2)
IS_MASKED = np.arange(STEPS)[None] >= LENGTHS[:, None]
RANDOM = np.random.default_rng(0)
Y = RANDOM.normal(size=(ROWS, 1))


class MasksTest(KerasTest):
    def setUp(self):
        super().setUp()
        keras.config.set_floatx("float64")

    def tearDown(self):
        keras.config.set_floatx("float32")
        super().tearDown()

    def compare(self, inputs, masked, x, **arguments):
        def make():
            hidden = layers.BatchNormalization(synchronized=True, momentum=0.5, **arguments)(masked(inputs))
            model = keras.Model(inputs, layers.Dense(1)(layers.GlobalAveragePooling1D()(hidden)))
            model.compile(keras.optimizers.SGD(0.05), "mse")
            return model

        def train(model):
            return model.fit(x, Y, batch_size=12, epochs=2, shuffle=False, verbose=0)

        self.alone_and_together(make, train, rtol=1e-9, atol=1e-9)

    def test_masking(self):
        x = RANDOM.normal(2, 3, size=(ROWS, STEPS, 4))
        x[IS_MASKED] = 0.0
        self.compare(keras.Input((STEPS, 4)), lambda inputs: layers.Masking()(inputs), x)
        self.compare(keras.Input((STEPS, 4)), lambda inputs: inputs, x)

    def test_embedding(self):
        x = RANDOM.integers(1, 9, size=(ROWS, STEPS))
        x[IS_MASKED] = 0
        embedding = lambda inputs: layers.Embedding(9, 3, mask_zero=True)(inputs)
        self.compare(keras.Input((STEPS,), dtype="int32"), embedding, x)

    def test_all_of_a_rank_masked(self):
        x = RANDOM.normal(2, 3, size=(ROWS, STEPS, 4))
        x[np.arange(ROWS) % 12 >= 6] = 0.0
        self.compare(keras.Input((STEPS, 4)), lambda inputs: layers.Masking()(inputs), x)


if __name__ == "__main__":
    support.main()
