# SPDX-License-Identifier: Apache-2.0
"""The trainings that are compared with torch: a line for each, with what differs from the usual case.

The usual case trains for 20 training steps with SGD: 4 epochs of 38 samples, in batches of 8, the last of which has 6.
"""
import zlib
from typing import Dict, List

import numpy as np

VECTORS = {"shape": (6,), "classes": 3}
IMAGES = {"shape": (7, 6, 4), "classes": 3}
SEQUENCES = {"shape": (5, 4), "classes": 3}
TOKENS = {"shape": (5,), "classes": 3, "vocabulary": 7}
NUMBERS = {"shape": (6,), "targets": (4,)}
PROBABILITIES = {"shape": (6,), "targets": (4,), "bounded": True}
MIXED = {"shape": (6,), "classes": 3, "targets": (3,), "probabilities": True}
POSITIONS = {"shape": (5, 4), "classes": 3, "labels": (5,)}
TEXTS = {"shape": (5,), "classes": 7, "vocabulary": 7, "labels": (5,)}
PAIRS = {"left": {"shape": (6,), "classes": 3, "targets": (2,)}, "right": {"shape": (6,), "weighted": True}}
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


def inputs_of(data: dict) -> Dict[str, dict]:
    """The data of each input of a model, by its name; a single input is "x"."""
    return {"x": data} if "shape" in data else data


def training(data: dict, loss=None, optimizer=None, rate=None, replicas=1, record_every=1, **options) -> dict:
    """Everything of a case but the model."""
    parts = inputs_of(data).values()
    return {
        "data": data,
        "loss": loss or layer("cross_entropy_loss"),
        "options": {"global_batch": 8, "epochs": 4, **options, "optimizer": optimizer or layer("sgd", momentum=0.9),
                    "learning_rate": {"base": 0.05, **(rate or {})}},
        "replicas": replicas,
        "record_every": record_every,
        "classes": max(each.get("classes", 0) for each in parts),
        "targets_are_probabilities": any(each.get("probabilities", False) for each in parts),
    }


def case(*layers: dict, data=VECTORS, **changes) -> dict:
    """@param layers  without the last layer of a model for samples with one class each, which is dense"""
    last = [dense(data["classes"])] if "classes" in data and "labels" not in data else []
    return {"layers": list(layers) + last, **training(data, **changes)}


def named(model: str, data=IMAGES, options=None, **changes) -> dict:
    """A model by name."""
    first = layer(model, input=data["shape"], classes=data["classes"], **(options or {}))
    return {"layers": [first], **training(data, **changes)}


def joined(kind: str, *sources: str, **options) -> tuple:
    """A node of an operation of the graph."""
    return layer(kind, **options), *sources


def make_graph(inputs: Dict[str, tuple], nodes: Dict[str, tuple], outputs=None, shared=None) -> dict:
    """@param nodes  for each name a layer, layers, the name of a shared layer or an operation, and names of other nodes;
    a name that begins with a digit is for the case only   @param outputs  default: the last node"""
    return {
        "inputs": [{"name": name, "shape": shape} for name, shape in inputs.items()],
        "shared": [{"name": name, "layer": each} for name, each in (shared or {}).items()],
        "nodes": [{"name": name, "operation": operation, "from": sources} for name, (operation, *sources) in nodes.items()],
        "outputs": [{"name": name, "node": node} for name, node in (outputs or {"y": list(nodes)[-1]}).items()],
    }


def graph(nodes: Dict[str, tuple], data=IMAGES, outputs=None, shared=None, **changes) -> dict:
    inputs = {name: each["shape"] for name, each in inputs_of(data).items()}
    return {"graph": make_graph(inputs, nodes, outputs, shared), **training(data, **changes)}


