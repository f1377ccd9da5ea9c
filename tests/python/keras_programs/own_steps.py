# SPDX-License-Identifier: Apache-2.0
"""Models with a custom training step or loss computation, as in Keras' guides and examples.

Random numbers that these models need are part of the data, so that they are the same on any number of ranks.
"""

import keras
import numpy as np
import tensorflow as tf
from comparison import program, trained
from keras import layers, ops

RANDOM = np.random.default_rng(4)
ROWS, BATCH = 41, 8  # the last batch has one row
X = RANDOM.normal(size=(ROWS, 6)).astype("float32")
NUMBERS = (X @ RANDOM.normal(size=(6, 1))).astype("float32")
CLASSES = (X @ RANDOM.normal(size=(6, 3))).argmax(axis=1)
WEIGHTS = RANDOM.uniform(0.2, 2.0, size=ROWS).astype("float32")
NOISE = RANDOM.normal(size=(ROWS, 4)).astype("float32")


def regression(kind):
    """A functional model of this class."""
    inputs = keras.Input((6,))
    return kind(inputs, layers.Dense(1)(layers.Dense(8, activation="tanh")(inputs)))


def fitted(model, x, y=None, **arguments):
    return model.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0, **arguments)


@program()
def compute_loss_overridden(scope):
    """"Customizing fit" by compute_loss: a mean that Keras does not see, and a tracker of it."""

    class Model(keras.Model):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.loss_tracker = keras.metrics.Mean(name="tracked")

        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
            loss = ops.mean(ops.square(y_pred - y)) + 0.01 * ops.mean(ops.abs(y_pred))
            self.loss_tracker.update_state(loss)
            return loss

        @property
        def metrics(self):
            return [*super().metrics, self.loss_tracker]

    with scope():
        model = regression(Model)
        model.compile("adam", metrics=["mae"])
    history = fitted(model, X, NUMBERS, validation_data=(X[:13], NUMBERS[:13]))
    return trained(model, history, X)


@program()
def train_step_of_the_guide(scope):
    """"Customizing fit", the first example: compute_loss, and {m.name: m.result() for m in self.metrics}."""

    class CustomModel(keras.Model):
        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                y_pred = self(x, training=True)
                loss = self.compute_loss(y=y, y_pred=y_pred)
            trainable_vars = self.trainable_variables
            gradients = tape.gradient(loss, trainable_vars)
            self.optimizer.apply(gradients, trainable_vars)
            for metric in self.metrics:
                if metric.name == "loss":
                    metric.update_state(loss)
                else:
                    metric.update_state(y, y_pred)
            return {m.name: m.result() for m in self.metrics}

    with scope():
        model = regression(CustomModel)
        model.compile(optimizer="adam", loss="mse", metrics=["mae"])
    return trained(model, fitted(model, X, NUMBERS), X)


@program()
def low_level_train_step(scope):
    """"Customizing fit", going lower-level: nothing is passed to compile but the optimizer."""

    class CustomModel(keras.Model):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.loss_tracker = keras.metrics.Mean(name="loss")
            self.mae_metric = keras.metrics.MeanAbsoluteError(name="mae")
            self.loss_fn = keras.losses.MeanSquaredError()

        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                y_pred = self(x, training=True)
                loss = self.loss_fn(y, y_pred)
            trainable_vars = self.trainable_variables
            gradients = tape.gradient(loss, trainable_vars)
            self.optimizer.apply(gradients, trainable_vars)
            self.loss_tracker.update_state(loss)
            self.mae_metric.update_state(y, y_pred)
            return {"loss": self.loss_tracker.result(), "mae": self.mae_metric.result()}

        @property
        def metrics(self):
            return [self.loss_tracker, self.mae_metric]

    with scope():
        model = regression(CustomModel)
        model.compile(optimizer=keras.optimizers.Adam(0.01))
    return trained(model, fitted(model, X, NUMBERS), X)


@program(full_only=True)  # covered by train_step_of_the_guide and losses.sample_weight
def train_step_with_sample_weight(scope):
    """"Customizing fit", sample_weight: it goes to the loss and to the metrics."""

    class CustomModel(keras.Model):
        def train_step(self, data):
            x, y, sample_weight = data if len(data) == 3 else (*data, None)
            with tf.GradientTape() as tape:
                y_pred = self(x, training=True)
                loss = self.compute_loss(y=y, y_pred=y_pred, sample_weight=sample_weight)
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply(gradients, self.trainable_variables)
            for metric in self.metrics:
                if metric.name == "loss":
                    metric.update_state(loss)
                else:
                    metric.update_state(y, y_pred, sample_weight=sample_weight)
            return {m.name: m.result() for m in self.metrics}

    with scope():
        model = regression(CustomModel)
        model.compile(optimizer="adam", loss="mse", metrics=["mae"])
    return trained(model, fitted(model, X, NUMBERS, sample_weight=WEIGHTS), X)


