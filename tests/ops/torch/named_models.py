# SPDX-License-Identifier: Apache-2.0
"""The models that the trainer knows by name, and the model of any case.

resnet50 is missing: on small images a difference of 1e-15 in its weights, in torch alone, grows to 1e-8 within three training
steps, so that equality to 1e-9 would say nothing.
"""
from typing import Dict, Iterator, List

import torch
from torch import nn

import models
from models import Place, Shape


def layer(kind: str, **options) -> dict:
    return {"kind": kind, **options}


def mlp(options: dict) -> List[dict]:
    return [layer("dense", units=128), layer("relu"), layer("dense", units=options["classes"])]


def cnn(options: dict, normalized: bool = False) -> List[dict]:
    norm = [layer("batch_normalization")] if normalized else []
    return [layer("conv2d", channels=32), *norm, layer("relu"), layer("conv2d", channels=64), *norm, layer("relu"),
            layer("max_pool2d", size=2), layer("dense", units=128), layer("relu"),
            *([layer("dropout", rate=0.25)] if normalized else []), layer("dense", units=options["classes"])]


def normalized_conv(channels: int, kernel: int, stride: int = 1) -> List[dict]:
    return [layer("conv2d", channels=channels, kernel=kernel, stride=stride, padding=kernel // 2, bias=False),
            layer("batch_normalization")]


def resnet18(options: dict) -> List[dict]:
    relu = layer("relu")
    is_large = max(options["input"][:2]) > 64
    net = [*normalized_conv(64, 7 if is_large else 3, 2 if is_large else 1), relu]
    if is_large:
        net.append(layer("max_pool2d", size=3, stride=2, padding=1))
    for stage in range(4):
        width = 64 << stage
        for block in range(2):
            stride = 2 if stage > 0 and block == 0 else 1
            body = [*normalized_conv(width, 3, stride), relu, *normalized_conv(width, 3)]
            net += [layer("residual", body=body, shortcut=normalized_conv(width, 1, stride) if stride != 1 else []), relu]
    return [*net, layer("global_average_pool"), layer("dense", units=options["classes"])]


LAYERS = {
    "mlp": mlp,
    "cnn": cnn,
    "cnn_bn": lambda options: cnn(options, normalized=True),
    "resnet18": resnet18,
}

WEIGHT, BIAS = Place("weight", (1, 0), True), Place("bias")
# The tensors of torch's encoder layer, by the trainer's names within the two residual layers of a block.
BLOCK = {
    0: {"0.layer_normalization.scale": Place("norm1.weight"), "0.layer_normalization.shift": Place("norm1.bias"),
        "1.attention.qkv_weight": Place("self_attn.in_proj_weight", (1, 0), True),
        "1.attention.qkv_bias": Place("self_attn.in_proj_bias"),
        "1.attention.output_weight": Place("self_attn.out_proj.weight", (1, 0), True),
        "1.attention.output_bias": Place("self_attn.out_proj.bias")},
    1: {"0.layer_normalization.scale": Place("norm2.weight"), "0.layer_normalization.shift": Place("norm2.bias"),
        "1.dense.weight": Place("linear1.weight", (1, 0), True), "1.dense.bias": Place("linear1.bias"),
        "3.dense.weight": Place("linear2.weight", (1, 0), True), "3.dense.bias": Place("linear2.bias")},
}


class Gpt(nn.Module):
    """A transformer of torch's encoder layers."""

    def __init__(self, options: dict):
        super().__init__()
        self.length, units, vocabulary = options["input"][0], options["units"], options["vocabulary"]
        self.vocabulary = vocabulary
        self.tokens, self.positions = nn.Embedding(vocabulary, units), nn.Embedding(self.length, units)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(units, options["heads"], 4 * units, dropout=0.0, activation="gelu", batch_first=True,
                                       norm_first=True) for _ in range(options["blocks"]))
        self.norm, self.head = nn.LayerNorm(units), nn.Linear(units, vocabulary)

    def forward(self, x):
        x = self.tokens(x.long()) + self.positions.weight
        mask = nn.Transformer.generate_square_subsequent_mask(self.length, dtype=torch.float64)
        for block in self.blocks:
            x = block(x, src_mask=mask, is_causal=True)
        return self.head(self.norm(x))

    def dropouts(self) -> Dict[int, models.Dropout]:
        return {}

    def output_shapes(self, shape: Shape) -> Dict[str, Shape]:
        return {"output": (self.length, self.vocabulary)}

    def tensors(self, kind: str) -> Iterator[models.NamedTensor]:
        last = 2 + 2 * len(self.blocks)
        parts = [("0.embedding.", self.tokens, {"weight": Place("weight", None, True)}),
                 ("1.positional_encoding.", self.positions, {"weight": Place("weight", None, True)})]
        for number, block in enumerate(self.blocks):
            parts += [(f"{2 + 2 * number + half}.residual.body.", block, places) for half, places in BLOCK.items()]
        parts += [(f"{last}.layer_normalization.", self.norm, {"scale": Place("weight"), "shift": BIAS}),
                  (f"{last + 1}.dense.", self.head, {"weight": WEIGHT, "bias": BIAS})]
        for prefix, module, places in parts:
            for each in models.Layer(None, module, places).tensors(kind):
                yield each._replace(name=prefix + each.name)


def make_model(case: dict, shape: Shape) -> nn.Module:
    """@param shape  of a sample of the data"""
    if "graph" in case:
        return models.Graph(case["graph"]).double()
    first = case["layers"][0]
    if first["kind"] == "gpt":
        return Gpt(first).double()
    return models.Stack(LAYERS[first["kind"]](first) if first["kind"] in LAYERS else case["layers"], shape)
