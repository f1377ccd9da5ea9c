# SPDX-License-Identifier: Apache-2.0
"""Kinds of models: ways to combine layers, and numbers of inputs and outputs."""

import keras
import numpy as np
from comparison import program, trained
from keras import layers, ops

RANDOM = np.random.default_rng(3)
BATCH = 8
X = RANDOM.normal(size=(41, 6)).astype("float32")
Y = (X @ RANDOM.normal(size=(6, 3))).argmax(axis=1)
NUMBERS = (X @ RANDOM.normal(size=(6, 1))).astype("float32")
# TensorFlow's convolutions cannot do without rows (with oneDNN the result has the channels of the input): each of 3
# ranks has one of the last batch.
IMAGES = RANDOM.uniform(size=(43, 8, 8, 2)).astype("float32")
SERIES = RANDOM.normal(size=(43, 12, 2)).astype("float32")
KINDS = RANDOM.integers(3, size=43)


def fitted(model, x, y):
    history = model.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
    return trained(model, history, x)


@program()
def sequential(scope):
    """A Sequential classifier with validation data, evaluate and predict, as in the first guide."""
    with scope():
        model = keras.Sequential(
            [keras.Input((6,)), layers.Dense(8, activation="relu"), layers.Dense(3, activation="softmax")]
        )
        model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    history = model.fit(X, Y, batch_size=BATCH, epochs=2, validation_data=(X[:13], Y[:13]), shuffle=False, verbose=0)
    return trained(model, history, X) | {"evaluated": model.evaluate(X, Y, batch_size=BATCH, verbose=0)}


@program()
def sequential_built_by_fit(scope):
    """A Sequential model without an Input, which fit builds when it sees the data."""
    with scope():
        model = keras.Sequential([layers.Dense(8, activation="relu"), layers.Dense(3)])
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    return fitted(model, X, Y)