@program()
def own_test_step(scope):
    """"Customizing fit", the evaluation step, for evaluate and for validation during fit."""

    class CustomModel(keras.Model):
        def test_step(self, data):
            x, y = data
            y_pred = self(x, training=False)
            loss = self.compute_loss(y=y, y_pred=y_pred)
            for metric in self.metrics:
                if metric.name == "loss":
                    metric.update_state(loss)
                else:
                    metric.update_state(y, y_pred)
            return {m.name: m.result() for m in self.metrics}

    with scope():
        model = regression(CustomModel)
        model.compile(optimizer="adam", loss="mse", metrics=["mae"])
    history = fitted(model, X, NUMBERS, validation_data=(X[:13], NUMBERS[:13]), validation_batch_size=5)
    evaluated = model.evaluate(X, NUMBERS, batch_size=BATCH, verbose=0, return_dict=True)
    return trained(model, history, X) | {"evaluated": evaluated}


@program()
def train_step_with_other_logs(scope):
    """A train_step that adds the learning rate and the norm of the weights to Keras' results."""

    class Model(keras.Model):
        def train_step(self, data):
            norm = ops.sqrt(sum(ops.sum(ops.square(each)) for each in self.trainable_variables))
            return {**super().train_step(data), "lr": self.optimizer.learning_rate, "norm": norm}

    with scope():
        model = regression(Model)
        model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    reduce = keras.callbacks.ReduceLROnPlateau("loss", patience=0, min_delta=100.0, factor=0.5)
    return trained(model, fitted(model, X, NUMBERS, callbacks=[reduce]), X)


@program()
def loss_function_in_a_train_step(scope):
    """keras.losses.mean_squared_error in an own step: a loss for each sample, whose gradient is that of the sum."""

    class Model(keras.Model):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.loss_tracker = keras.metrics.Mean(name="loss")

        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                loss = keras.losses.mean_squared_error(y, self(x, training=True))
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
            self.loss_tracker.update_state(loss)
            return {"loss": self.loss_tracker.result()}

        @property
        def metrics(self):
            return [self.loss_tracker]

    with scope():
        model = regression(Model)
        model.compile(keras.optimizers.SGD(0.01))
    return trained(model, fitted(model, X, NUMBERS), X)


@program()
def gradients_changed_by_hand(scope):
    """An own step that clips gradients before the optimizer sees them, each sample's loss in a mean of TensorFlow's."""

    class Model(keras.Model):
        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.abs(self(x, training=True) - y))
            gradients = tape.gradient(loss, self.trainable_variables)
            scaled = [gradient * 0.5 for gradient in gradients]
            self.optimizer.apply(scaled, self.trainable_variables)
            return {"loss": loss}

    with scope():
        model = regression(Model)
        model.compile(keras.optimizers.SGD(0.1, momentum=0.9))
    return trained(model, fitted(model, X, NUMBERS), X)


class Gan(keras.Model):
    """Of "DCGAN to generate face images", for rows of numbers; the noise comes with the data."""

    def __init__(self, discriminator, generator):
        super().__init__()
        self.discriminator = discriminator
        self.generator = generator
        self.built = True  # its parts are; it is never called itself

    def compile(self, d_optimizer, g_optimizer, loss_fn):
        super().compile()
        self.d_optimizer = d_optimizer
        self.g_optimizer = g_optimizer
        self.loss_fn = loss_fn
        self.d_loss_metric = keras.metrics.Mean(name="d_loss")
        self.g_loss_metric = keras.metrics.Mean(name="g_loss")

    @property
    def metrics(self):
        return [self.d_loss_metric, self.g_loss_metric]

    def train_step(self, data):
        real, noise = data
        batch_size = ops.shape(real)[0]
        generated = self.generator(noise)
        combined = ops.concatenate([generated, real], axis=0)
        labels = ops.concatenate([ops.ones((batch_size, 1)), ops.zeros((batch_size, 1))], axis=0)
        with tf.GradientTape() as tape:
            d_loss = self.loss_fn(labels, self.discriminator(combined))
        grads = tape.gradient(d_loss, self.discriminator.trainable_weights)
        self.d_optimizer.apply_gradients(zip(grads, self.discriminator.trainable_weights))

        misleading = ops.zeros((batch_size, 1))
        with tf.GradientTape() as tape:
            g_loss = self.loss_fn(misleading, self.discriminator(self.generator(noise)))
        grads = tape.gradient(g_loss, self.generator.trainable_weights)
        self.g_optimizer.apply_gradients(zip(grads, self.generator.trainable_weights))

        self.d_loss_metric.update_state(d_loss)
        self.g_loss_metric.update_state(g_loss)
        return {"d_loss": self.d_loss_metric.result(), "g_loss": self.g_loss_metric.result()}


