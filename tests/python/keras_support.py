"""What tests of Keras share: data, models, and the comparison with one process that trains with the whole batches."""

import contextlib
import os
import tempfile

import keras
import numpy as np
import support

import farandole.tensorflow as hvd

STRATEGY = None  # made with the first use
RANDOM = np.random.default_rng(5)
X = RANDOM.normal(size=(64, 6)).astype(np.float32)
Y = (X @ RANDOM.normal(size=(6, 3))).argmax(axis=1)


def strategy():
    global STRATEGY
    if STRATEGY is None:
        STRATEGY = hvd.MirroredStrategy()
    return STRATEGY


def classifier(optimizer="sgd", **compile_arguments):
    """A function that makes the model."""

    def make():
        model = keras.Sequential(
            [keras.Input((6,)), keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(3, activation="softmax")]
        )
        chosen = optimizer() if callable(optimizer) else keras.optimizers.get(optimizer)
        loss = keras.losses.SparseCategoricalCrossentropy()
        model.compile(chosen, loss, metrics=["accuracy"], **compile_arguments)
        return model

    return make


def sgd(**arguments):
    return lambda: keras.optimizers.SGD(0.1, **arguments)


@contextlib.contextmanager
def captured_log():
    """A list that has what this process wrote to its standard error, as text, once the block has ended."""
    texts = []
    with tempfile.TemporaryFile("w+") as file:
        before = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield texts
        finally:
            os.dup2(before, 2)
            os.close(before)
            file.seek(0)
            texts.append(file.read())


class KerasTest(support.RankedTest):
    def assert_same_on_all_ranks(self, values):
        for other in hvd.allgather_object([np.asarray(value) for value in values]):
            for mine, theirs in zip(values, other):
                np.testing.assert_array_equal(np.asarray(mine), theirs)

    def alone_and_together(self, make, train, rtol=1e-5, atol=1e-6):
        """Trains a model alone and one with the same start on all ranks; both must end alike. Returns them."""
        keras.utils.set_random_seed(11)
        alone = make()
        start = alone.get_weights()
        history = train(alone)
        keras.utils.set_random_seed(11)
        with strategy().scope():
            together = make()
        together.set_weights(start)
        histories = train(together)
        for mine, expected in zip(together.get_weights(), alone.get_weights()):
            np.testing.assert_allclose(mine, expected, rtol=rtol, atol=atol)
        self.assert_same_on_all_ranks(together.get_weights())
        if history is not None:
            for name, expected in history.history.items():
                np.testing.assert_allclose(histories.history[name], expected, rtol=rtol, atol=atol, err_msg=name)
            self.assert_same_on_all_ranks([histories.history[name] for name in sorted(histories.history)])
        return alone, together

    def need_several_ranks(self):
        if hvd.size() == 1:
            self.skipTest("needs several ranks")
