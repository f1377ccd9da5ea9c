# SPDX-License-Identifier: Apache-2.0
"""The trainings that are compared with torch: a line for each, with what differs from the usual case.

The usual case trains for 20 training steps with SGD: 4 epochs of 38 samples, in batches of 8, the last of which has 6.
"""
import zlib
from typing import Dict

import numpy as np

VECTORS = {"shape": (6,), "classes": 3}
IMAGES = {"shape": (7, 6, 4), "classes": 3}
SEQUENCES = {"shape": (5, 4), "classes": 3}
TOKENS = {"shape": (5,), "classes": 3, "vocabulary": 7}
NUMBERS = {"shape": (6,), "targets": (4,)}
PROBABILITIES = {"shape": (6,), "targets": (4,), "bounded": True}
GRIDS = {"shape": (7, 6, 4), "targets": (7, 6, 2)}
WEIGHTED = {"weighted": True}


def layer(kind: str, **options) -> dict:
    return {"kind": kind, **options}


def dense(units: int) -> dict:
    return layer("dense", units=units)


def conv(channels: int, **options) -> dict:
    return layer("conv2d", channels=channels, **options)


def attention(**options) -> dict:
    return layer("attention", heads=2, **options)


def residual(*body: dict, **options) -> dict:
    return layer("residual", body=list(body), **options)


def case(*layers: dict, data=VECTORS, loss=None, optimizer=None, rate=None, replicas=1, **options) -> dict:
    """@param layers  without the last layer of a model for classes, which is dense"""
    classes = {"classes": data["classes"]} if "classes" in data else {}
    return {
        "data": data,
        "layers": list(layers) + ([dense(data["classes"])] if classes else []),
        "loss": loss or layer("cross_entropy_loss"),
        "options": {"global_batch": 8, "epochs": 4, **options, "optimizer": optimizer or layer("sgd", momentum=0.9),
                    "learning_rate": {"base": 0.05, **(rate or {})}},
        "replicas": replicas,
        **classes,
    }


MLP = (dense(5), layer("hyperbolic_tangent"))
CNN = (conv(4, padding=1), layer("batch_normalization"), layer("relu"), layer("max_pool2d", size=2))


def mlp(**changes) -> dict:
    return case(*MLP, **changes)


def cnn(*layers: dict, **changes) -> dict:
    return case(*CNN, *layers, data=IMAGES, **changes)


def activated(kind: str, **options) -> dict:
    return case(dense(5), layer(kind, **options))


def optimized(kind: str, changes=None, **options) -> dict:
    return mlp(optimizer=layer(kind, **options), **(changes or {}))


def scheduled(schedule: str, changes=None, **options) -> dict:
    return mlp(rate={"schedule": schedule, **options}, **(changes or {}))


def for_loss(loss: dict, data=NUMBERS) -> dict:
    return case(*MLP, dense(4), data=data, loss=loss)


SHORT_EPOCHS = {"global_batch": 19, "epochs": 10}  # for schedules that change between epochs
FROZEN = [{"pattern": "0.*", "trainable": False}]
GROUPS = [{"pattern": "0.dense.weight", "rate_factor": 0.5, "weight_decay": 0.3}, {"pattern": "0.*", "weight_decay": 0.2},
          {"pattern": "2.dense.bias", "rate_factor": 2.0}]