def generator_and_discriminator(last=None):
    generator = keras.Sequential([keras.Input((4,)), layers.Dense(8, activation="leaky_relu"), layers.Dense(6)])
    discriminator = keras.Sequential(
        [keras.Input((6,)), layers.Dense(8, activation="leaky_relu"), layers.Dense(1, activation=last)]
    )
    return generator, discriminator


@program()
def gan(scope):
    """A GAN as a model with two optimizers and its own train_step."""
    with scope():
        generator, discriminator = generator_and_discriminator(last="sigmoid")
        model = Gan(discriminator, generator)
        model.compile(
            d_optimizer=keras.optimizers.Adam(0.001),
            g_optimizer=keras.optimizers.Adam(0.002),
            loss_fn=keras.losses.BinaryCrossentropy(),
        )
    history = model.fit(tf.data.Dataset.from_tensor_slices((X, NOISE)).batch(BATCH), epochs=2, verbose=0)
    return trained(generator, history, NOISE) | {"discriminator": discriminator.get_weights()}


# The losses are differences of means that nearly cancel, and Adam divides rounding by itself where a gradient is nearly zero.
@program(atol=2e-5)
def wgan_gp(scope):
    """Wasserstein GAN with a gradient penalty: a tape in a tape, and several updates of the critic in a step."""

    class Wgan(keras.Model):
        def __init__(self, discriminator, generator, extra_steps=2, gp_weight=10.0):
            super().__init__()
            self.discriminator = discriminator
            self.generator = generator
            self.extra_steps = extra_steps
            self.gp_weight = gp_weight
            self.built = True  # its parts are; it is never called itself

        def compile(self, d_optimizer, g_optimizer, d_loss_fn, g_loss_fn):
            super().compile()
            self.d_optimizer = d_optimizer
            self.g_optimizer = g_optimizer
            self.d_loss_fn = d_loss_fn
            self.g_loss_fn = g_loss_fn

        def gradient_penalty(self, real, fake, alpha):
            interpolated = real + alpha * (fake - real)
            with tf.GradientTape() as tape:
                tape.watch(interpolated)
                prediction = self.discriminator(interpolated, training=True)
            gradients = tape.gradient(prediction, [interpolated])[0]
            norm = tf.sqrt(tf.reduce_sum(tf.square(gradients), axis=1))
            return tf.reduce_mean((norm - 1.0) ** 2)

        def train_step(self, data):
            real, noise = data
            for step in range(self.extra_steps):
                with tf.GradientTape() as tape:
                    fake = self.generator(noise * (1 - 0.5 * step), training=True)
                    fake_logits = self.discriminator(fake, training=True)
                    real_logits = self.discriminator(real, training=True)
                    d_cost = self.d_loss_fn(real_img=real_logits, fake_img=fake_logits)
                    alpha = tf.sigmoid(noise[:, :1])
                    d_loss = d_cost + self.gradient_penalty(real, fake, alpha) * self.gp_weight
                d_gradient = tape.gradient(d_loss, self.discriminator.trainable_variables)
                self.d_optimizer.apply_gradients(zip(d_gradient, self.discriminator.trainable_variables))
            with tf.GradientTape() as tape:
                g_loss = self.g_loss_fn(self.discriminator(self.generator(noise, training=True), training=True))
            gen_gradient = tape.gradient(g_loss, self.generator.trainable_variables)
            self.g_optimizer.apply_gradients(zip(gen_gradient, self.generator.trainable_variables))
            return {"d_loss": d_loss, "g_loss": g_loss}

    with scope():
        generator, discriminator = generator_and_discriminator()
        model = Wgan(discriminator, generator)
        model.compile(
            d_optimizer=keras.optimizers.Adam(0.0002, beta_1=0.5, beta_2=0.9),
            g_optimizer=keras.optimizers.Adam(0.0002, beta_1=0.5, beta_2=0.9),
            d_loss_fn=lambda real_img, fake_img: tf.reduce_mean(fake_img) - tf.reduce_mean(real_img),
            g_loss_fn=lambda fake_img: -tf.reduce_mean(fake_img),
        )
    return trained(generator, fitted(model, X, NOISE), NOISE) | {"discriminator": discriminator.get_weights()}


