# SPDX-License-Identifier: Apache-2.0
"""Layers that prepare data, with and without a state that is adapted."""

import keras
import numpy as np
import tensorflow as tf
from comparison import program
from keras import layers

RANDOM = np.random.default_rng(14)
X = RANDOM.normal(3.0, 5.0, size=(41, 6)).astype("float32")
Y = (X[:, :1] > 3).astype("float32")
AGES = RANDOM.integers(18, 80, size=(41, 1)).astype("float32")
CITIES = np.array(["Bergen", "Porto", "Split", "Riga"])[RANDOM.integers(0, 4, size=(41, 1))]
CODES = RANDOM.integers(0, 5, size=(41, 1))


@program()
def normalization(scope):
    """Normalization that is adapted to the data before it is part of the model."""
    with scope():
        normalize = layers.Normalization()
        normalize.adapt(X)
        model = keras.Sequential([keras.Input((6,)), normalize, layers.Dense(1, activation="sigmoid")])
        model.compile("sgd", "binary_crossentropy", metrics=["accuracy"])
    history = model.fit(X, Y, batch_size=8, epochs=2, shuffle=False, verbose=0)
    return {"history": history.history, "weights": model.get_weights(), "predictions": model.predict(X, verbose=0)}


@program()
def table_of_columns(scope):
    """Keras' example of structured data: columns are looked up, hashed, cut into bins and encoded in the model."""
    columns = {"age": AGES, "city": CITIES, "code": CODES}
    with scope():
        age, city = keras.Input((1,), name="age"), keras.Input((1,), name="city", dtype="string")
        code = keras.Input((1,), name="code", dtype="int64")
        bins = layers.Discretization(num_bins=4, output_mode="one_hot")
        bins.adapt(AGES)
        cities = layers.StringLookup(output_mode="one_hot")
        cities.adapt(CITIES)
        codes = layers.IntegerLookup(output_mode="multi_hot")
        codes.adapt(CODES)
        hashed = layers.Hashing(num_bins=3)(city)
        encoded = layers.CategoryEncoding(num_tokens=3, output_mode="one_hot")(hashed)
        features = layers.concatenate([bins(age), cities(city), codes(code), encoded])
        model = keras.Model([age, city, code], layers.Dense(1, activation="sigmoid")(features))
        model.compile(keras.optimizers.SGD(0.5), "binary_crossentropy", metrics=["accuracy"])
    train = tf.data.Dataset.from_tensor_slices((columns, Y)).batch(8)
    history = model.fit(train, epochs=2, verbose=0)
    return {
        "bins": bins.bin_boundaries,
        "history": history.history,
        "weights": model.get_weights(),
        "predictions": model.predict(train, verbose=0),
    }


@program()
def feature_space(scope):
    """FeatureSpace: adapted to a dataset, mapped over it, and its encoded features as inputs."""
    space = keras.utils.FeatureSpace(
        features={
            "age": keras.utils.FeatureSpace.float_normalized(),
            "city": keras.utils.FeatureSpace.string_categorical(num_oov_indices=0),
            "code": keras.utils.FeatureSpace.integer_categorical(num_oov_indices=0),
        },
        crosses=[keras.utils.FeatureSpace.cross(feature_names=("city", "code"), crossing_dim=6)],
        output_mode="concat",
    )
    columns = {"age": AGES, "city": CITIES, "code": CODES}
    train = tf.data.Dataset.from_tensor_slices((columns, Y)).batch(8)
    with scope():
        space.adapt(train.map(lambda row, _: row))
        encoded = space.get_encoded_features()
        model = keras.Model(encoded, layers.Dense(1, activation="sigmoid")(encoded))
        model.compile(keras.optimizers.SGD(0.5), "binary_crossentropy", metrics=["accuracy"])
    prepared = train.map(lambda row, target: (space(row), target))
    history = model.fit(prepared, epochs=2, verbose=0)
    return {
        "history": history.history,
        "weights": model.get_weights(),
        "predictions": model.predict(prepared, verbose=0),
    }
