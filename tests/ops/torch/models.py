# SPDX-License-Identifier: Apache-2.0
"""The trainer's layers, built from torch's modules.

Activations stay channels last between layers, as in the trainer: a module that wants channels first gets them permuted. A
tensor of a module is known by the name and has the layout that the trainer gives it.
"""
import functools
import math
import operator
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

import numpy as np
import torch
from torch import nn

Shape = Tuple[int, ...]


class Place(NamedTuple):
    """Where a module has a tensor, and the order of its axes in the trainer."""
    path: str
    axes: Optional[Tuple[int, ...]] = None
    decays: bool = False


class NamedTensor(NamedTuple):
    name: str
    tensor: torch.Tensor
    axes: Optional[Tuple[int, ...]]
    decays: bool

    def values(self, shape: Shape) -> np.ndarray:
        """The values in the trainer's layout."""
        tensor = self.tensor.detach()
        return (tensor.permute(self.axes) if self.axes else tensor).reshape(shape).numpy().copy()

    def assign(self, values: np.ndarray) -> None:
        axes = self.axes or tuple(range(self.tensor.dim()))
        permuted = torch.from_numpy(values.copy()).reshape([self.tensor.shape[axis] for axis in axes])
        with torch.no_grad():
            self.tensor.copy_(permuted.permute([axes.index(axis) for axis in range(len(axes))]))


class Layer(nn.Module):
    """A function of a module and a batch."""

    def __init__(self, function: Callable, module: Optional[nn.Module] = None,
                 parameters: Optional[Dict[str, Place]] = None, statistics: Optional[Dict[str, Place]] = None):
        super().__init__()
        self.function, self.module = function, module
        self.places = {"parameter": parameters or {}, "statistic": statistics or {}}

    def forward(self, x):
        return self.function(self.module, x)

    def tensors(self, kind: str) -> Iterator[NamedTensor]:
        for name, (path, axes, decays) in self.places[kind].items():
            yield NamedTensor(name, operator.attrgetter(path)(self.module), axes, decays)


class Dropout(nn.Module):
    """Multiplies a batch by factors that the trainer has drawn."""

    def __init__(self):
        super().__init__()
        self.factors = None

    def forward(self, x):
        return x * self.factors if self.training else x

    def tensors(self, kind):
        return iter(())


def kind_of(options: dict) -> str:
    """The kind of a layer in the names of its tensors."""
    return {"graph_layer": "graph"}.get(options["kind"], options["kind"])


def shape_after(module: nn.Module, shape: Shape) -> Shape:
    """The shape of a module's results for samples of a shape, by a forward pass."""
    module.eval()
    with torch.no_grad():
        return tuple(module(torch.zeros(1, *shape, dtype=torch.float64)).shape[1:])


class Stack(nn.Module):
    """Layers in order, from objects {"kind": …} as in cases.py."""

    def __init__(self, layers: List[dict], shape: Shape):
        super().__init__()
        self.kinds = [kind_of(layer) for layer in layers]
        self.layers = nn.ModuleList()
        for options in layers:
            self.layers.append(make_layer(options, shape))
            shape = shape_after(self.layers[-1], shape)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x

    def dropouts(self) -> Dict[int, Dropout]:
        return {number: layer for number, layer in enumerate(self.layers) if isinstance(layer, Dropout)}

    def output_shapes(self, shape: Shape) -> Dict[str, Shape]:
        return {"output": shape_after(self, shape)}

    def tensors(self, kind: str) -> Iterator[NamedTensor]:
        for place, layer in enumerate(self.layers):
            for each in layer.tensors(kind):
                yield each._replace(name=f"{place}.{self.kinds[place]}.{each.name}")


class Residual(nn.Module):
    def __init__(self, body: Stack, shortcut: Stack):
        super().__init__()
        self.body, self.shortcut = body, shortcut

    def forward(self, x):
        return self.body(x) + self.shortcut(x)

    def tensors(self, kind: str) -> Iterator[NamedTensor]:
        for branch in ("body", "shortcut"):
            for each in getattr(self, branch).tensors(kind):
                yield each._replace(name=f"{branch}.{each.name}")


OPERATIONS = {
    "sum": lambda options, *values: functools.reduce(operator.add, values),
    "multiply": lambda options, *values: functools.reduce(operator.mul, values),
    "concatenate": lambda options, *values: torch.cat(values, -1),
    "slice": lambda options, value: value[..., options["first"]:options["first"] + options["count"]],
}


