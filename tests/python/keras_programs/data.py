# SPDX-License-Identifier: Apache-2.0
"""Data of every kind. 41 rows in batches of 8 leave one row for the last batch, so the ranks get uneven parts."""

import keras
import numpy as np
import tensorflow as tf
from comparison import program
from keras import layers

import farandole.tensorflow as hvd

RANDOM = np.random.default_rng(7)
X = RANDOM.normal(size=(41, 6)).astype("float32")
Y = (X @ RANDOM.normal(size=(6, 3))).argmax(axis=1)
WEIGHTS = RANDOM.uniform(0.1, 2.0, size=41).astype("float32")
WORDS = np.array(["red", "green", "blue", "yellow"])[RANDOM.integers(0, 4, size=(41, 1))]
LENGTHS = RANDOM.integers(1, 6, size=41)
COUNTS = np.maximum(RANDOM.integers(-6, 4, size=(41, 12)), 0).astype("float32")  # most are zero
IMAGES = RANDOM.integers(0, 256, size=(41, 10, 10, 3)).astype("uint8")


def classifier(scope, inputs=6, optimizer="adam", **compile_arguments):
    with scope():
        model = keras.Sequential(
            [keras.Input((inputs,)), layers.Dense(8, activation="tanh"), layers.Dense(3, activation="softmax")]
        )
        model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"], **compile_arguments)
    return model


def outcome(model, history, x=X):
    return {
        "history": history.history,
        "weights": model.get_weights(),
        "predictions": model.predict(x, batch_size=8, verbose=0),
    }


# ---- Arrays


@program()
def validation_split(scope):
    """Arrays of which fit keeps the last part for validation."""
    model = classifier(scope)
    history = model.fit(X, Y, batch_size=8, epochs=2, validation_split=0.3, shuffle=False, verbose=0)
    return outcome(model, history)


@program()
def validation_with_weights(scope):
    """Validation data with weights of its own, in batches of its own size, after every second epoch."""
    model = classifier(scope, weighted_metrics=["accuracy"])
    validation = (X[:13], Y[:13], WEIGHTS[:13])
    history = model.fit(
        X,
        Y,
        sample_weight=WEIGHTS,
        batch_size=8,
        epochs=4,
        validation_data=validation,
        validation_batch_size=5,
        validation_freq=2,
        shuffle=False,
        verbose=0,
    )
    return outcome(model, history)


@program()
def weights_of_classes(scope):
    """Classes that count more than others."""
    model = classifier(scope)
    weights = {0: 0.5, 1: 1.0, 2: 3.0}
    history = model.fit(X, Y, batch_size=8, epochs=2, class_weight=weights, shuffle=False, verbose=0)
    return outcome(model, history)


@program()
def dictionary_of_inputs(scope):
    """Inputs by their names, as for tables of numbers and words."""
    inputs = {"numbers": X, "length": LENGTHS.astype("float32")[:, None]}
    with scope():
        numbers, length = keras.Input((6,), name="numbers"), keras.Input((1,), name="length")
        hidden = layers.Dense(8, activation="tanh")(layers.concatenate([numbers, length]))
        model = keras.Model({"numbers": numbers, "length": length}, layers.Dense(3, activation="softmax")(hidden))
        model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    history = model.fit(inputs, Y, batch_size=8, epochs=2, shuffle=False, verbose=0)
    return outcome(model, history, inputs)


@program(full_only=True)  # dictionary_of_inputs covers structures
def list_of_inputs(scope):
    """Inputs by their order."""
    with scope():
        left, right = keras.Input((4,)), keras.Input((2,))
        hidden = layers.add([layers.Dense(8)(left), layers.Dense(8)(right)])
        model = keras.Model([left, right], layers.Dense(3, activation="softmax")(hidden))
        model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    inputs = [X[:, :4], X[:, 4:]]
    history = model.fit(inputs, Y, batch_size=8, epochs=2, shuffle=False, verbose=0)
    return outcome(model, history, inputs)


@program(full_only=True)  # what arrays become before they are dealt out
def tensors(scope):
    """Tensors in place of arrays."""
    model = classifier(scope)
    history = model.fit(tf.constant(X), tf.constant(Y), batch_size=8, epochs=2, shuffle=False, verbose=0)
    return outcome(model, history)


