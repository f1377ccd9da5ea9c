# SPDX-License-Identifier: Apache-2.0
"""MirroredStrategy under Keras 3's fit: embeddings (sparse gradients) under optimizers that square the gradients."""

import support

support.need("numpy", "tensorflow", "keras")

import keras
import numpy as np
from keras import ops
from keras_support import RANDOM, KerasTest, Y, fit


class SlicesTest(KerasTest):
    OPTIMIZERS = {
        "adam": lambda: keras.optimizers.Adam(0.01),
        "rmsprop": lambda: keras.optimizers.RMSprop(0.01),
        "clipped": lambda: keras.optimizers.Adam(0.01, global_clipnorm=0.1),
        "accumulated": lambda: keras.optimizers.Adam(0.01, gradient_accumulation_steps=2),
    }

    def compare(self, make, names=tuple(OPTIMIZERS)):
        words = RANDOM.integers(0, 6, size=(64, 7))
        for name in names:
            optimizer = self.OPTIMIZERS[name]
            with self.subTest(name):
                alone, together = self.alone_and_together(
                    lambda optimizer=optimizer: make(optimizer()),
                    fit(words, Y, validation=False),
                    rtol=1e-4,
                    atol=1e-5,
                )
                for mine, expected in zip(together.optimizer.variables, alone.optimizer.variables):
                    if mine.shape:
                        np.testing.assert_allclose(mine.numpy(), expected.numpy(), rtol=1e-3, atol=1e-7)

    def positions(self, known_length):
        class Positions(keras.layers.Layer):
            def __init__(self):
                super().__init__()
                self.words, self.places = keras.layers.Embedding(6, 4), keras.layers.Embedding(9, 4)

            def build(self, shape):
                self.words.build(shape)
                self.places.build(shape)

            def call(self, inputs):
                length = inputs.shape[1] if known_length else ops.shape(inputs + 0)[1]
                return self.words(inputs) + self.places(ops.arange(length) // 2)

        def make(optimizer, **arguments):
            model = keras.Sequential(
                [
                    keras.Input((7,), dtype="int32"),
                    Positions(),
                    keras.layers.GlobalAveragePooling1D(),
                    keras.layers.Dense(3, activation="softmax"),
                ]
            )
            model.compile(optimizer, "sparse_categorical_crossentropy", **arguments)
            return model

        return make

    def test_positions(self):
        self.compare(self.positions(known_length=True))
        self.compare(self.positions(known_length=False), ["adam"])

    def test_positions_in_steps_that_run_eagerly(self):
        words = RANDOM.integers(0, 6, size=(64, 7))
        self.alone_and_together(
            lambda: self.positions(True)(keras.optimizers.Adam(0.01), run_eagerly=True),
            fit(words, Y, epochs=1, validation=False),
            rtol=1e-4,
            atol=1e-5,
        )

    def test_positions_in_half_precision(self):
        """The optimizer applies within a condition there."""
        words = RANDOM.integers(0, 6, size=(64, 7))
        keras.config.set_dtype_policy("mixed_float16")
        try:
            alone, together = self.alone_and_together(
                lambda: self.positions(True)(keras.optimizers.Adam(0.01)),
                lambda model: fit(words[:8], Y[:8], epochs=1, validation=False)(model) and None,
                rtol=0.1,
                atol=0.01,
            )
            for mine, expected in zip(together.optimizer.variables, alone.optimizer.variables):
                if "velocity" in mine.path:
                    np.testing.assert_allclose(mine.numpy(), expected.numpy(), rtol=0.1, atol=1e-7)
        finally:
            keras.config.set_dtype_policy("float32")


if __name__ == "__main__":
    support.main()