class Graph(nn.Module):
    """Layers and operations, from an object {"inputs": …, "shared": …, "nodes": …, "outputs": …} as in cases.py."""

    def __init__(self, options: dict):
        super().__init__()
        self.inputs = {each["name"]: tuple(each["shape"]) for each in options["inputs"]}
        self.outputs = {each["name"]: each["node"] for each in options["outputs"]}
        self.layers, self.prefixes, self.steps = nn.ModuleDict(), {}, []
        self.shared = {each["name"]: (str(number), each["layer"]) for number, each in enumerate(options["shared"])}
        for name, (number, layer) in self.shared.items():
            self._set_prefix(number, layer, name)
        self.shapes = dict(self.inputs)
        for node in options["nodes"]:
            self._add(node["name"], node["operation"], node["from"])

    def _set_prefix(self, number: str, layer: dict, name: str) -> None:
        self.prefixes[number] = f"{number}.{kind_of(layer)}" if name[0].isdigit() else name

    def _add(self, name: str, operation, sources: List[str]) -> None:
        if isinstance(operation, list):  # layers in order, each without a name
            for place, layer in enumerate(operation):
                target = name if place + 1 == len(operation) else f"0 {name} {place}"
                self._add_step(target, layer, sources, named=False)
                sources = [target]
        else:
            self._add_step(name, operation, sources)

    def _add_step(self, target: str, operation, sources: List[str], named=True) -> None:
        shapes = [self.shapes[source] for source in sources]
        if not isinstance(operation, str) and operation["kind"] in OPERATIONS:
            function = functools.partial(OPERATIONS[operation["kind"]], operation)
            zeros = [torch.zeros(1, *shape, dtype=torch.float64) for shape in shapes]
            self.shapes[target] = tuple(function(*zeros).shape[1:])
            self.steps.append((target, function, sources))
            return
        if isinstance(operation, str):
            number, layer = self.shared[operation]
        else:
            number, layer = str(len(self.prefixes)), operation
            self._set_prefix(number, layer, target if named else "0")
        if number not in self.layers:
            self.layers[number] = make_layer(layer, shapes[0])
        self.shapes[target] = shape_after(self.layers[number], shapes[0])
        self.steps.append((target, number, sources))

    def forward(self, x):
        parts = [x] if len(self.inputs) == 1 else x.split([math.prod(shape) for shape in self.inputs.values()], 1)
        values = {name: part.reshape(-1, *shape) for part, (name, shape) in zip(parts, self.inputs.items())}
        for target, function, sources in self.steps:
            function = self.layers[function] if isinstance(function, str) else function
            values[target] = function(*(values[source] for source in sources))
        results = [values[node] for node in self.outputs.values()]
        return results[0] if len(results) == 1 else torch.cat([result.flatten(1) for result in results], 1)

    def dropouts(self) -> Dict[int, Dropout]:
        return {int(number): layer for number, layer in self.layers.items() if isinstance(layer, Dropout)}

    def output_shapes(self, shape: Shape) -> Dict[str, Shape]:
        return {name: self.shapes[node] for name, node in self.outputs.items()}

    def tensors(self, kind: str) -> Iterator[NamedTensor]:
        for number, layer in self.layers.items():
            for each in layer.tensors(kind):
                yield each._replace(name=f"{self.prefixes[number]}.{each.name}")


def channels_first(module, x):
    return module(x.movedim(-1, 1)).movedim(1, -1)


def by_row(module, x):
    """Normalises over all axes but the last."""
    return module(x.reshape(-1, x.shape[-1])).reshape(x.shape)


def on_vectors(module, x):
    return module(x.flatten(1))


def with_bias(options, places):
    """Without the place of the bias, if there is none."""
    return places if options.get("bias", True) else {name: place for name, place in places.items() if name != "bias"}


def make_dense(options, shape):
    per_position = options.get("per_position", False)
    module = nn.Linear(shape[-1] if per_position else math.prod(shape), options["units"], options.get("bias", True))
    return Layer(nn.Module.__call__ if per_position else on_vectors, module,
                 with_bias(options, {"weight": Place("weight", (1, 0), True), "bias": Place("bias")}))


def make_conv2d(options, shape):
    module = nn.Conv2d(shape[-1], options["channels"], options.get("kernel", 3), options.get("stride", 1),
                       options.get("padding", 0), bias=options.get("bias", True))
    return Layer(channels_first, module, with_bias(options, {"weight": Place("weight", (2, 3, 1, 0), True), "bias": Place("bias")}))


def make_depthwise_conv2d(options, shape):
    module = nn.Conv2d(shape[-1], shape[-1], options.get("kernel", 3), options.get("stride", 1), options.get("padding", 0),
                       groups=shape[-1])
    return Layer(channels_first, module, {"weight": Place("weight", (2, 3, 0, 1), True), "bias": Place("bias")})