@program(full_only=True)  # covered by low_level_train_step
def vae(scope):
    """Keras's variational autoencoder: three trackers, a sampling layer, a KL term."""

    class Sampling(layers.Layer):
        def call(self, inputs):
            mean, log_variance, noise = inputs
            return mean + ops.exp(0.5 * log_variance) * noise

    class Vae(keras.Model):
        def __init__(self, encoder, decoder, **kwargs):
            super().__init__(**kwargs)
            self.encoder = encoder
            self.decoder = decoder
            self.total_loss_tracker = keras.metrics.Mean(name="total_loss")
            self.reconstruction_loss_tracker = keras.metrics.Mean(name="reconstruction_loss")
            self.kl_loss_tracker = keras.metrics.Mean(name="kl_loss")
            self.built = True  # its parts are; it is never called itself

        @property
        def metrics(self):
            return [self.total_loss_tracker, self.reconstruction_loss_tracker, self.kl_loss_tracker]

        def train_step(self, data):
            x, noise = data
            with tf.GradientTape() as tape:
                z_mean, z_log_var, z = self.encoder([x, noise])
                reconstruction = self.decoder(z)
                reconstruction_loss = ops.mean(ops.sum(keras.losses.binary_crossentropy(x, reconstruction), axis=1))
                kl_loss = -0.5 * (1 + z_log_var - ops.square(z_mean) - ops.exp(z_log_var))
                kl_loss = ops.mean(ops.sum(kl_loss, axis=1))
                total_loss = reconstruction_loss + kl_loss
            grads = tape.gradient(total_loss, self.trainable_weights)
            self.optimizer.apply_gradients(zip(grads, self.trainable_weights))
            self.total_loss_tracker.update_state(total_loss)
            self.reconstruction_loss_tracker.update_state(reconstruction_loss)
            self.kl_loss_tracker.update_state(kl_loss)
            return {
                "loss": self.total_loss_tracker.result(),
                "reconstruction_loss": self.reconstruction_loss_tracker.result(),
                "kl_loss": self.kl_loss_tracker.result(),
            }

    with scope():
        inputs, noise = keras.Input((6, 2)), keras.Input((4,))
        hidden = layers.Dense(8, activation="relu")(layers.Flatten()(inputs))
        mean, log_variance = layers.Dense(4)(hidden), layers.Dense(4)(hidden)
        encoder = keras.Model([inputs, noise], [mean, log_variance, Sampling()([mean, log_variance, noise])])
        decoder = keras.Sequential([keras.Input((4,)), layers.Dense(12, activation="sigmoid"), layers.Reshape((6, 2))])
        model = Vae(encoder, decoder)
        model.compile(optimizer=keras.optimizers.Adam())
    x = 1 / (1 + np.exp(-np.stack([X, -X], axis=2)))
    history = fitted(model, x, NOISE)
    return trained(encoder, history, [x, NOISE]) | {"decoder": decoder.get_weights()}


@program(full_only=True)  # covered by compute_loss_overridden
def knowledge_distillation(scope):
    """Keras's Distiller: compute_loss with a frozen teacher, the sum of two losses."""

    class Distiller(keras.Model):
        def __init__(self, student, teacher):
            super().__init__()
            self.teacher = teacher
            self.student = student

        def compile(self, optimizer, metrics, student_loss_fn, distillation_loss_fn, alpha=0.1, temperature=3):
            super().compile(optimizer=optimizer, metrics=metrics)
            self.student_loss_fn = student_loss_fn
            self.distillation_loss_fn = distillation_loss_fn
            self.alpha = alpha
            self.temperature = temperature

        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, allow_empty=False):
            teacher_pred = self.teacher(x, training=False)
            student_loss = self.student_loss_fn(y, y_pred)
            distillation_loss = self.distillation_loss_fn(
                ops.softmax(teacher_pred / self.temperature, axis=1), ops.softmax(y_pred / self.temperature, axis=1)
            ) * (self.temperature**2)
            return self.alpha * student_loss + (1 - self.alpha) * distillation_loss

        def call(self, x):
            return self.student(x)

    def network(units):
        return keras.Sequential([keras.Input((6,)), layers.Dense(units, activation="relu"), layers.Dense(3)])

    with scope():
        teacher, student = network(16), network(4)
        teacher.compile(
            keras.optimizers.Adam(0.01),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=[keras.metrics.SparseCategoricalAccuracy()],
        )
        distiller = Distiller(student=student, teacher=teacher)
        distiller.compile(
            keras.optimizers.Adam(),
            metrics=[keras.metrics.SparseCategoricalAccuracy()],
            student_loss_fn=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            distillation_loss_fn=keras.losses.KLDivergence(),
        )
    taught = fitted(teacher, X, CLASSES)
    teacher.trainable = False
    history = fitted(distiller, X, CLASSES)
    return trained(distiller, history, X) | {
        "teacher": taught.history,
        "evaluated": distiller.evaluate(X, CLASSES, batch_size=BATCH, verbose=0),
    }
