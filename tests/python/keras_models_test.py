# SPDX-License-Identifier: Apache-2.0
"""MirroredStrategy under Keras 3 when the ranks' models differ outside of their variables: all ranks raise an error
with the layer and both values. Models that differ only in names, seeds, initial values, and numbers and texts of the
program train."""

import argparse
import dataclasses
import time

import support

support.need("numpy", "tensorflow", "keras")

import keras
import numpy as np
import tensorflow as tf
from keras_support import KerasTest, X, captured_log, strategy

import farandole.tensorflow as hvd
from farandole import errors
from farandole.tensorflow.strategy import _code, _description, _values
from farandole.tensorflow.strategy import _value_differences as differences

hvd.init()
layers = keras.layers
WORDS = ["ant", "bee", "cat", "dog"]
TEXTS = tf.constant(np.array(WORDS * 4)[:, None])
NUMBERS = np.arange(16.0)[:, None] % 4


def own_order(values):
    """As going over a set() would give them: another order on rank 1."""
    values = list(values)
    return values[::-1] if hvd.rank() == 1 else values


def of_rank(first, second):
    return second if hvd.rank() == 1 else first


def trained(model, loss="mse"):
    model.compile(keras.optimizers.SGD(0.1), loss)
    return model


def of_texts(layer):
    """A model of one text per row."""
    with strategy().scope():
        inputs = keras.Input((1,), dtype="string")
        return trained(keras.Model(inputs, layers.Flatten()(layers.Embedding(8, 1)(layer()(inputs)))))


def of_layer(layer, shape=(6,)):
    with strategy().scope():
        inputs = keras.Input(shape)
        return trained(keras.Model(inputs, layers.Dense(1)(layers.Flatten()(layer()(inputs)))))


class OwnActivation(layers.Layer):
    """A layer that get_config() cannot describe."""

    def __init__(self, function, scales):
        super().__init__()
        self.function = function
        self._scales = scales
        self.rank = hvd.rank()
        self.log_path = f"/tmp/of_rank_{hvd.rank()}"

    def call(self, inputs):
        return self.function(inputs) * self._scales[0]


FEATURES = own_order(["age", "height", "size", "weight"])
RANK = hvd.rank()
shape = X[: 5 + RANK].shape  # of which call() below reads another


class Plus(layers.Layer):
    """A layer with attributes of the program's."""

    def __init__(self, **attributes):
        super().__init__()
        for name, value in attributes.items():
            setattr(self, name, value)

    def call(self, inputs):
        return inputs[:, : inputs.shape[-1]]


class WithClassAttribute(Plus):
    features = FEATURES


class Helped(Plus):
    """A layer whose difference is used by a method other than call()."""

    def call(self, inputs):
        return inputs if self.chosen() else None

    def chosen(self):
        return FEATURES


class OverSets(Plus):
    """A layer that goes over a set that another method returns."""

    def call(self, inputs):
        return inputs if [each for each in self.chosen()] else None

    def chosen(self):
        return self.features


@dataclasses.dataclass
class Settings:
    chosen: list


def table_of(words):
    return tf.lookup.KeyValueTensorInitializer(tf.constant(words), tf.range(len(words), dtype=tf.int64))


def mutable_table_of(words):
    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
    table.insert(words, tf.range(len(words), dtype=tf.int64))
    return table


