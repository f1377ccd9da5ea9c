# SPDX-License-Identifier: Apache-2.0
"""The first fit or evaluate reports a missing strategy.scope(); correct programs get no report."""

import subprocess
import sys

import support

support.need("numpy", "tensorflow", "keras")

import keras
import tensorflow as tf
from keras_support import KerasTest, X, Y, captured_log, classifier, sgd, strategy

import farandole.keras as hvd_keras
import farandole.tensorflow as hvd
from farandole import _missing_scope

KERAS_LATER = """
import sys
import farandole
from farandole import _missing_scope
_missing_scope.watch()
assert "keras" not in sys.modules
import keras
assert keras.callbacks.CallbackList._farandole_watches
assert not any(isinstance(each, _missing_scope._Finder) for each in sys.meta_path)
assert keras.__spec__.loader.get_source("keras")
"""


class WithTape(keras.Model):
    """The step of a program of Horovod's API."""

    def train_step(self, data):
        x, y = data
        with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
            loss = self.compute_loss(y=y, y_pred=self(x, training=True))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


class ScopeTest(KerasTest):
    def setUp(self):
        super().setUp()
        _missing_scope._has_warned = False

    def fit(self, model, *callbacks):
        model.fit(X, Y, batch_size=16, verbose=0, callbacks=list(callbacks))

    def assert_warns(self, call, is_expected=True):
        with captured_log() as texts:
            call()
        count = texts[0].count("made outside of strategy.scope()")
        self.assertEqual(count, int(is_expected and hvd.rank() == 0 and hvd.size() > 1), texts[0])
        if count:
            self.assertIn("    with strategy.scope():\n", texts[0])

    # ---- Before any strategy is made: the tests run in the order of their names.

    def test_1_nothing_but_init(self):
        model = classifier(sgd())()
        self.assert_warns(lambda: model.predict(X, verbose=0), is_expected=False)
        self.assert_warns(lambda: [self.fit(model), self.fit(model)])  # once

    def test_2_evaluate(self):
        _missing_scope.ignore_collectives_so_far()
        self.assert_warns(lambda: classifier(sgd())().evaluate(X, Y, verbose=0))

    def test_3_programs_of_the_horovod_api(self):
        model = classifier(lambda: hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), backward_passes_per_step=2))()
        self.assert_warns(lambda: self.fit(model), is_expected=False)
        broadcast = hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0)
        self.assert_warns(lambda: self.fit(classifier(sgd())(), broadcast), is_expected=False)
        inputs = keras.Input((6,))
        model = WithTape(inputs, keras.layers.Dense(3, activation="softmax")(inputs))
        model.compile("sgd", "sparse_categorical_crossentropy")
        self.assert_warns(lambda: self.fit(model), is_expected=False)
        # A program without fit, such as one with a tape, evaluates at its end on one rank.
        self.assert_warns(lambda: classifier(sgd())().evaluate(X, Y, verbose=0), is_expected=False)

    # ---- With a strategy

    def test_4_a_strategy_without_its_scope(self):
        strategy()
        self.assert_warns(lambda: self.fit(classifier(sgd())()))

    def test_5_in_the_scope(self):
        with strategy().scope():
            model = classifier(sgd())()
        self.assert_warns(lambda: [self.fit(model), model.evaluate(X, Y, verbose=0)], is_expected=False)
        self.assert_warns(lambda: self.fit(classifier(sgd())()))

    def test_keras_that_is_imported_later(self):
        if hvd.rank() == 0:
            done = subprocess.run([sys.executable, "-c", KERAS_LATER], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
        hvd.barrier()


if __name__ == "__main__":
    support.main()
