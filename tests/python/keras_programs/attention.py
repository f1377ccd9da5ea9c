# SPDX-License-Identifier: Apache-2.0
"""Transformers: positions, masks, tied weights."""

import keras
import numpy as np
from comparison import program
from keras import layers, ops

RANDOM = np.random.default_rng(12)
LENGTH, WORDS, WIDTH = 7, 12, 8
IS_WORD = np.arange(LENGTH) < RANDOM.integers(1, LENGTH + 1, size=(41, 1))
TOKENS = np.where(IS_WORD, RANDOM.integers(1, WORDS, size=(41, LENGTH)), 0)
ROWS = RANDOM.integers(0, WORDS, size=(41, LENGTH + 1))  # no padding in them
LABELS = TOKENS.sum(axis=1) % 2


@keras.saving.register_keras_serializable("programs")
class TokenAndPositionEmbedding(layers.Layer):
    """As in Keras' example of text classification with a transformer."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.tokens, self.positions = layers.Embedding(WORDS, WIDTH), layers.Embedding(LENGTH, WIDTH)

    def build(self, input_shape):
        self.tokens.build(input_shape)
        self.positions.build(input_shape)

    def call(self, inputs):
        return self.tokens(inputs) + self.positions(ops.arange(0, LENGTH))


@keras.saving.register_keras_serializable("programs")
class TransformerBlock(layers.Layer):
    """As in Keras' example of text classification with a transformer, without dropout."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.attention = layers.MultiHeadAttention(num_heads=2, key_dim=4)
        self.feed_forward = keras.Sequential([layers.Dense(16, activation="gelu"), layers.Dense(WIDTH)])
        self.first_norm, self.second_norm = layers.LayerNormalization(), layers.LayerNormalization()
        self.dropout = layers.Dropout(0.0)

    def call(self, inputs, mask=None, causal=False):
        mask = None if mask is None else mask[:, None, :]
        attended = self.attention(inputs, inputs, attention_mask=mask, use_causal_mask=causal)
        between = self.first_norm(inputs + self.dropout(attended))
        return self.second_norm(between + self.feed_forward(between))


def sentiment(scope, optimizer):
    with scope():
        inputs = keras.Input((LENGTH,), dtype="int32")
        hidden = TransformerBlock()(TokenAndPositionEmbedding()(inputs))
        outputs = layers.Dense(1, activation="sigmoid")(layers.GlobalAveragePooling1D()(hidden))
        model = keras.Model(inputs, outputs)
        model.compile(optimizer(), "binary_crossentropy", metrics=["accuracy"])
    history = model.fit(TOKENS, LABELS, batch_size=8, epochs=2, shuffle=False, verbose=0)
    return {
        "history": history.history,
        "weights": model.get_weights(),
        "optimizer": [variable.numpy() for variable in model.optimizer.variables],
        "predictions": model.predict(TOKENS, verbose=0),
    }


# The gradient of a key's bias should be 0 and is a rounding error, which Adam and RMSprop divide by itself. A large
# epsilon keeps this noise out of the comparison.
@program()
def transformer_with_positions_under_adam(scope):
    """Keras' example of text classification with a transformer: rows of positions get gradients from every rank."""
    return sentiment(scope, lambda: keras.optimizers.Adam(0.01, epsilon=1e-3))


@program()
def transformer_with_positions_under_rmsprop(scope):
    """The same with another optimizer that squares gradients."""
    return sentiment(scope, lambda: keras.optimizers.RMSprop(0.01, epsilon=1e-3))


@program()
def words_of_all_ranks_under_adam(scope):
    """An embedding of words that come several times in a batch, in several ranks' parts of it."""
    with scope():
        model = keras.Sequential(
            [
                keras.Input((LENGTH,), dtype="int32"),
                layers.Embedding(WORDS, WIDTH),
                layers.GlobalAveragePooling1D(),
                layers.Dense(1, activation="sigmoid"),
            ]
        )
        model.compile(keras.optimizers.Adam(0.01), "binary_crossentropy", metrics=["accuracy"])
    history = model.fit(TOKENS, LABELS, batch_size=8, epochs=2, shuffle=False, verbose=0)
    return {
        "history": history.history,
        "weights": model.get_weights(),
        "optimizer": [variable.numpy() for variable in model.optimizer.variables],
    }


@program()
def attention_with_a_mask_of_words(scope):
    """Padding that nobody attends to: a mask computed from the tokens, and a row whose tokens are all there."""
    with scope():
        inputs = keras.Input((LENGTH,), dtype="int32")
        is_word = ops.not_equal(inputs, 0)
        hidden = TransformerBlock()(TokenAndPositionEmbedding()(inputs), mask=is_word)
        weights = ops.cast(is_word, "float32")[..., None]
        pooled = ops.sum(hidden * weights, axis=1) / ops.sum(weights, axis=1)
        model = keras.Model(inputs, layers.Dense(1)(pooled))
        loss = keras.losses.BinaryCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss, metrics=["accuracy"])
    history = model.fit(TOKENS, LABELS, batch_size=8, epochs=2, shuffle=False, verbose=0)
    return {"history": history.history, "weights": model.get_weights(), "predictions": model.predict(TOKENS, verbose=0)}


class TiedLogits(layers.Layer):
    """Scores of words by their likeness to the embedding."""

    def __init__(self, embedding):
        super().__init__()
        self.embedding = embedding

    def call(self, inputs):
        return ops.matmul(inputs, ops.transpose(self.embedding.embeddings))


@program()
def small_language_model(scope):
    """A causal transformer that predicts the next token, with the embedding's weights as those of the last layer."""
    with scope():
        inputs = keras.Input((LENGTH,), dtype="int32")
        embedding = TokenAndPositionEmbedding()
        hidden = TransformerBlock()(embedding(inputs), causal=True)
        model = keras.Model(inputs, TiedLogits(embedding.tokens)(hidden))
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.AdamW(0.01, epsilon=1e-3, weight_decay=0.01), loss, metrics=["accuracy"])
    history = model.fit(ROWS[:, :-1], ROWS[:, 1:], batch_size=8, epochs=2, shuffle=False, verbose=0)
    return {
        "history": history.history,
        "weights": model.get_weights(),
        "predictions": model.predict(ROWS[:, :-1], batch_size=8, verbose=0),
    }