@program(full_only=True)  # covered by two_inputs_and_two_outputs
def functional(scope):
    """A functional model that is compiled after the scope."""
    with scope():
        inputs = keras.Input((6,))
        hidden = layers.Dense(8, activation="tanh")(inputs)
        outputs = layers.Dense(3, activation="softmax")(layers.Concatenate()([inputs, hidden]))
        model = keras.Model(inputs, outputs)
    model.compile(keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return fitted(model, X, Y)


@program()
def subclassed_and_built(scope):
    """A subclass of keras.Model with layers made in __init__, built before it is fitted."""

    class Classifier(keras.Model):
        def __init__(self, classes):
            super().__init__()
            self.hidden = layers.Dense(8, activation="gelu")
            self.norm = layers.LayerNormalization()
            self.classify = layers.Dense(classes)

        def call(self, inputs):
            return self.classify(self.norm(self.hidden(inputs)))

    with scope():
        model = Classifier(3)
        model.build((None, 6))
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    return fitted(model, X, Y)


@program(full_only=True)  # covered by subclassed_and_built
def layers_with_own_weights(scope):
    """Layers of one's own with weights that build() makes and a state that call() assigns nothing to."""

    class Linear(layers.Layer):
        def __init__(self, units):
            super().__init__()
            self.units = units

        def build(self, input_shape):
            self.kernel = self.add_weight(shape=(input_shape[-1], self.units), initializer="glorot_uniform")
            self.bias = self.add_weight(shape=(self.units,), initializer="zeros")
            self.scale = self.add_weight(shape=(), initializer="ones", trainable=False)

        def call(self, inputs):
            return ops.matmul(inputs, self.kernel) * self.scale + self.bias

    with scope():
        model = keras.Sequential([keras.Input((6,)), Linear(8), layers.ReLU(), Linear(3), layers.Softmax()])
        model.compile("rmsprop", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return fitted(model, X, Y)


@program()
def two_inputs_and_two_outputs(scope):
    """Named inputs and outputs with their losses, loss_weights and metrics, and validation, as in the guide."""
    with scope():
        title, body = keras.Input((6,), name="title"), keras.Input((4,), name="body")
        hidden = [layers.Dense(5, activation="tanh")(each) for each in (title, body)]
        both = layers.Concatenate()(hidden)
        priority = layers.Dense(1, name="priority")(both)
        department = layers.Dense(3, activation="softmax", name="department")(both)
        model = keras.Model([title, body], [priority, department])
        model.compile(
            keras.optimizers.Adam(0.01),
            loss={"priority": "mse", "department": "sparse_categorical_crossentropy"},
            loss_weights={"priority": 0.3, "department": 1.0},
            metrics={"priority": ["mae"], "department": ["accuracy"]},
        )
    x = {"title": X, "body": X[:, :4] ** 2}
    y = {"priority": NUMBERS, "department": Y}
    validation = ({name: rows[:13] for name, rows in x.items()}, {name: rows[:13] for name, rows in y.items()})
    history = model.fit(
        x, y, batch_size=BATCH, epochs=2, validation_data=validation, validation_batch_size=5, shuffle=False, verbose=0
    )
    return trained(model, history, x) | {"evaluated": model.evaluate(x, y, batch_size=5, verbose=0, return_dict=True)}


@program()
def multi_task_with_dict_outputs(scope):
    """A model whose output is a dictionary, one loss and metric for each key."""
    with scope():
        inputs = keras.Input((6,))
        hidden = layers.Dense(8, activation="relu")(inputs)
        outputs = {"kind": layers.Dense(3)(hidden), "size": layers.Dense(1)(hidden)}
        model = keras.Model(inputs, outputs)
        model.compile(
            "adam",
            loss={"kind": keras.losses.SparseCategoricalCrossentropy(from_logits=True), "size": keras.losses.Huber()},
            metrics={"kind": keras.metrics.SparseTopKCategoricalAccuracy(k=2), "size": "mae"},
        )
    y = {"kind": Y, "size": NUMBERS}
    history = model.fit(X, y, batch_size=BATCH, epochs=2, validation_split=0.3, shuffle=False, verbose=0)
    return trained(model, history, X)


@program(full_only=True)  # covered by siamese: a model that is called twice
def shared_layers(scope):
    """One layer that is called on two inputs, so that its gradient has two parts."""
    with scope():
        first, second = keras.Input((6,)), keras.Input((6,))
        shared = layers.Dense(5, activation="relu")
        both = layers.Concatenate()([shared(first), shared(second)])
        model = keras.Model([first, second], layers.Dense(3, activation="softmax")(both))
        model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return fitted(model, [X, X[::-1].copy()], Y)


@program(full_only=True)  # covered by siamese: a model in a model
def nested_models(scope):
    """Models in a model: a functional one in a Sequential one, which is called by a functional one."""
    with scope():
        inputs = keras.Input((6,))
        encoder = keras.Model(inputs, layers.Dense(8, activation="tanh")(inputs), name="encoder")
        features = keras.Sequential([keras.Input((6,)), encoder, layers.Dense(4, activation="relu")], name="features")
        outer = keras.Input((6,))
        model = keras.Model(outer, layers.Dense(3, activation="softmax")(features(outer)))
        model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return fitted(model, X, Y) | {"encoded": encoder.predict(X, batch_size=BATCH, verbose=0)}


@program()
def siamese(scope):
    """A siamese network with the contrastive loss of Keras's example, which returns one number."""

    def contrastive(y_true, y_pred):
        margin = 1.0
        squares = ops.square(y_pred)
        return ops.mean((1 - y_true) * squares + y_true * ops.square(ops.maximum(margin - y_pred, 0)))

    with scope():
        inputs = keras.Input((6,))
        tower = keras.Model(inputs, layers.Dense(4, activation="tanh")(inputs))
        left, right = keras.Input((6,)), keras.Input((6,))
        distance = layers.Lambda(
            lambda pair: ops.sqrt(ops.sum(ops.square(pair[0] - pair[1]), axis=1, keepdims=True) + 1e-6),
            output_shape=(1,),
        )([tower(left), tower(right)])
        model = keras.Model([left, right], distance)
        model.compile(keras.optimizers.RMSprop(0.01), loss=contrastive, metrics=["accuracy"])
    pairs = [X[:-1], X[1:]]
    differ = (Y[:-1] != Y[1:]).astype("float32")[:, np.newaxis]
    history = model.fit(
        pairs, differ, batch_size=BATCH, epochs=2, validation_data=(pairs, differ), shuffle=False, verbose=0
    )
    return trained(model, history, pairs)


@program(full_only=True)  # covered by residual_convolutions and sequential
def autoencoder(scope):
    """A dense autoencoder: the data is its own target; encoder and decoder are used alone afterwards."""
    with scope():
        encoder = keras.Sequential([keras.Input((6,)), layers.Dense(3, activation="relu")])
        decoder = keras.Sequential([keras.Input((3,)), layers.Dense(6, activation="sigmoid")])
        model = keras.Sequential([encoder, decoder])
        model.compile("adam", "binary_crossentropy")
    targets = 1 / (1 + np.exp(-X))
    history = model.fit(X, targets, batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
    return trained(model, history, X) | {"code": encoder.predict(X, batch_size=BATCH, verbose=0)}


@program(full_only=True)  # covered by residual_convolutions
def convolutional_autoencoder(scope):
    """Strided and transposed convolutions that reconstruct images."""
    with scope():
        model = keras.Sequential(
            [
                keras.Input((8, 8, 2)),
                layers.Conv2D(4, 3, strides=2, padding="same", activation="relu"),
                layers.Conv2DTranspose(4, 3, strides=2, padding="same", activation="relu"),
                layers.Conv2D(2, 3, padding="same", activation="sigmoid"),
            ]
        )
        model.compile("adam", "mse", metrics=["mae"])
    return fitted(model, IMAGES, IMAGES)


@program()
def residual_convolutions(scope):
    """A small ResNet with synchronised batch normalisation."""

    def block(inputs, filters):
        hidden = layers.Conv2D(filters, 3, padding="same", use_bias=False)(inputs)
        hidden = layers.ReLU()(layers.BatchNormalization(synchronized=True)(hidden))
        hidden = layers.Conv2D(filters, 3, padding="same", use_bias=False)(hidden)
        return layers.ReLU()(layers.Add()([inputs, layers.BatchNormalization(synchronized=True)(hidden)]))

    with scope():
        inputs = keras.Input((8, 8, 2))
        hidden = layers.Conv2D(4, 3, padding="same")(inputs)
        pooled = layers.GlobalAveragePooling2D()(layers.MaxPooling2D()(block(hidden, 4)))
        model = keras.Model(inputs, layers.Dense(3, activation="softmax")(pooled))
        model.compile(keras.optimizers.SGD(0.05, momentum=0.9), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return fitted(model, IMAGES, KINDS)


@program(full_only=True)  # covered by residual_convolutions
def convolution_1d(scope):
    """Classification of time series with 1D convolutions."""
    with scope():
        model = keras.Sequential(
            [
                keras.Input((12, 2)),
                layers.Conv1D(4, 3, padding="same", activation="relu"),
                layers.MaxPooling1D(2),
                layers.Conv1D(8, 3, dilation_rate=2, activation="relu"),
                layers.GlobalAveragePooling1D(),
                layers.Dense(3, activation="softmax"),
            ]
        )
        model.compile("adam", "sparse_categorical_crossentropy", metrics=["sparse_categorical_accuracy"])
    return fitted(model, SERIES, KINDS)


@program(full_only=True)  # covered by residual_convolutions
def depthwise_convolutions(scope):
    """Depthwise and separable convolutions with group normalisation, as in MobileNet."""
    with scope():
        model = keras.Sequential(
            [
                keras.Input((8, 8, 2)),
                layers.DepthwiseConv2D(3, depth_multiplier=2, padding="same"),
                layers.GroupNormalization(groups=2),
                layers.Activation("relu6"),
                layers.SeparableConv2D(6, 3, activation="swish"),
                layers.GlobalMaxPooling2D(),
                layers.Dense(3, activation="softmax"),
            ]
        )
        model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return fitted(model, IMAGES, KINDS)


@program(full_only=True)  # covered by two_inputs_and_two_outputs
def mixture_of_experts(scope):
    """Experts whose outputs a gate weighs: layers in a list, and sums over an axis of their own."""
    with scope():
        inputs = keras.Input((6,))
        experts = layers.Lambda(lambda each: ops.stack(each, axis=1), output_shape=(3, 4))(
            [layers.Dense(4, activation="relu")(inputs) for _ in range(3)]
        )
        gate = layers.Reshape((3, 1))(layers.Dense(3, activation="softmax")(inputs))
        mixed = layers.Lambda(lambda each: ops.sum(each, axis=1), output_shape=(4,))(layers.Multiply()([experts, gate]))
        model = keras.Model(inputs, layers.Dense(1)(mixed))
        model.compile("adam", "mae", metrics=["mse"])
    return fitted(model, X, NUMBERS)
