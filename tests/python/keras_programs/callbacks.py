# SPDX-License-Identifier: Apache-2.0
"""Callbacks: all callbacks of Keras that need no server, and some user-defined callbacks."""

import csv
import http.server
import json
import os
import pathlib
import threading

import keras
import numpy as np
import tensorflow as tf
from comparison import directory, program
from keras import layers

import farandole.tensorflow as hvd

RANDOM = np.random.default_rng(16)
X = RANDOM.normal(size=(41, 6)).astype("float32")
Y = (X @ RANDOM.normal(size=(6, 3))).argmax(axis=1)
VALIDATION = (RANDOM.normal(size=(13, 6)).astype("float32"), RANDOM.integers(0, 3, size=13))  # gets worse with training


def classifier(scope, optimizer=lambda: keras.optimizers.SGD(0.3)):
    with scope():
        model = keras.Sequential(
            [keras.Input((6,)), layers.Dense(8, activation="tanh"), layers.Dense(3, activation="softmax")]
        )
        model.compile(optimizer(), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def fit(model, *callbacks, **arguments):
    options = {"batch_size": 8, "epochs": 4, "validation_data": VALIDATION, "shuffle": False, "verbose": 0, **arguments}
    return model.fit(X, Y, callbacks=list(callbacks), **options)


def outcome(model, history):
    return {
        "history": history.history,
        "weights": model.get_weights(),
        "rate": float(keras.ops.convert_to_numpy(model.optimizer.learning_rate)),
    }


# ---- Those that decide


@program()
def early_stopping(scope):
    """EarlyStopping, which brings back the weights of the best epoch."""
    model = classifier(scope)
    stopping = keras.callbacks.EarlyStopping("val_loss", patience=2, restore_best_weights=True)
    history = fit(model, stopping, epochs=9)
    return {**outcome(model, history), "stopped": stopping.stopped_epoch, "best": stopping.best_epoch}


@program()
def lower_rate_on_plateau(scope):
    """ReduceLROnPlateau on the validation loss."""
    model = classifier(scope)
    return outcome(model, fit(model, keras.callbacks.ReduceLROnPlateau("val_loss", factor=0.25, patience=1), epochs=6))


@program()
def schedule_of_rates(scope):
    """LearningRateScheduler with the rate so far as its argument."""
    model = classifier(scope)
    return outcome(model, fit(model, keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.5**epoch)))


# A callback that stops one rank stops all ranks after the next batch. At an epoch's last batch, one process stops
# at the same place.
@program(may_be_nan=True)
def stopping_at_nan(scope):
    """TerminateOnNaN: a NaN in the last row, which one rank has."""
    model = classifier(scope)
    broken = X.copy()
    broken[-1] = np.nan
    history = model.fit(
        broken, Y, batch_size=8, epochs=3, callbacks=[keras.callbacks.TerminateOnNaN()], shuffle=False, verbose=0
    )
    return {"epochs": history.epoch, "iterations": model.optimizer.iterations}


@program()
def averages_of_weights(scope):
    """SwapEMAWeights: validation with the moving averages that the optimizer keeps."""
    model = classifier(scope, lambda: keras.optimizers.Adam(0.05, use_ema=True, ema_momentum=0.7))
    return outcome(model, fit(model, keras.callbacks.SwapEMAWeights(swap_on_epoch=True)))


@program(full_only=True)  # each of them alone is covered
def three_deciders_together(scope):
    """EarlyStopping, ReduceLROnPlateau and a checkpoint of the best epoch in one list."""
    model = classifier(scope)
    path = os.path.join(directory(), "best.keras")
    history = fit(
        model,
        keras.callbacks.EarlyStopping("val_accuracy", patience=3),
        keras.callbacks.ReduceLROnPlateau("val_loss", factor=0.5, patience=1),
        keras.callbacks.ModelCheckpoint(path, "val_loss", save_best_only=True),
        epochs=8,
    )
    with scope():
        best = keras.models.load_model(path)
    return {**outcome(model, history), "best": best.evaluate(*VALIDATION, verbose=0)}


# ---- Those that write


@program()
def checkpoint_of_the_best(scope):
    """ModelCheckpoint of the best epoch, and its weights loaded by all ranks after training."""
    model = classifier(scope)
    path = os.path.join(directory(), "best.weights.h5")
    saving = keras.callbacks.ModelCheckpoint(path, monitor="val_loss", save_best_only=True, save_weights_only=True)
    history = fit(model, saving, epochs=6)
    last = model.get_weights()
    model.load_weights(path)
    return {"history": history.history, "last": last, "best": model.get_weights()}


@program()
def checkpoint_of_each_epoch(scope):
    """ModelCheckpoint with a path that has the epoch and a logged number in it."""
    model = classifier(scope)
    fit(model, keras.callbacks.ModelCheckpoint(os.path.join(directory(), "{epoch:02d}-{val_loss:.3f}.keras")), epochs=3)
    files = sorted(os.listdir(directory()))
    with scope():
        second = keras.models.load_model(os.path.join(directory(), files[1]))
    return {"files": files, "second": second.get_weights(), "optimizer": second.optimizer.iterations}