@program()
def batches_of_one_row(scope):
    """More ranks than rows in each batch: stochastic gradient descent, sample by sample."""
    model = classifier(scope, optimizer=keras.optimizers.SGD(0.05))
    history = model.fit(X[:11], Y[:11], batch_size=1, epochs=2, shuffle=False, verbose=0)
    return outcome(model, history)


@program()
def one_batch_of_all_rows(scope):
    """A batch size beyond the number of rows."""
    model = classifier(scope)
    history = model.fit(X, Y, batch_size=100, epochs=3, validation_data=(X[:1], Y[:1]), shuffle=False, verbose=0)
    return outcome(model, history)


@program()
def several_steps_per_execution(scope):
    """Batches that are trained on in one call of the graph, with a last call of fewer."""
    model = classifier(scope, steps_per_execution=4)
    history = model.fit(X, Y, batch_size=8, epochs=2, validation_data=(X[:13], Y[:13]), shuffle=False, verbose=0)
    return outcome(model, history)


# ---- Datasets


@program()
def dataset(scope):
    """A tf.data pipeline: map, cache, batch and prefetch, another one for validation."""
    autotune = tf.data.AUTOTUNE
    whole = tf.data.Dataset.from_tensor_slices((X, Y))
    train = whole.map(lambda x, y: (x * 0.5, y), num_parallel_calls=autotune).cache().batch(8).prefetch(autotune)
    validation = whole.take(13).batch(4).cache()
    model = classifier(scope)
    history = model.fit(train, epochs=2, validation_data=validation, verbose=0)
    return {**outcome(model, history), "evaluated": model.evaluate(train, verbose=0, return_dict=True)}


@program()
def dataset_without_remainder(scope):
    """Batches that are all of one size, with static shapes, in a seeded order that is new in each epoch."""
    train = tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(41, seed=3).batch(9, drop_remainder=True)
    model = classifier(scope)
    return outcome(model, model.fit(train, epochs=3, verbose=0))


@program()
def dataset_that_repeats(scope):
    """A dataset without end: epochs of steps_per_epoch, validation of validation_steps."""
    train = tf.data.Dataset.from_tensor_slices((X, Y)).repeat().batch(8)
    validation = tf.data.Dataset.from_tensor_slices((X[:20], Y[:20])).batch(5).repeat()
    model = classifier(scope)
    history = model.fit(
        train, epochs=3, steps_per_epoch=4, validation_data=validation, validation_steps=3, verbose=0
    )
    return outcome(model, history)


@program(full_only=True)  # dataset covers the division of batches
def dataset_that_goes_on(scope):
    """A finite dataset that several epochs share."""
    train = tf.data.Dataset.from_tensor_slices((X, Y)).batch(8).repeat(2)
    model = classifier(scope)
    return outcome(model, model.fit(train, epochs=3, steps_per_epoch=4, verbose=0))


@program()
def weights_in_dataset(scope):
    """Triples of inputs, targets and weights; a batch in which some weights are zero."""
    weights = np.where(np.arange(41) % 5 == 0, 0, WEIGHTS)
    train = tf.data.Dataset.from_tensor_slices((X, Y, weights)).batch(8)
    model = classifier(scope, weighted_metrics=["sparse_categorical_crossentropy"])
    return outcome(model, model.fit(train, epochs=2, validation_data=train.take(2), verbose=0))


@program()
def padded_batches(scope):
    """Sequences of different lengths from a generator, padded batch by batch, for a recurrent layer with masks."""

    def sequences():
        for row, length in enumerate(LENGTHS):
            yield np.arange(1, length + 1) + row % 4, Y[row]

    signature = (tf.TensorSpec((None,), tf.int64), tf.TensorSpec((), tf.int64))
    train = tf.data.Dataset.from_generator(sequences, output_signature=signature).padded_batch(8)
    with scope():
        model = keras.Sequential(
            [
                keras.Input((None,), dtype="int64"),
                layers.Embedding(10, 4, mask_zero=True),
                layers.GRU(6),
                layers.Dense(3, activation="softmax"),
            ]
        )
        # Not Adam, which looks at the number of updates: in one process Keras counts one more at the end of data whose
        # number of batches is not known.
        model.compile(keras.optimizers.SGD(0.5), "sparse_categorical_crossentropy", metrics=["accuracy"])
    history = model.fit(train, epochs=2, verbose=0)
    return {"history": history.history, "weights": model.get_weights(), "predictions": model.predict(train, verbose=0)}


