# SPDX-License-Identifier: Apache-2.0
"""Text: vocabularies, embeddings, recurrent layers and masks."""

import keras
import numpy as np
import tensorflow as tf
from comparison import program
from keras import layers

RANDOM = np.random.default_rng(9)
VOCABULARY = np.array("a boat cat drifts east far from gulls here is just keeping".split())
SENTENCES = [" ".join(RANDOM.choice(VOCABULARY, size=RANDOM.integers(1, 8))) for _ in range(41)]
LABELS = np.array([len(sentence) % 2 for sentence in SENTENCES])
# Each row has from 1 to 7 tokens, and zeros behind them.
TOKENS = np.where(np.arange(7) < RANDOM.integers(1, 8, size=(41, 1)), RANDOM.integers(1, 12, size=(41, 7)), 0)
WORDS = RANDOM.integers(1, 12, size=(41, 7))
TAGS = (TOKENS * 7 + np.arange(7)) % 3


@program()
def text_classification(scope):
    """Keras' example of text classification: TextVectorization is adapted and mapped over the dataset."""
    text = tf.data.Dataset.from_tensor_slices((SENTENCES, LABELS)).batch(8)
    vectorize = layers.TextVectorization(max_tokens=10, output_sequence_length=7)
    vectorize.adapt(text.map(lambda sentence, _: sentence))
    train = text.map(lambda sentence, label: (vectorize(sentence), label))
    with scope():
        model = keras.Sequential(
            [
                keras.Input((None,), dtype="int64"),
                layers.Embedding(10, 8),
                layers.GlobalAveragePooling1D(),
                layers.Dropout(0.0),
                layers.Dense(1, activation="sigmoid"),
            ]
        )
        model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
    history = model.fit(train, epochs=2, validation_data=train.take(2), verbose=0)
    return {
        "vocabulary": vectorize.get_vocabulary(),
        "history": history.history,
        "weights": model.get_weights(),
        "predictions": model.predict(train, verbose=0),
    }


@program()
def text_from_end_to_end(scope):
    """A model that takes strings: its TextVectorization gives tf-idf, and is adapted in the scope."""
    with scope():
        vectorize = layers.TextVectorization(output_mode="tf_idf")
        vectorize.adapt(SENTENCES)
        model = keras.Sequential([keras.Input((), dtype="string"), vectorize, layers.Dense(1, activation="sigmoid")])
        model.compile(keras.optimizers.SGD(0.1), "binary_crossentropy", metrics=["accuracy"])
    train = tf.data.Dataset.from_tensor_slices((SENTENCES, LABELS)).batch(8)
    history = model.fit(train, epochs=2, verbose=0)
    return {"history": history.history, "weights": model.get_weights(), "predictions": model.predict(train, verbose=0)}


@program()
def lstm_with_masks(scope):
    """Sentences of different lengths: an embedding with mask_zero before two LSTMs."""
    with scope():
        model = keras.Sequential(
            [
                keras.Input((7,), dtype="int32"),
                layers.Embedding(12, 6, mask_zero=True),
                layers.LSTM(8, return_sequences=True),
                layers.LSTM(4),
                layers.Dense(1, activation="sigmoid"),
            ]
        )
        model.compile(keras.optimizers.SGD(0.2, clipnorm=0.5), "binary_crossentropy", metrics=["accuracy"])
    history = model.fit(TOKENS, LABELS, batch_size=8, epochs=2, shuffle=False, verbose=0)
    return {"history": history.history, "weights": model.get_weights(), "predictions": model.predict(TOKENS, verbose=0)}


@program()
def tags_of_words(scope):
    """A tag for each word: a bidirectional GRU and TimeDistributed, all positions counted."""
    with scope():
        model = keras.Sequential(
            [
                keras.Input((7,), dtype="int32"),
                layers.Embedding(12, 6),
                layers.Bidirectional(layers.GRU(4, return_sequences=True)),
                layers.TimeDistributed(layers.Dense(3, activation="softmax")),
            ]
        )
        model.compile(keras.optimizers.SGD(0.2), "sparse_categorical_crossentropy", metrics=["accuracy"])
    history = model.fit(TOKENS, TAGS, batch_size=8, epochs=2, shuffle=False, verbose=0)
    return {"history": history.history, "weights": model.get_weights(), "predictions": model.predict(TOKENS, verbose=0)}


@program()
def masked_tags_as_a_sum(scope):
    """The loss of words that are there only, as a sum: exact however the words are spread over the ranks."""
    with scope():
        model = keras.Sequential(
            [
                keras.Input((7,), dtype="int32"),
                layers.Embedding(12, 6, mask_zero=True),
                layers.LSTM(4, return_sequences=True),
                layers.Dense(3),
            ]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")
        model.compile(keras.optimizers.SGD(0.01), loss, weighted_metrics=["accuracy"])
    history = model.fit(TOKENS, TAGS, batch_size=8, epochs=2, shuffle=False, verbose=0)
    return {"history": history.history, "weights": model.get_weights(), "predictions": model.predict(TOKENS, verbose=0)}


@program()
def masked_tags_of_equal_lengths(scope):
    """The mean over the words that are there, as many in each row: the mean of the ranks' means is that of all."""
    tokens = np.where(np.arange(7) < 5, WORDS, 0)
    with scope():
        model = keras.Sequential(
            [
                keras.Input((7,), dtype="int32"),
                layers.Embedding(12, 6, mask_zero=True),
                layers.LSTM(4, return_sequences=True),
                layers.Dense(3, activation="softmax"),
            ]
        )
        model.compile(keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy", weighted_metrics=["accuracy"])
    history = model.fit(tokens, TAGS, batch_size=8, epochs=2, shuffle=False, verbose=0)
    return {"history": history.history, "weights": model.get_weights(), "predictions": model.predict(tokens, verbose=0)}


@program()
def ignored_class(scope):
    """Targets of -1 that do not count (`ignore_class`), as many in each row."""
    targets = np.where(np.arange(7) % 3 == 1, -1, TAGS)
    with scope():
        model = keras.Sequential([keras.Input((7,), dtype="int32"), layers.Embedding(12, 6), layers.Dense(3)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-1)
        model.compile(keras.optimizers.SGD(0.5), loss)
    history = model.fit(TOKENS, targets, batch_size=8, epochs=2, shuffle=False, verbose=0)
    return {"history": history.history, "weights": model.get_weights(), "predictions": model.predict(TOKENS, verbose=0)}


@program(full_only=True)  # lstm_with_masks and tags_of_words cover its layers
def sequence_to_sequence(scope):
    """An encoder whose states start the decoder, which is given the right words so far."""
    with scope():
        source, target = keras.Input((7,), dtype="int32"), keras.Input((7,), dtype="int32")
        embedding = layers.Embedding(12, 6)
        _, *states = layers.LSTM(4, return_state=True)(embedding(source))
        decoded = layers.LSTM(4, return_sequences=True)(embedding(target), initial_state=states)
        model = keras.Model([source, target], layers.Dense(12)(decoded))
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.5), loss, metrics=["accuracy"])
    inputs = [TOKENS, np.pad(TOKENS[:, :-1], ((0, 0), (1, 0)))]
    history = model.fit(inputs, TOKENS, batch_size=8, epochs=2, shuffle=False, verbose=0)
    return {"history": history.history, "weights": model.get_weights(), "predictions": model.predict(inputs, verbose=0)}