@program()
def log_as_a_table(scope):
    """CSVLogger, and the table that was written."""
    model = classifier(scope)
    path = os.path.join(directory(), "log.csv")
    fit(model, keras.callbacks.CSVLogger(path))
    with open(path) as file:
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]


@program()
def log_for_tensorboard(scope):
    """TensorBoard with histograms, and the numbers of the epochs in its files."""
    model = classifier(scope)
    fit(model, keras.callbacks.TensorBoard(directory(), histogram_freq=1), epochs=2)
    numbers = {}
    for path in sorted(pathlib.Path(directory()).rglob("events*")):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                if value.tag.startswith(("epoch", "evaluation")):
                    numbers[f"{path.parent.name} {value.tag} {event.step}"] = tf.make_ndarray(value.tensor)
    return numbers


@program()
def monitor_on_a_server(scope):
    """RemoteMonitor, and what a server was sent."""
    sent = []

    class Server(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            sent.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    model = classifier(scope)
    with http.server.HTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever).start()
        root = f"http://127.0.0.1:{server.server_port}"
        fit(model, keras.callbacks.RemoteMonitor(root, send_as_json=True), epochs=2)
        server.shutdown()
    with scope():
        return hvd.broadcast_object(sent) if tf.distribute.has_strategy() else sent


@program()
def resumed_from_backup(scope):
    """BackupAndRestore: training that was interrupted in the third epoch goes on with a new model."""

    class Interruption(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 2:
                raise InterruptedError

    folder = os.path.join(directory(), "backup")

    def optimizer():
        return keras.optimizers.Adam(0.05)

    try:
        fit(classifier(scope, optimizer), keras.callbacks.BackupAndRestore(folder), Interruption())
    except InterruptedError:
        pass
    resumed = classifier(scope, optimizer)
    history = fit(resumed, keras.callbacks.BackupAndRestore(folder))
    return {**outcome(resumed, history), "epochs": history.epoch, "iterations": resumed.optimizer.iterations}


# ---- The user's own


@program()
def lambda_callback(scope):
    """LambdaCallback that stores its arguments at the ends of epochs."""
    model = classifier(scope)
    seen = []
    keep = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: seen.append(epoch),
        on_epoch_end=lambda epoch, logs: seen.append(dict(logs)),
        on_train_end=lambda logs: seen.append(dict(logs)),
    )
    fit(model, keep, epochs=2)
    return seen


@program()
def rate_from_logs(scope):
    """A callback that sets the learning rate by the logs of the epoch, and by the number of the batch."""

    class Rate(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            self.model.optimizer.learning_rate = 0.1 / (1 + batch)

        def on_epoch_end(self, epoch, logs=None):
            logs["rate"] = float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate))
            self.model.optimizer.learning_rate.assign(logs["val_loss"] * 0.1)

    model = classifier(scope)
    return outcome(model, fit(model, Rate()))


@program()
def stopping_when_good_enough(scope):
    """A callback that sets stop_training, at the end of an epoch, and another one after a number of batches."""

    class GoodEnough(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if logs["loss"] < 0.9:
                self.model.stop_training = True

    class Budget(keras.callbacks.Callback):
        batches = 0

        def on_train_batch_end(self, batch, logs=None):
            self.batches += 1
            if self.batches == 12:  # of 6 in each epoch
                self.model.stop_training = True

    model = classifier(scope)
    good = fit(model, GoodEnough(), epochs=9)
    budget = fit(model, Budget())
    return {"good": good.history, "budget": budget.history, "epochs": budget.epoch, "weights": model.get_weights()}


@program()
def evaluating_in_a_callback(scope):
    """A callback that evaluates, predicts and keeps the best weights itself."""

    class Best(keras.callbacks.Callback):
        def __init__(self):
            super().__init__()
            self.losses, self.best, self.weights = [], np.inf, None

        def on_epoch_end(self, epoch, logs=None):
            loss = self.model.evaluate(*VALIDATION, batch_size=4, verbose=0)[0]
            mean = self.model.predict(VALIDATION[0], verbose=0).mean()
            self.losses.append((loss, mean))
            if loss < self.best:
                self.best, self.weights = loss, self.model.get_weights()

        def on_train_end(self, logs=None):
            self.model.set_weights(self.weights)

    model, best = classifier(scope), Best()
    history = fit(model, best)
    return {**outcome(model, history), "losses": best.losses}


@program()
def look_of_the_first_rank(scope):
    """Rank 0 looks at a copy of the model after each epoch, as programs do that print or draw something."""

    class Look(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if hvd.rank() == 0:
                self.model.summary(print_fn=lambda *_, **__: None)
                [weight.numpy() for weight in self.model.trainable_variables]
                self.model(X[:3], training=False)

    model = classifier(scope)
    return outcome(model, fit(model, Look()))