SCALE, SHIFT = Place("weight"), Place("bias")


def make_batch_normalization(options, shape):
    module = nn.BatchNorm1d(shape[-1], options.get("epsilon", 1e-5), options.get("momentum", 0.1))
    return Layer(by_row, module, {"scale": SCALE, "shift": SHIFT},
                 {"mean": Place("running_mean"), "variance": Place("running_var")})


def make_normalization(function, module, options, names=("scale", "shift")):
    affine = options.get("affine", True)
    return Layer(function, module, dict(zip(names, (SCALE, SHIFT))) if affine else {})


def make_layer_normalization(options, shape):
    module = nn.LayerNorm(shape[-1], options.get("epsilon", 1e-5), options.get("affine", True))
    return make_normalization(nn.Module.__call__, module, options)


def make_group_normalization(options, shape):
    module = nn.GroupNorm(options["groups"], shape[-1], options.get("epsilon", 1e-5), options.get("affine", True))
    return make_normalization(channels_first, module, options)


def make_rms_normalization(options, shape):
    module = nn.RMSNorm(shape[-1], options.get("epsilon", 1e-5), options.get("affine", True))
    return make_normalization(nn.Module.__call__, module, options, ("scale",))


def make_embedding(options, shape):
    return Layer(lambda module, x: module(x.long()), nn.Embedding(options["vocabulary"], options["units"]),
                 {"weight": Place("weight", None, True)})


def make_positional_encoding(options, shape):
    length, units = shape
    if options["learned"]:
        return Layer(lambda module, x: x + module.weight, nn.Embedding(length, units), {"weight": Place("weight", None, True)})
    angle = torch.arange(length)[:, None] / 10000 ** (torch.arange(0, units, 2, dtype=torch.float64) / units)
    waves = torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1)[:, :units]
    return Layer(lambda module, x: x + waves)


def make_attention(options, shape):
    length, units = shape
    module = nn.MultiheadAttention(units, options.get("heads", 1), batch_first=True)
    mask = torch.ones(length, length, dtype=torch.bool).triu(1) if options.get("causal") else None
    return Layer(lambda module, x: module(x, x, x, need_weights=False, attn_mask=mask)[0], module,
                 {"qkv_weight": Place("in_proj_weight", (1, 0), True), "qkv_bias": Place("in_proj_bias"),
                  "output_weight": Place("out_proj.weight", (1, 0), True), "output_bias": Place("out_proj.bias")})


def plain(function):
    """A layer without parameters."""
    return lambda options, shape: Layer(lambda module, x: function(x, options))


def window(options):
    """Size, stride and padding of a pool."""
    return options["size"], options.get("stride"), options.get("padding", 0)


MAKERS = {
    "dense": make_dense,
    "conv2d": make_conv2d,
    "depthwise_conv2d": make_depthwise_conv2d,
    "max_pool2d": lambda options, shape: Layer(channels_first, nn.MaxPool2d(*window(options))),
    "average_pool2d": lambda options, shape: Layer(channels_first, nn.AvgPool2d(*window(options), count_include_pad=False)),
    "upsample2d": lambda options, shape: Layer(channels_first, nn.Upsample(scale_factor=options["factor"], mode="nearest")),
    "global_average_pool": plain(lambda x, options: x.flatten(1, -2).mean(1)),
    "flatten": plain(lambda x, options: x.flatten(1)),
    "reshape": plain(lambda x, options: x.reshape(len(x), *options["shape"])),
    "relu": plain(lambda x, options: nn.functional.relu(x)),
    "leaky_relu": plain(lambda x, options: nn.functional.leaky_relu(x, options.get("slope", 0.01))),
    "gelu": plain(lambda x, options: nn.functional.gelu(x)),
    "silu": plain(lambda x, options: nn.functional.silu(x)),
    "sigmoid": plain(lambda x, options: torch.sigmoid(x)),
    "hyperbolic_tangent": plain(lambda x, options: torch.tanh(x)),
    "dropout": lambda options, shape: Dropout(),
    "batch_normalization": make_batch_normalization,
    "layer_normalization": make_layer_normalization,
    "group_normalization": make_group_normalization,
    "rms_normalization": make_rms_normalization,
    "embedding": make_embedding,
    "positional_encoding": make_positional_encoding,
    "attention": make_attention,
    "sequence": lambda options, shape: Stack(options["layers"], shape),
    "residual": lambda options, shape: Residual(Stack(options["body"], shape), Stack(options.get("shortcut", []), shape)),
    "graph_layer": lambda options, shape: Graph(options["graph"]),
}


def make_layer(options: dict, shape: Shape) -> nn.Module:
    return MAKERS[options["kind"]](options, shape).double()