@program()
def ragged_batches(scope):
    """Ragged tensors, which the model makes dense itself."""

    class Mean(keras.Model):
        """The mean of the embedded words of each row."""

        def __init__(self):
            super().__init__()
            self.embedding, self.head = layers.Embedding(10, 4), layers.Dense(3, activation="softmax")

        def build(self, _):
            self.embedding.build(None)
            self.head.build((None, 4))

        def call(self, words):
            dense = words.to_tensor(0) if isinstance(words, tf.RaggedTensor) else words
            is_word = keras.ops.cast(dense > 0, "float32")[..., None]
            return self.head(keras.ops.sum(self.embedding(dense) * is_word, 1) / keras.ops.sum(is_word, 1))

    words = tf.RaggedTensor.from_row_lengths(1 + np.arange(LENGTHS.sum()) % 9, LENGTHS)
    train = tf.data.Dataset.from_tensor_slices((words, Y)).batch(8)
    with scope():
        model = Mean()
        model.build((None, None))
        model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
    history = model.fit(train, epochs=2, verbose=0)
    return {"history": history.history, "weights": model.get_weights(), "predictions": model.predict(train, verbose=0)}


@program()
def sparse_batches(scope):
    """Sparse tensors: rows of counts of which most are zero."""
    train = tf.data.Dataset.from_tensor_slices((tf.sparse.from_dense(COUNTS), Y)).batch(8)
    with scope():
        inputs = keras.Input((12,), sparse=True)
        model = keras.Model(inputs, layers.Dense(3, activation="softmax")(inputs))
        model.compile(keras.optimizers.SGD(0.05), "sparse_categorical_crossentropy", metrics=["accuracy"])
    history = model.fit(train, epochs=2, verbose=0)
    return outcome(model, history, COUNTS)


