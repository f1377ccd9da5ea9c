# SPDX-License-Identifier: Apache-2.0
"""MirroredStrategy under Keras 3's fit: options that change gradients, precision, and layers with state."""

import support

support.need("numpy", "tensorflow", "keras")

import keras
import numpy as np
from keras_support import RANDOM, KerasTest, X, Y, classifier, sgd, strategy

import farandole.tensorflow as hvd


class UpdatesTest(KerasTest):
    # ---- Updates

    def test_clipping_sees_the_gradient_of_all_ranks(self):
        for clipping in ({"clipnorm": 0.05}, {"global_clipnorm": 0.05}, {"clipvalue": 0.01}):
            with self.subTest(clipping):
                self.alone_and_together(
                    classifier(sgd(**clipping)),
                    lambda model: model.fit(X, Y, batch_size=16, epochs=2, shuffle=False, verbose=0),
                )

    def test_gradient_accumulation(self):
        self.alone_and_together(
            classifier(sgd(gradient_accumulation_steps=4, global_clipnorm=0.05)),
            lambda model: model.fit(X, Y, batch_size=8, epochs=2, shuffle=False, verbose=0),
        )

    def test_weight_decay_and_moving_averages(self):
        self.alone_and_together(
            classifier(lambda: keras.optimizers.AdamW(0.01, weight_decay=0.1, use_ema=True, ema_overwrite_frequency=3)),
            lambda model: model.fit(X, Y, batch_size=16, epochs=2, shuffle=False, verbose=0),
            rtol=1e-4,
            atol=1e-5,
        )

    def test_embeddings(self):
        words = RANDOM.integers(0, 20, size=(40, 7))

        for optimizer in ("sgd", "adam"):

            def make():
                model = keras.Sequential(
                    [
                        keras.Input((7,)),
                        keras.layers.Embedding(20, 4),
                        keras.layers.GlobalAveragePooling1D(),
                        keras.layers.Dense(3, activation="softmax"),
                    ]
                )
                model.compile(optimizer, "sparse_categorical_crossentropy")
                return model

            self.alone_and_together(
                make, lambda model: model.fit(words, Y[:40], batch_size=8, epochs=2, shuffle=False, verbose=0)
            )

    def test_an_optimizer_made_outside_of_the_scope(self):
        optimizer = keras.optimizers.SGD(0.1)
        with strategy().scope():
            model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(3, activation="softmax")])
        model.compile(optimizer, "sparse_categorical_crossentropy")
        model.fit(X, Y, batch_size=16, verbose=0)
        self.assert_same_on_all_ranks(model.get_weights())

    def test_run_eagerly(self):
        self.alone_and_together(
            classifier(sgd(), run_eagerly=True),
            lambda model: model.fit(X[:20], Y[:20], batch_size=8, shuffle=False, verbose=0),
        )

    # ---- Precision

    def test_bfloat16(self):
        keras.config.set_dtype_policy("mixed_bfloat16")
        try:
            self.alone_and_together(
                classifier(sgd()),
                lambda model: model.fit(X, Y, batch_size=16, shuffle=False, verbose=0),
                rtol=0.01,
                atol=0.01,
            )
        finally:
            keras.config.set_dtype_policy("float32")

    def test_float16_skips_a_step_on_all_ranks(self):
        keras.config.set_dtype_policy("mixed_float16")
        try:
            with strategy().scope():
                model = classifier(sgd(global_clipnorm=1.0))()
            self.assertIsInstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
            x = X.copy()
            x[63] = np.nan  # so is the gradient of the last rank, and no other's
            before = model.get_weights()
            model.fit(x, Y, batch_size=64, shuffle=False, verbose=0)
            for old, new in zip(before, model.get_weights()):
                np.testing.assert_array_equal(old, new)
            self.assertEqual(int(model.optimizer.iterations.numpy()), 0)
            scale = float(model.optimizer.dynamic_scale.numpy())
            self.assertEqual(scale, model.optimizer.initial_scale / 2)
            model.fit(X, Y, batch_size=16, epochs=2, shuffle=False, verbose=0)
            self.assertEqual(int(model.optimizer.iterations.numpy()), 8)
            self.assert_same_on_all_ranks([*model.get_weights(), float(model.optimizer.dynamic_scale.numpy())])
        finally:
            keras.config.set_dtype_policy("float32")

    # ---- Layers with state

    def normalising(self, **arguments):
        def make():
            model = keras.Sequential(
                [
                    keras.Input((6,)),
                    keras.layers.Dense(5),
                    keras.layers.BatchNormalization(momentum=0.5, **arguments),
                    keras.layers.Dense(3, activation="softmax"),
                ]
            )
            model.compile(keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy")
            return model

        return make

    def test_synchronised_normalisation(self):
        self.alone_and_together(
            self.normalising(synchronized=True),
            lambda model: model.fit(X, Y, batch_size=16, epochs=2, shuffle=False, verbose=0),
            rtol=1e-4,
            atol=1e-5,
        )

    def test_moving_statistics_are_averages_over_the_ranks(self):
        with strategy().scope():
            model = self.normalising()()
        model.fit(X[:41], Y[:41], batch_size=8, epochs=2, shuffle=False, verbose=0)  # with an empty part at the end
        self.assertTrue(all(np.isfinite(weight).all() for weight in model.get_weights()))
        self.assert_same_on_all_ranks(model.get_weights())

    def test_moving_statistics_by_samples(self):
        with strategy().scope():
            model = self.normalising()()
        dense, normalisation = model.layers[0], model.layers[1]
        outputs = X[:3] @ dense.kernel.numpy() + dense.bias.numpy()
        before = normalisation.moving_mean.numpy()
        model.fit(X[:3], Y[:3], batch_size=3, shuffle=False, verbose=0)
        # Whatever the parts: the mean of the parts' means by samples is the mean of all.
        np.testing.assert_allclose(normalisation.moving_mean.numpy(), (before + outputs.mean(axis=0)) / 2, rtol=1e-4)

    def test_dropout_differs_between_ranks(self):
        with strategy().scope():
            model = keras.Sequential([keras.Input((200,)), keras.layers.Dropout(0.5)])
        masks = hvd.allgather_object(keras.ops.convert_to_numpy(model(np.ones((1, 200), np.float32), training=True)))
        for other in masks[1:]:
            self.assertFalse(np.array_equal(masks[0], other))


if __name__ == "__main__":
    support.main()