class ModelsTest(KerasTest):
    def setUp(self):
        super().setUp()
        self.need_several_ranks()

    def assert_told(self, model, words, x=X[:16], y=NUMBERS, calls=("fit", "evaluate", "predict")):
        for call in calls:
            begin = time.monotonic()
            with self.assertRaises(errors.Mismatch) as caught:
                arguments = (x,) if call == "predict" else (x, y)
                getattr(model, call)(*arguments, verbose=0)
            self.assertLess(time.monotonic() - begin, 20)
            for each in words:
                self.assertIn(each, str(caught.exception))

    def test_vocabularies(self):
        words = ["vocabulary[0] of layer '", "string_lookup", "is 'ant' on rank 0 and 'dog' on rank"]
        self.assert_told(of_texts(lambda: layers.StringLookup(vocabulary=own_order(WORDS))), words, TEXTS)
        vector = lambda: layers.TextVectorization(vocabulary=own_order(WORDS), output_sequence_length=1)
        self.assert_told(of_texts(vector), words, TEXTS, calls=("fit",))
        words = ["the number of elements of vocabulary", "is 4 on rank 0 and 3 on rank 1"]
        lookup = lambda: layers.StringLookup(vocabulary=WORDS[: of_rank(4, 3)])
        self.assert_told(of_texts(lookup), words, TEXTS, calls=("fit",))

        def adapted():
            layer = layers.StringLookup()
            layer.adapt(WORDS[: of_rank(3, 4)])
            return layer

        self.assert_told(of_texts(adapted), ["the number of elements of vocabulary"], TEXTS, calls=("fit",))
        integers = lambda: layers.IntegerLookup(vocabulary=own_order([3, 5, 7]))
        self.assert_told(of_layer(integers), ["vocabulary[0] of layer '", "is 3 on rank 0 and 7 on rank 1"], calls=("fit",))

    def test_settings_of_layers(self):
        for layer, words in (
            (lambda: layers.Dense(2, activation=of_rank("relu", "tanh")), ["activation of layer", "relu on rank 0 and"]),
            (
                lambda: layers.Dense(2, kernel_regularizer=keras.regularizers.L2(of_rank(0.1, 0.2))),
                ["kernel_regularizer", "is 0.1 on rank 0 and 0.2 on rank 1"],
            ),
            (lambda: layers.Dropout(of_rank(0.1, 0.2)), ["rate of layer '", "is 0.1 on rank 0 and 0.2 on rank 1"]),
            (lambda: layers.Discretization([0.0, of_rank(0.5, 0.7)]), ["bin_boundaries[1] of layer", "is 0.5 on rank 0"]),
            (lambda: layers.Normalization(mean=[of_rank(1.0, 2.0)] * 6, variance=[1.0] * 6), ["mean", "is 1 on rank 0"]),
            (lambda: layers.Rescaling(of_rank(1.0, 2.0)), ["scale of layer", "is 1 on rank 0 and 2 on rank 1"]),
            (lambda: of_rank(layers.ReLU, layers.Softmax)(), ["element 1 of classes of its layers", "is ReLU on rank 0"]),
            (
                lambda: layers.Lambda(of_rank(lambda x: x, lambda x: -x)),
                ["code of function of layer", "is the code at keras_models_test.py:"],
            ),
            (lambda: OwnActivation(of_rank(tf.nn.relu, tf.tanh), [1.0]), ["function of layer '", "tensorflow.relu on rank 0"]),
        ):
            self.assert_told(of_layer(layer), words, calls=("fit",))
        self.assert_told(
            of_layer(lambda: layers.MaxPool2D(of_rank(1, 2), 1, "same"), (6, 6, 1)), ["pool_size"], np.ones((16, 6, 6, 1))
        )
        hashing = lambda: layers.Hashing(3, salt=of_rank(1, 2))
        self.assert_told(of_texts(hashing), ["salt[0] of layer", "is 1 on rank 0 and 2 on rank 1"], TEXTS, calls=("fit",))

    def test_order_of_layers(self):
        x = {word: X[:16, :1] for word in WORDS}
        with strategy().scope():
            inputs = {word: keras.Input((1,), name=word) for word in WORDS}
            made = {word: layers.Dense(1, use_bias=False) for word in own_order(WORDS)}
            model = trained(keras.Model(inputs, layers.Add()([made[word](inputs[word]) for word in made])))
        self.assert_told(model, ["the input of layer '", "is 'ant' on rank 0 and 'dog' on rank 1"], x)

        class Model(keras.Model):
            def __init__(self):
                super().__init__()
                self.of_words = {word: layers.Dense(1) for word in own_order(WORDS)}

            def call(self, inputs):
                return sum(self.of_words[word](inputs[word]) for word in WORDS)

        with strategy().scope():
            model = trained(Model())
        self.assert_told(model, ["its attribute of layer", "of_words['ant'] on rank 0 and of_words['dog'] on rank 1"], x)

    def test_connections_and_constants(self):
        def model(constant, swapped):
            inputs = keras.Input((6,))
            one, other = layers.Dense(2)(inputs), layers.Dense(2)(inputs)
            first, second = (other, one) if swapped else (one, other)
            return trained(keras.Model(inputs, layers.Dense(1)((first - second) * constant)))

        with strategy().scope():
            constants = model(of_rank(1.0, 2.0), False)
            crossed = model(1.0, False)
        self.assert_told(constants, ["connections", "is 1 on rank 0 and 2 on rank 1"], calls=("fit",))
        crossed.fit(X[:16], NUMBERS, verbose=0)

    def test_order_of_values_of_the_program(self):
        """A set(), kept in any place, may have another order on each rank."""
        numbers = tf.constant([FEATURES.index(each) for each in sorted(FEATURES)])
        closed_over = argparse.Namespace(chosen=FEATURES)
        first = "is 'age' on rank 0 and 'weight' on rank 1"
        for layer, words in (
            (
                lambda: Plus(feature_names=FEATURES),
                ["feature_names[0] of layer '", "has the same elements in another order", first],
            ),
            (lambda: Plus(id=tuple(FEATURES)), ["id[0]", first]),
            (lambda: Plus(settings=Settings(FEATURES)), ["attribute 'chosen' of settings", first]),
            (lambda: Plus(numbers={each: 1 for each in FEATURES}), ["the keys of numbers", first]),
            (lambda: Plus(numbers=numbers), ["numbers[0]", "is 0 on"]),
            (lambda: Plus(table=tf.lookup.StaticVocabularyTable(table_of(FEATURES), 1)), ["table[0]", first]),
            (lambda: Plus(table=mutable_table_of(FEATURES)), ["table[0]", first]),
            (lambda: WithClassAttribute(), ["features[0]", first]),
            (lambda: Helped(), ["global 'FEATURES' of chosen()", first]),
            (lambda: OverSets(features=set(map(str, range(100)))), ["features[", "has the same elements in another order"]),
            (
                lambda: layers.Lambda(lambda x: x if closed_over.chosen else None),
                ["'chosen' of variable 'closed_over' of function", first],
            ),
            (
                lambda: layers.Lambda(lambda x: x * tf.cast(tf.size(numbers), x.dtype)),
                ["variable 'numbers' of function", "is 0 on"],
            ),
        ):
            with self.subTest(words=words):
                self.assert_told(of_layer(layer), words, calls=("predict",))

    def test_code_that_goes_over_sets(self):
        features = {"age", "height"}

        def goes_over(own):
            for _ in {"age", "height", "size"}:
                list(features), enumerate(own.some)

        def asks(own, name):
            return name in {"age", "height", "size"}, name in features, sorted(own.some), len(own.some)

        names, sets = _code.iterated(goes_over.__code__)
        self.assertEqual(names, {"features", "some"})
        self.assertEqual(sets, [[repr(each) for each in frozenset({"age", "height", "size"})]])
        self.assertEqual(_code.iterated(asks.__code__), (set(), []))

    def test_order_of_names(self):
        """Which decide what data or losses of a name go to."""
        with strategy().scope():
            inputs = [keras.Input((1,), name=word) for word in own_order(WORDS)]
            by_name = trained(keras.Model(inputs, layers.Dense(1)(layers.Concatenate()(inputs))))
            one = keras.Input((6,))
            heads = trained(
                keras.Model(one, [layers.Dense(1, name=word)(one) for word in own_order(WORDS)]),
                {word: "mse" for word in WORDS},
            )
        told = "is 'ant' on rank 0 and 'dog' on rank 1"
        self.assert_told(by_name, ["names of the inputs", told], {word: X[:16, :1] for word in WORDS}, calls=("fit",))
        self.assert_told(heads, ["names of the outputs", told], y={word: NUMBERS for word in WORDS}, calls=("fit",))

    def test_code(self):
        words = own_order(WORDS)

        class Model(keras.Model):
            def __init__(self):
                super().__init__()
                self.last = layers.Dense(1)

            def call(self, inputs):
                return self.last(inputs) * len(words)

        with strategy().scope():
            model = trained(Model())
            first, second = lambda y, y_pred: tf.reduce_mean(y_pred, -1), lambda y, y_pred: tf.reduce_sum(y_pred, -1)
            other = trained(keras.Sequential([keras.Input((6,)), layers.Dense(1)]), of_rank(first, second))
        self.assert_told(model, ["element 0 of variable 'words' of call()", "is 'ant' on rank 0 and 'dog' on rank 1"])
        self.assert_told(other, ["code of loss", "is the code at keras_models_test.py:"], calls=("fit",))

    def test_custom_batches(self):
        model = of_layer(lambda: layers.Dense(2, activation=of_rank("relu", "tanh")))
        with self.assertRaisesRegex(errors.Mismatch, "activation of layer '"), hvd.converted_errors():
            model.train_on_batch(X[:16], NUMBERS)

    def test_loops(self):
        with strategy().scope():
            model = keras.Sequential([keras.Input((6,)), layers.Dense(2, activation=of_rank("relu", "tanh"))])
            optimizer = keras.optimizers.SGD(0.1)
            weight, other = tf.Variable(1.0), keras.optimizers.SGD(0.1)
        keys = tf.constant(own_order(WORDS))
        table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, tf.range(4)), -1)

        def step(x):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(model(x))
            optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)

        def step_with_table(texts):
            with tf.GradientTape() as tape:
                loss = weight * tf.reduce_mean(tf.cast(table.lookup(texts), tf.float32))
            other.apply([tape.gradient(loss, weight)], [weight])

        for function, data, words in (
            (step, X[:4], "activation of layer '.*function keras.relu on rank 0 and function keras.tanh on rank 1"),
            (
                step_with_table,
                WORDS,
                "element 0 of variable 'table' of step_with_table.*is 'ant' on rank 0 and 'dog' on rank 1",
            ),
        ):
            with self.assertRaisesRegex(errors.Mismatch, words), hvd.converted_errors():
                tf.function(strategy().run)(function, args=(tf.constant(data),))

    def test_allowed_differences(self):
        """Names, seeds, initial values, shared layers, calls of layers, and notes that ranks keep."""
        for _ in range(3 * hvd.rank()):
            layers.Dense(2), layers.StringLookup()
        with strategy().scope():
            inputs = keras.Input((6,), name=f"of_rank_{hvd.rank()}")
            kernel = keras.initializers.GlorotUniform(seed=hvd.rank())
            first = layers.Dense(4, kernel_initializer=kernel, bias_initializer=of_rank("zeros", "ones"))
            hidden = layers.Dropout(0.1, seed=hvd.rank())(first(inputs))
            if hvd.rank() == 1:
                first(keras.Input((6,)))
            hidden = OwnActivation(lambda x: x if x.dtype in {"float32", "float64", "a", "b"} else x, [1.0])(hidden)
            model = trained(keras.Model(inputs, layers.Dense(1)(hidden), name=f"model_of_rank_{hvd.rank()}"))
        for call in ("fit", "fit", "evaluate"):
            getattr(model, call)(X[:16], NUMBERS, verbose=0)
        model.predict(X[:16], verbose=0)
        with strategy().scope():
            not_compiled = keras.Model(inputs, hidden)
        not_compiled.predict(X[:16], verbose=0)

        class Functional(keras.Model):
            def train_step(self, data):
                return super().train_step(data)

        class Owned(layers.LSTM):
            pass

        with strategy().scope():
            inputs = keras.Input((6, 1))
            own = trained(Functional(inputs, layers.Dense(1)(Owned(2)(inputs))))
        own.fit(X[:16, :, None], NUMBERS, verbose=0)

    def test_numbers_of_the_program(self):
        """Those that belong to a rank are passed, others worth one warning."""
        rank, scale = hvd.rank(), of_rank(1.0, 2.5)
        one_hot = [float(each == rank) for each in range(hvd.size())]
        table = np.sin(np.arange(70000.0)).astype("float32") * (1 + rank * np.float32(2e-7))
        own = {"out": f"runs/{rank}", "task": rank, "class_name": np.arange(3.0)}
        with strategy().scope():
            inputs = keras.Input((6,))
            parts = Plus(shard=rank, offset=9 * rank, port=12300 + rank, out=f"out/{rank}", table=table, own=own)
            skipped = Plus(skipped={"age", "height", "weight"}, started_by=lambda: RANK)
            hidden = skipped(parts(inputs))
            quiet = trained(
                keras.Model(inputs, layers.Dense(1)(hidden)), lambda y, y_pred: tf.reduce_mean(y_pred, -1) + 0.0 * RANK
            )
            first = Plus(local_rows=[5, 4][min(rank, 1)], one_hot=one_hot)
            told = trained(
                keras.Model(inputs, layers.Dense(1)(first(inputs))), lambda y, y_pred: tf.reduce_mean(y_pred, -1) * scale
            )
        with captured_log() as log:
            for model in (quiet, told, told):
                model.predict(X[:16], verbose=0)
        self.assertEqual("".join(log).count("models may differ"), int(rank == 0), log)
        if rank == 0:
            for each in (
                "local_rows of layer 'functional",
                "is 5 on rank 0 and 4 on",
                "variable 'scale' of loss",
                "one_hot[0] of layer",
            ):
                self.assertIn(each, "".join(log))

    def test_levels(self):
        def level(*values, mark=differences.OWN):
            return differences.worst_difference("x", {rank: {mark: each} for rank, each in enumerate(values)}).level

        ring = [[(rank + step) % 4 for step in range(4)] for rank in range(4)]
        one_hot = [[float(rank == each) for each in range(4)] for rank in range(4)]
        for numbers in (ring, one_hot, [one_hot[0][:2], one_hot[1][:2]] * 2, [[4], [5], [5], [5]]):
            self.assertEqual(level(*numbers), differences.WARNING, numbers)
        for numbers in ([ring[0], ring[1]], [ring[0], ring[2], ring[1], ring[3]], [["'a'", "'b'"], ["'b'", "'a'"]]):
            self.assertEqual(level(*numbers), differences.ERROR, numbers)
            self.assertEqual(level(*numbers, mark=differences.ORDER), differences.ERROR, numbers)
        self.assertEqual(level([1, 2], [3, 4], mark=differences.ORDER), differences.PASSED)
        self.assertEqual(level("function keras.relu", "function keras.tanh"), differences.ERROR)

    def test_step_with_the_rank(self):
        """As contrastive losses have it, to find this rank's rows among all."""
        with strategy().scope():
            weight, optimizer = tf.Variable(1.0), keras.optimizers.SGD(0.1)

        def step(x):
            with tf.GradientTape() as tape:
                loss = weight * tf.reduce_mean(x) + 0.0 * RANK
            optimizer.apply([tape.gradient(loss, weight)], [weight])

        with captured_log() as log:
            strategy().run(step, args=(tf.constant(X[:4]),))
        self.assertNotIn("models may differ", "".join(log))

    def test_tables_are_written_down_late(self):
        """A table of many words is digested as a whole; its words are written down only where digests differ."""
        layer = layers.StringLookup(vocabulary=WORDS)
        late = _values.comparable(layer.lookup_table)
        self.assertEqual(late.digest, _values.comparable(layers.StringLookup(vocabulary=WORDS).lookup_table).digest)
        self.assertNotEqual(
            late.digest, _values.comparable(layers.StringLookup(vocabulary=WORDS[::-1]).lookup_table).digest
        )
        description = _description.Description(True)
        description.add_layer("", layer, layer.name)
        self.assertIs(description.digest(), description.digest())
        self.assertIn(["", "vocabulary", {"table from 1": [repr(word) for word in WORDS]}], description.in_full()[1])

    def test_switch(self):
        own = hvd.MirroredStrategy(model_check=False)
        with own.scope():
            model = trained(keras.Sequential([keras.Input((6,)), layers.Dropout(of_rank(0.1, 0.2)), layers.Dense(1)]))
        model.fit(X[:16], NUMBERS, verbose=0)


if __name__ == "__main__":
    support.main()