CASES: Dict[str, dict] = {
    # Layers
    "dense": case(dense(5)),
    "conv2d": case(conv(4), conv(5), data=IMAGES),
    "conv2d_stride_and_padding": case(conv(4, stride=2, padding=1), conv(5, kernel=1), conv(3, kernel=2), data=IMAGES),
    "conv2d_large_kernel": case(conv(4, kernel=5, padding=2), conv(2, kernel=4, stride=3, padding=1), data=IMAGES),
    "depthwise_conv2d": case(layer("depthwise_conv2d"), conv(5, kernel=1), layer("depthwise_conv2d"), data=IMAGES),
    "depthwise_conv2d_stride": case(conv(3), layer("depthwise_conv2d", kernel=2, stride=2, padding=1), data=IMAGES),
    "max_pool2d": case(conv(4, padding=1), layer("max_pool2d", size=2), data=IMAGES),
    "average_pool2d": case(conv(4, padding=1), layer("average_pool2d", size=3), data=IMAGES),
    "global_average_pool": case(conv(4, padding=1), layer("relu"), layer("global_average_pool"), data=IMAGES),
    "global_average_pool_of_rows": case(attention(), layer("global_average_pool"), data=SEQUENCES),
    "flatten": case(conv(4), layer("flatten"), dense(4), data=IMAGES),
    "reshape": case(conv(4), layer("reshape", shape=[20, 4]), attention(), data=IMAGES),
    "relu": activated("relu"),
    "leaky_relu": activated("leaky_relu", slope=0.2),
    "gelu": activated("gelu"),
    "silu": activated("silu"),
    "sigmoid": activated("sigmoid"),
    "hyperbolic_tangent": activated("hyperbolic_tangent"),
    "dropout": case(dense(12), layer("dropout", rate=0.3), dense(9), layer("relu"), layer("dropout", rate=0.6)),
    "dropout_of_images": cnn(layer("dropout", rate=0.25), conv(4)),
    "batch_normalization": cnn(),
    "batch_normalization_options": case(dense(5), layer("batch_normalization", epsilon=0.01, momentum=0.3)),
    "layer_normalization": case(conv(4), layer("layer_normalization"), layer("relu"), data=IMAGES),
    "layer_normalization_options": case(dense(5), layer("layer_normalization", epsilon=0.01, affine=False)),
    "group_normalization": case(conv(6), layer("group_normalization", groups=3), layer("relu"), data=IMAGES),
    "group_normalization_options": case(conv(6), layer("group_normalization", groups=2, epsilon=0.01, affine=False), data=IMAGES),
    "instance_normalization": case(conv(4), layer("group_normalization", groups=4), layer("relu"), data=IMAGES),
    "rms_normalization": case(conv(4), layer("rms_normalization"), layer("relu"), data=IMAGES),
    "rms_normalization_options": case(dense(5), layer("rms_normalization", epsilon=0.01, affine=False)),
    "embedding": case(layer("embedding", vocabulary=7, units=4), data=TOKENS),
    "positional_encoding_learned": case(dense(20), layer("reshape", shape=[5, 4]), layer("positional_encoding", learned=True), attention()),
    "positional_encoding_sinusoidal": case(dense(15), layer("reshape", shape=[5, 3]), layer("positional_encoding", learned=False)),
    "attention": case(attention(), data=SEQUENCES),
    "attention_causal": case(attention(causal=True), attention(causal=True), data=SEQUENCES),
    "attention_one_head": case(layer("attention"), data=SEQUENCES),
    "sequence": case(layer("sequence", layers=[*MLP, layer("batch_normalization")]), data=VECTORS),
    "residual": case(residual(conv(4, padding=1), layer("batch_normalization"), layer("relu")), data=IMAGES),
    "residual_shortcut": case(residual(conv(5, stride=2, padding=1), layer("relu"), conv(5, padding=1),
                                       shortcut=[conv(5, kernel=1, stride=2)]), data=IMAGES),
    "transformer": case(layer("embedding", vocabulary=7, units=4), layer("positional_encoding", learned=True),
                        residual(layer("layer_normalization"), attention(causal=True)),
                        residual(layer("rms_normalization"), layer("gelu")), layer("global_average_pool"), data=TOKENS),
    # Losses
    "cross_entropy_loss": mlp(),
    "cross_entropy_smoothed": mlp(loss=layer("cross_entropy_loss", label_smoothing=0.2)),
    "cross_entropy_class_weights": mlp(loss=layer("cross_entropy_loss", class_weights=[0.5, 2.0, 1.25])),
    "cross_entropy_all": mlp(loss=layer("cross_entropy_loss", label_smoothing=0.1, class_weights=[0.5, 2.0, 1.25]), data={**VECTORS, **WEIGHTED}),
    "cross_entropy_sample_weights": mlp(data={**VECTORS, **WEIGHTED}),
    "binary_cross_entropy_loss": for_loss(layer("binary_cross_entropy_loss"), PROBABILITIES),
    "mean_squared_error": for_loss(layer("mean_squared_error")),
    "mean_squared_error_weighted": for_loss(layer("mean_squared_error"), {**NUMBERS, **WEIGHTED}),
    "mean_squared_error_of_images": case(conv(2, padding=1), data=GRIDS, loss=layer("mean_squared_error")),
    "mean_absolute_error": for_loss(layer("mean_absolute_error")),
    "huber_loss": for_loss(layer("huber_loss", delta=0.7)),
    "huber_loss_weighted": for_loss(layer("huber_loss", delta=1.0), {**NUMBERS, **WEIGHTED}),
    # Optimizers
    "sgd": optimized("sgd", momentum=0.0),
    "sgd_momentum": optimized("sgd", momentum=0.8),
    "sgd_nesterov": optimized("sgd", momentum=0.8, nesterov=True),
    "sgd_weight_decay": optimized("sgd", momentum=0.8, weight_decay=0.1),
    "sgd_nesterov_weight_decay": optimized("sgd", nesterov=True, weight_decay=0.1),
    "adam": optimized("adam"),
    "adam_options": optimized("adam", beta1=0.7, beta2=0.95, epsilon=1e-3),
    "adam_weight_decay": optimized("adam", weight_decay=0.1),
    "adamw": optimized("adamw", weight_decay=0.1),
    "adamw_options": optimized("adamw", weight_decay=0.2, beta1=0.7, beta2=0.95, epsilon=1e-3),
    "groups_sgd": optimized("sgd", weight_decay=0.1, groups=GROUPS),
    "groups_adam": optimized("adam", weight_decay=0.1, groups=GROUPS),
    "groups_adamw": optimized("adamw", weight_decay=0.1, groups=GROUPS),
    "frozen": optimized("adam", groups=FROZEN),
    "frozen_clipped": optimized("sgd", {"clip_norm": 0.1}, groups=FROZEN),
    "frozen_normalization": cnn(optimizer=layer("sgd", groups=[{"pattern": "1.*", "trainable": False}])),
    "average": optimized("sgd", ema_decay=0.9),
    "average_adamw": optimized("adamw", weight_decay=0.1, ema_decay=0.8),
    "average_frozen": optimized("adam", ema_decay=0.9, groups=FROZEN),
    "average_with_statistics": cnn(optimizer=layer("sgd", ema_decay=0.9)),
    "clipped": mlp(clip_norm=0.1),
    "clipped_sometimes": mlp(clip_norm=0.4),
    "clipped_adam": optimized("adam", {"clip_norm": 0.1}),
    "accumulated": mlp(accumulate=3, clip_norm=0.3),
    "accumulated_statistics": cnn(accumulate=2),
    # Schedules
    "constant": scheduled("constant"),
    "constant_warmup": scheduled("constant", warmup_steps=6),
    "step": scheduled("step", SHORT_EPOCHS, step_epochs=3, step_factor=0.5),
    "step_warmup": scheduled("step", SHORT_EPOCHS, step_epochs=4, step_factor=0.3, warmup_steps=5),
    "cosine": scheduled("cosine"),
    "cosine_minimum": scheduled("cosine", minimum=0.01),
    "cosine_warmup": scheduled("cosine", warmup_steps=7, minimum=0.001),
    "polynomial": scheduled("polynomial", power=2.5),
    "polynomial_minimum": scheduled("polynomial", power=2.0, minimum=0.01),
    "polynomial_warmup": scheduled("polynomial", power=1.0, warmup_steps=4),
    "one_cycle": scheduled("one-cycle", pct_start=0.3, div_factor=25.0, final_div_factor=1e4),
    "one_cycle_warmup": scheduled("one-cycle", pct_start=0.5, div_factor=10.0, final_div_factor=100.0, warmup_steps=4),
    "plateau": scheduled("plateau", SHORT_EPOCHS, factor=0.5, patience=1, threshold=0.2),
    "plateau_minimum": scheduled("plateau", SHORT_EPOCHS, factor=0.3, patience=0, threshold=0.3, minimum=0.004),
    "own": scheduled("own", gamma=0.9),
    "groups_scheduled": optimized("adam", {"rate": {"schedule": "polynomial", "power": 2.0}}, groups=GROUPS),
    # Two replicas
    "replicas": optimized("adam", {"replicas": 2, "clip_norm": 0.3, "data": {**VECTORS, **WEIGHTED}}, weight_decay=0.1, ema_decay=0.9),
    "replicas_accumulated": cnn(replicas=2, accumulate=2),
    "replicas_synchronized": case(conv(4), layer("batch_normalization", synchronized=True), layer("relu"), data=IMAGES,
                                  replicas=2, synchronized_layers=True),
    "replicas_deterministic": cnn(layer("dropout", rate=0.3), replicas=2, deterministic=True, micro_batches=4),
    "replicas_scaled_rate": scheduled("cosine", {"replicas": 2}, scale_by_replicas=True, warmup_steps=5),
}


def make_data(name: str) -> Dict[str, np.ndarray]:
    """The samples of a case, the same in every run."""
    options = CASES[name]["data"]
    random = np.random.default_rng(zlib.crc32(name.encode()))
    count = 38
    data = {"inputs": random.standard_normal((count, *options["shape"]))}
    if "vocabulary" in options:
        data["inputs"] = random.integers(0, options["vocabulary"], (count, *options["shape"])).astype(np.float64)
    if "classes" in options:
        data["labels"] = random.integers(0, options["classes"], count).astype(np.float64)
    else:
        kind = random.random if options.get("bounded") else random.standard_normal
        data["targets"] = kind((count, *options["targets"]))
    if options.get("weighted"):
        data["weights"] = random.integers(0, 5, count) / 2.0  # exact in f32, which weights are
    return data