def parts(**losses) -> dict:
    """A loss for each output, as (loss, weight). The output "class" is compared with the labels."""
    return layer("combined_loss", with_labels=["class"],
                 parts=[{"output": name, "loss": loss, "weight": weight} for name, (loss, weight) in losses.items()])


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
    "dense_without_bias": case(layer("dense", units=5, bias=False), layer("batch_normalization")),
    "dense_per_position": case(layer("dense", units=5, per_position=True), layer("gelu"), data=SEQUENCES),
    "dense_per_position_of_images": case(conv(4), layer("dense", units=3, per_position=True, bias=False), layer("relu"), data=IMAGES),
    "conv2d": case(conv(4), conv(5), data=IMAGES),
    "conv2d_stride_and_padding": case(conv(4, stride=2, padding=1), conv(5, kernel=1), conv(3, kernel=2), data=IMAGES),
    "conv2d_large_kernel": case(conv(4, kernel=5, padding=2), conv(2, kernel=4, stride=3, padding=1), data=IMAGES),
    "conv2d_without_bias": case(conv(4, bias=False), layer("batch_normalization"), layer("relu"), conv(3, bias=False), data=IMAGES),
    "depthwise_conv2d": case(layer("depthwise_conv2d"), conv(5, kernel=1), layer("depthwise_conv2d"), data=IMAGES),
    "depthwise_conv2d_stride": case(conv(3), layer("depthwise_conv2d", kernel=2, stride=2, padding=1), data=IMAGES),
    "max_pool2d": case(conv(4, padding=1), layer("max_pool2d", size=2), data=IMAGES),
    "max_pool2d_overlapping": case(conv(4, padding=1), layer("max_pool2d", size=3, stride=2, padding=1), data=IMAGES),
    "max_pool2d_stride": case(conv(4, padding=1), layer("max_pool2d", size=2, stride=3), conv(2, kernel=2), data=IMAGES),
    "average_pool2d": case(conv(4, padding=1), layer("average_pool2d", size=3), data=IMAGES),
    "average_pool2d_overlapping": case(conv(4, padding=1), layer("average_pool2d", size=3, stride=2, padding=1), data=IMAGES),
    "average_pool2d_padding": case(conv(4), layer("average_pool2d", size=4, padding=2), conv(2, kernel=2), data=IMAGES),
    "upsample2d": case(conv(4, stride=2), layer("upsample2d", factor=3), conv(2, stride=2), layer("upsample2d", factor=2), data=IMAGES),
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
    # Graphs
    "graph_skip": graph({"fine": (conv(3, padding=1), "x"), "0": ([layer("average_pool2d", size=2, stride=1), conv(4, kernel=2, padding=1)], "fine"),
                         "both": joined("concatenate", "fine", "0"), "1": (conv(2), "both"), "y": (dense(3), "1")}),
    "graph_u_net": graph({"fine": (conv(3, padding=1), "x"), "1": ([layer("max_pool2d", size=2), conv(4, padding=1), layer("upsample2d", factor=2)], "fine"),
                          "2": joined("concatenate", "1", "fine", "x"), "y": (conv(2, kernel=1), "2")},
                         data={"shape": (6, 4, 2), "targets": (6, 4, 2)}, loss=layer("mean_squared_error")),
    "graph_sum": graph({"0": (conv(3), "x"), "1": (conv(3), "x"), "2": (layer("silu"), "1"), "s": joined("sum", "0", "1", "2", "0"), "y": (dense(3), "s")}),
    "graph_multiply": graph({"0": (conv(3), "x"), "1": (conv(3), "x"), "2": (layer("sigmoid"), "1"), "p": joined("multiply", "0", "2", "1"), "y": (dense(3), "p")}),
    "graph_square": graph({"0": (dense(5), "x"), "1": joined("multiply", "0", "0"), "y": (dense(3), "1")}, data=VECTORS),
    "graph_slice": graph({"0": (conv(5), "x"), "head": joined("slice", "0", first=0, count=2), "tail": joined("slice", "0", first=1, count=4),
                          "1": (conv(2), "tail"), "2": ([layer("relu"), conv(2)], "head"), "3": joined("multiply", "1", "2"), "y": (dense(3), "3")}),
    "graph_slice_of_input": graph({"0": joined("slice", "x", first=2, count=3), "1": ([*MLP], "0"), "y": (dense(3), "1")}, data=VECTORS),
    "graph_shared": graph({"0": ("step", "x"), "1": (layer("hyperbolic_tangent"), "0"), "2": ("step", "1"), "3": ("step", "2"), "y": (dense(3), "3")},
                          data=VECTORS, shared={"step": dense(6)}),
    "graph_shared_branches": graph({"0": joined("slice", "x", first=0, count=2), "1": joined("slice", "x", first=2, count=2), "2": ("0", "0"), "3": ("0", "1"),
                                    "4": joined("multiply", "2", "3"), "y": (dense(3), "4")}, shared={"0": layer("sequence", layers=[conv(3), layer("max_pool2d", size=2)])}),
    "graph_shared_attention": graph({"0": ("look", "x"), "1": joined("sum", "0", "x"), "2": ("look", "1"), "y": (dense(3), "2")}, data=SEQUENCES, shared={"look": attention()}),
    "graph_dropout": graph({"0": (dense(9), "x"), "1": (layer("dropout", rate=0.4), "0"), "drop": (layer("dropout", rate=0.3), "0"), "2": joined("concatenate", "1", "drop"), "y": (dense(3), "2")}, data=VECTORS),
    "graph_normalization": graph({"0": (conv(4), "x"), "norm": (layer("batch_normalization"), "0"), "1": joined("sum", "norm", "0"), "y": (dense(3), "1")}),
    "graph_layer": case(layer("graph_layer", graph=make_graph({"x": IMAGES["shape"]}, {"0": (conv(3), "x"), "1": (layer("batch_normalization"), "0"), "y": joined("multiply", "0", "1")})), data=IMAGES),
    "graph_layer_shared": graph({"0": ("twice", "x"), "1": ("twice", "0"), "y": (dense(3), "1")}, data=VECTORS, shared={"twice": layer("graph_layer", graph=make_graph(
        {"in": (6,)}, {"0": ("inner", "in"), "1": (layer("silu"), "0"), "2": ("inner", "1"), "out": joined("sum", "2", "in")}, shared={"inner": dense(6)}))}),
    "graph_inputs": graph({"0": joined("concatenate", "image", "place"), "1": ([conv(3), layer("relu")], "0"), "y": (dense(3), "1")},
                          data={"image": IMAGES, "place": {"shape": (7, 6, 2)}}),
    "graph_siamese": graph({"0": ("tower", "left"), "1": ("tower", "right"), "2": joined("multiply", "0", "1"), "y": (dense(3), "2")},
                           data={"left": VECTORS, "right": {"shape": (6,)}}, shared={"tower": layer("sequence", layers=[*MLP])}),
    "graph_outputs": graph({"0": ([*MLP], "x"), "a": (dense(3), "0"), "b": (dense(2), "0")}, data={**VECTORS, "targets": (2,)}, outputs={"price": "b", "class": "a"},
                           loss=parts(**{"class": (layer("cross_entropy_loss", label_smoothing=0.1), 1.0), "price": (layer("huber_loss", delta=0.5), 0.3)})),
    "graph_inner_output": graph({"0": (conv(2, padding=1), "x"), "1": (layer("relu"), "0"), "a": (dense(3), "1")}, data={**IMAGES, "targets": (84,)}, outputs={"class": "a", "image": "0"},
                                loss=parts(**{"class": (layer("cross_entropy_loss"), 0.7), "image": (layer("mean_absolute_error"), 2.0)})),
    "graph_inputs_and_outputs": graph({"0": joined("sum", "left", "right"), "1": ([*MLP], "0"), "2": (dense(2), "right"), "3": joined("concatenate", "1", "2"), "class": (dense(3), "3"), "4": (dense(2), "3")},
                                      data=PAIRS, outputs={"class": "class", "price": "4"}, optimizer=layer("adamw", weight_decay=0.1),
                                      loss=parts(**{"class": (layer("cross_entropy_loss"), 1.0), "price": (layer("mean_squared_error"), 0.25)})),
    # Models by name
    "mlp": named("mlp"),
    "cnn": named("cnn"),
    "cnn_bn": named("cnn_bn"),
    "resnet18": named("resnet18", {"shape": (66, 2, 1), "classes": 3}, record_every=20, rate={"base": 0.002}),
    "gpt": named("gpt", TEXTS, {"vocabulary": 7, "blocks": 2, "units": 8, "heads": 2}),
    "gpt_adamw": named("gpt", TEXTS, {"vocabulary": 7, "blocks": 1, "units": 4, "heads": 1}, clip_norm=1.0,
                       optimizer=layer("adamw", weight_decay=0.1, epsilon=1e-3)),  # the gradient of the keys' bias is 0, up to rounding
    # Losses
    "cross_entropy_loss": mlp(),
    "cross_entropy_smoothed": mlp(loss=layer("cross_entropy_loss", label_smoothing=0.2)),
    "cross_entropy_class_weights": mlp(loss=layer("cross_entropy_loss", class_weights=[0.5, 2.0, 1.25])),
    "cross_entropy_all": mlp(loss=layer("cross_entropy_loss", label_smoothing=0.1, class_weights=[0.5, 2.0, 1.25]), data={**VECTORS, **WEIGHTED}),
    "cross_entropy_sample_weights": mlp(data={**VECTORS, **WEIGHTED}),
    "cross_entropy_of_positions": case(layer("dense", units=3, per_position=True), data=POSITIONS),
    "cross_entropy_of_positions_all": case(layer("dense", units=3, per_position=True), data={**POSITIONS, **WEIGHTED},
                                           loss=layer("cross_entropy_loss", label_smoothing=0.1, class_weights=[0.5, 2.0, 1.25])),
    "cross_entropy_probabilities": mlp(data=MIXED),
    "cross_entropy_probabilities_all": mlp(data={**MIXED, **WEIGHTED}, loss=layer("cross_entropy_loss", label_smoothing=0.1, class_weights=[0.5, 2.0, 1.25])),
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
    "average_evaluated": optimized("sgd", {"evaluate_with_ema": True}, ema_decay=0.9),
    "average_evaluated_with_statistics": cnn(optimizer=layer("sgd", ema_decay=0.8), evaluate_with_ema=True),
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
    "replicas_graph": graph({"0": ("tower", "left"), "1": ("tower", "right"), "2": joined("concatenate", "0", "1", "right"), "norm": (layer("batch_normalization"), "2"), "class": (dense(3), "norm"), "price": (dense(2), "2")},
                            data=PAIRS, shared={"tower": dense(4)}, outputs={"class": "class", "price": "price"}, replicas=2, clip_norm=0.5,
                            loss=parts(**{"class": (layer("cross_entropy_loss"), 1.0), "price": (layer("mean_squared_error"), 0.25)})),
    "replicas_average_evaluated": cnn(replicas=2, optimizer=layer("sgd", ema_decay=0.8), evaluate_with_ema=True),
    "replicas_gpt": named("gpt", TEXTS, {"vocabulary": 7, "blocks": 1, "units": 4, "heads": 2}, replicas=2, deterministic=True, micro_batches=4),
    "replicas_scaled_rate": scheduled("cosine", {"replicas": 2}, scale_by_replicas=True, warmup_steps=5),
}


def make_data(name: str) -> List[Dict[str, np.ndarray]]:
    """The samples of each input of a case, the same in every run."""
    random = np.random.default_rng(zlib.crc32(name.encode()))
    return [make_samples(options, random) for options in inputs_of(CASES[name]["data"]).values()]


def make_samples(options: dict, random: np.random.Generator) -> Dict[str, np.ndarray]:
    count = 38
    data = {"inputs": random.standard_normal((count, *options["shape"]))}
    if "vocabulary" in options:
        data["inputs"] = random.integers(0, options["vocabulary"], (count, *options["shape"])).astype(np.float64)
    if "classes" in options:
        data["labels"] = random.integers(0, options["classes"], (count, *options.get("labels", ()))).astype(np.float64)
    if "targets" in options:
        kind = random.random if options.get("bounded") else random.standard_normal
        data["targets"] = kind((count, *options["targets"]))
    if options.get("probabilities"):
        data["targets"] = random.dirichlet(np.ones(options["classes"]), count)
    if options.get("weighted"):
        data["weights"] = random.integers(0, 5, count) / 2.0  # exact in f32, which weights are
    return data