@program()
def words_through_lookup(scope):
    """A column of words: StringLookup in the model, which gets the strings."""
    with scope():
        words = keras.Input((1,), dtype="string")
        lookup = layers.StringLookup(vocabulary=["blue", "green", "red"])
        embedded = layers.Flatten()(layers.Embedding(lookup.vocabulary_size(), 4)(lookup(words)))
        model = keras.Model(words, layers.Dense(3, activation="softmax")(embedded))
        model.compile(keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy", metrics=["accuracy"])
    train = tf.data.Dataset.from_tensor_slices((WORDS, Y)).batch(8)
    history = model.fit(train, epochs=2, verbose=0)
    return {"history": history.history, "weights": model.get_weights(), "predictions": model.predict(train, verbose=0)}


def train_on_images(scope, rows):
    with scope():
        model = keras.Sequential(
            [
                keras.Input((10, 10, 3)),
                layers.Rescaling(1 / 255),
                layers.Resizing(8, 8),
                layers.Conv2D(4, 3, activation="relu"),
                layers.MaxPooling2D(),
                layers.Flatten(),
                layers.Dense(3),
            ]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss, metrics=["accuracy"])
    history = model.fit(IMAGES[:rows], Y[:rows], batch_size=8, epochs=2, shuffle=False, verbose=0)
    return outcome(model, history, IMAGES[:rows])


@program()
def images(scope):
    """Bytes of images through Rescaling and Resizing into convolutions."""
    return train_on_images(scope, 38)


@program()
def own_part_of_each_rank(scope):
    """distribute_datasets_from_function: each rank reads its rows only, in its share of the batch."""

    def rows_of_this_rank(context):
        rows = tf.data.Dataset.from_tensor_slices((X[:36], Y[:36]))
        mine = rows.shard(context.num_input_pipelines, context.input_pipeline_id)
        return mine.repeat().batch(12 // context.num_input_pipelines)

    model = classifier(scope)
    with scope():
        train = tf.distribute.get_strategy().distribute_datasets_from_function(rows_of_this_rank)
    return outcome(model, model.fit(train, epochs=2, steps_per_epoch=3, verbose=0))


@program(full_only=True)  # own_part_of_each_rank covers data that are not dealt out
def own_part_by_options(scope):
    """A dataset of this rank's rows in its own batches, as AutoShardPolicy.OFF says; parts of different size."""
    with scope():
        is_together = tf.distribute.has_strategy()
    rank, size = (hvd.rank(), hvd.size()) if is_together else (0, 1)
    parts = [np.array_split(np.arange(begin, begin + 8), size)[rank] for begin in range(0, 40, 8)]

    def batches():
        for rows in parts:
            yield X[rows], Y[rows]

    signature = (tf.TensorSpec((None, 6), tf.float32), tf.TensorSpec((None,), tf.int64))
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    train = tf.data.Dataset.from_generator(batches, output_signature=signature).with_options(options)
    # With data of unknown length Keras in one process counts one iteration more at the end of an epoch, which Adam sees.
    train = train.apply(tf.data.experimental.assert_cardinality(len(parts)))
    model = classifier(scope)
    return outcome(model, model.fit(train, epochs=2, verbose=0))


# ---- Generators


@program()
def generator(scope):
    """A generator without end of batches of different sizes."""

    def batches():
        while True:
            for begin, end in ((0, 8), (8, 10), (10, 23), (23, 24)):
                yield X[begin:end], Y[begin:end]

    model = classifier(scope)
    return outcome(model, model.fit(batches(), epochs=2, steps_per_epoch=6, verbose=0))


@program()
def sequence_of_batches(scope):
    """A PyDataset that changes at the end of each epoch; another one for validation, with weights."""

    class Batches(keras.utils.PyDataset):
        def __init__(self, rows, weighted=False):
            super().__init__()
            self.rows, self.weighted, self.epoch = rows, weighted, 0

        def __len__(self):
            return -(-self.rows // 8)

        def __getitem__(self, index):
            rows = slice(8 * index, min(8 * (index + 1), self.rows))
            batch = X[rows] * (1 + 0.1 * self.epoch), Y[rows]
            return (*batch, WEIGHTS[rows]) if self.weighted else batch

        def on_epoch_end(self):
            self.epoch += 1

    model = classifier(scope)
    history = model.fit(Batches(41), epochs=2, validation_data=Batches(13, weighted=True), shuffle=False, verbose=0)
    return outcome(model, history)


# ---- Evaluating and predicting


@program()
def many_shapes(scope):
    """evaluate and predict of one row, of less and more than a batch, of datasets and generators, with weights."""
    model = classifier(scope)
    rows = {count: (X[:count], Y[:count]) for count in (1, 2, 7, 8, 41)}
    whole = tf.data.Dataset.from_tensor_slices((X, Y))
    return {
        "evaluated": [model.evaluate(x, y, batch_size=8, verbose=0) for x, y in rows.values()],
        "weighted": model.evaluate(X, Y, sample_weight=WEIGHTS, batch_size=16, verbose=0, return_dict=True),
        "steps": model.evaluate(whole.repeat().batch(3), steps=5, verbose=0),
        "predicted": [model.predict(x, batch_size=8, verbose=0) for x, _ in rows.values()],
        "dataset": model.predict(whole.batch(6), verbose=0),
        "generator": model.predict(((X[begin : begin + 5],) for begin in range(0, 41, 5)), verbose=0),
        "called": model(X[:3], training=False),
    }


@program()
def nested_outputs(scope):
    """predict of a model whose outputs are a dictionary with a list in it, also of integers."""
    with scope():
        inputs = keras.Input((6,))
        scores = layers.Dense(3, name="scores")(inputs)
        best = keras.ops.argmax(scores, axis=-1)
        model = keras.Model(inputs, {"scores": scores, "more": [best, keras.ops.expand_dims(scores, 1)]})
    return model.predict(X, batch_size=8, verbose=0)
