# SPDX-License-Identifier: Apache-2.0
"""Repeats a training of the trainer in torch, step by step.

The trainer's output has the order of the samples, the factors of dropout and the initial values; everything else is torch's.
Where the trainer's definition is not torch's, a comment says so, as the trainer's headers do.
"""
from typing import Dict, Iterator, List, Tuple

import numpy as np
import torch
from torch.nn import functional
from torch.optim import lr_scheduler, swa_utils

from named_models import make_model

Tensors = Dict[str, np.ndarray]


def cross_entropies(options: dict, outputs: torch.Tensor, batch: Dict[str, torch.Tensor]) -> torch.Tensor:
    labels, smoothing = batch["labels"].long(), options.get("label_smoothing", 0.0)
    weights = torch.tensor(options["class_weights"], dtype=torch.float64) if "class_weights" in options else None
    if batch.get("targets_are_probabilities"):
        # torch weighs each probability by the weight of its class, the trainer all by their mean.
        each = functional.cross_entropy(outputs, batch["targets"], reduction="none", label_smoothing=smoothing)
        return each if weights is None else each * (batch["targets"] @ weights)
    logits = outputs.movedim(-1, 1)  # a sample may have several labels
    if smoothing == 0:
        each = functional.cross_entropy(logits, labels, weights, reduction="none")
    else:
        # torch weighs the smoothed share of a target by the weights of all classes, the trainer by that of the label.
        each = functional.cross_entropy(logits, labels, reduction="none", label_smoothing=smoothing)
        each = each if weights is None else each * weights[labels]
    return each.reshape(len(outputs), -1).mean(1)


def combined_losses(options: dict, outputs: torch.Tensor, batch: Dict[str, torch.Tensor],
                    shapes: Dict[str, Tuple[int, ...]]) -> torch.Tensor:
    """The sum of the losses of the outputs, which lie one behind the other, like their targets."""
    parts = {each["output"]: each for each in options["parts"]}
    total, first, first_target = 0.0, 0, 0
    for name, shape in shapes.items():
        count = int(np.prod(shape))
        own = dict(batch)
        if name not in options.get("with_labels", []):
            own["targets"] = batch["targets"].flatten(1)[:, first_target:first_target + count].reshape(-1, *shape)
            first_target += count
        output = outputs[:, first:first + count].reshape(-1, *shape)
        first += count
        total = total + parts[name].get("weight", 1.0) * losses(parts[name]["loss"], output, own, {})
    return total


def losses(options: dict, outputs: torch.Tensor, batch: Dict[str, torch.Tensor], shapes: Dict[str, Tuple[int, ...]]) -> torch.Tensor:
    """The loss of each sample. @param shapes  of the model's outputs"""
    kind = options["kind"]
    if kind == "combined_loss":
        return combined_losses(options, outputs, batch, shapes)
    if kind == "cross_entropy_loss":
        return cross_entropies(options, outputs, batch)
    functions = {
        "binary_cross_entropy_loss": functional.binary_cross_entropy_with_logits,
        "mean_squared_error": functional.mse_loss,
        "mean_absolute_error": functional.l1_loss,
        "huber_loss": functional.huber_loss,
    }
    further = {"delta": options["delta"]} if "delta" in options else {}
    return functions[kind](outputs, batch["targets"], reduction="none", **further).flatten(1).mean(1)


def group_of(name: str, groups: List[dict]) -> dict:
    for group in groups:
        pattern = group["pattern"]
        if name == pattern or pattern.endswith("*") and name.startswith(pattern[:-1]):
            return group
    return {}


def make_optimizer(model: torch.nn.Module, options: dict, rate: float) -> torch.optim.Optimizer:
    """A torch optimizer with a group for each parameter that is trained."""
    groups = []
    for each in model.tensors("parameter"):
        group = group_of(each.name, options.get("groups", []))
        each.tensor.requires_grad_(group.get("trainable", True))
        decay = group.get("weight_decay", options.get("weight_decay", 0.0) if each.decays else 0.0)
        if each.tensor.requires_grad:
            groups.append({"params": [each.tensor], "lr": rate * group.get("rate_factor", 1.0), "weight_decay": decay})
    if options["kind"] == "sgd":
        return torch.optim.SGD(groups, momentum=options.get("momentum", 0.9), nesterov=options.get("nesterov", False))
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[options["kind"]]
    return kind(groups, betas=(options.get("beta1", 0.9), options.get("beta2", 0.999)), eps=options.get("epsilon", 1e-8))


class Rates:
    """The schedule of a case, by torch's schedulers."""

    def __init__(self, optimizer: torch.optim.Optimizer, options: dict, steps_per_epoch: int, steps: int):
        self.plateau = None
        self.step_schedulers = []
        warmup = options.get("warmup_steps", 0)
        schedule = options.get("schedule", "constant")
        if schedule == "plateau":
            self.plateau = lr_scheduler.ReduceLROnPlateau(
                optimizer, factor=options["factor"], patience=options["patience"], threshold=options["threshold"],
                min_lr=options.get("minimum", 0.0))
            return
        after = self._make(schedule, optimizer, options, steps_per_epoch, steps - warmup)
        if warmup > 0:
            # The trainer's step 0 has the rate base / warmup, and step warmup - 1 the rate base.
            first = lr_scheduler.LinearLR(optimizer, 1 / warmup, total_iters=warmup - 1)
            if schedule == "step":  # whose epochs count from the first training step, not from the end of the warm-up
                after = lr_scheduler.ChainedScheduler([first, after])
            else:
                after = lr_scheduler.SequentialLR(optimizer, [first, after], milestones=[warmup])
        self.step_schedulers.append(after)

    @staticmethod
    def _make(schedule, optimizer, options, steps_per_epoch, steps):
        base, minimum = options["base"], options.get("minimum", 0.0)
        if schedule == "constant":
            return lr_scheduler.ConstantLR(optimizer, 1.0)
        if schedule == "step":
            return lr_scheduler.StepLR(optimizer, options["step_epochs"] * steps_per_epoch, options["step_factor"])
        if schedule == "cosine":
            return lr_scheduler.CosineAnnealingLR(optimizer, steps, minimum)
        if schedule == "polynomial" and minimum == 0:
            return lr_scheduler.PolynomialLR(optimizer, steps, options["power"])
        if schedule == "polynomial":  # torch's has no lowest rate
            return lr_scheduler.LambdaLR(
                optimizer, lambda step: (minimum + (base - minimum) * (1 - step / steps) ** options["power"]) / base)
        if schedule == "one-cycle":
            return lr_scheduler.OneCycleLR(
                optimizer, [group["lr"] for group in optimizer.param_groups], steps, pct_start=options["pct_start"],
                div_factor=options["div_factor"], final_div_factor=options["final_div_factor"], cycle_momentum=False)
        if schedule == "own":
            return lr_scheduler.ExponentialLR(optimizer, options["gamma"])
        raise ValueError(f"there is no schedule {schedule}")

    def end_step(self) -> None:
        for each in self.step_schedulers:
            each.step()

    def end_epoch(self, loss: float) -> None:
        if self.plateau:
            self.plateau.step(loss)


class BatchStatistics:
    """Moving statistics of a training step with several forward passes, which each replace them by the batch's.

    torch would move them in every pass; the trainer averages the passes' statistics and moves once.
    """

    def __init__(self, model: torch.nn.Module):
        self.norms = [module for module in model.modules() if isinstance(module, torch.nn.BatchNorm1d)]
        self.moving = [self._read(norm) for norm in self.norms]
        self.sums = [[torch.zeros_like(values) for values in each] for each in self.moving]
        self.momenta = [norm.momentum for norm in self.norms]
        for norm in self.norms:
            norm.momentum = 1.0

    @staticmethod
    def _read(norm) -> List[torch.Tensor]:
        return [norm.running_mean.clone(), norm.running_var.clone()]

    def add(self, share: float) -> None:
        for norm, sums in zip(self.norms, self.sums):
            for total, values in zip(sums, self._read(norm)):
                total += share * values

    def move(self) -> None:
        for norm, moving, sums, momentum in zip(self.norms, self.moving, self.sums, self.momenta):
            norm.momentum = momentum
            norm.running_mean.copy_(moving[0] + momentum * (sums[0] - moving[0]))
            norm.running_var.copy_(moving[1] + momentum * (sums[1] - moving[1]))


def joined(data: List[Tensors]) -> Dict[str, torch.Tensor]:
    """The samples of several inputs, one behind the other; of a single input, as they are."""
    parts: Dict[str, List[torch.Tensor]] = {}
    for each in data:
        for name, values in each.items():
            parts.setdefault(name, []).append(torch.from_numpy(values))
    result = {name: each[0] for name, each in parts.items() if len(each) == 1}
    for name in parts.keys() - result.keys():
        is_factor = name == "weights"
        result[name] = torch.stack(parts[name]).prod(0) if is_factor else torch.cat([each.flatten(1) for each in parts[name]], 1)
    return result


def cut(whole: Tuple[int, int], parts: int) -> List[Tuple[int, int]]:
    begin, count = whole[0], whole[1] - whole[0]
    return [(begin + index * count // parts, begin + (index + 1) * count // parts) for index in range(parts)]


class Replay:
    """A training in torch from the trainer's initial values."""

    def __init__(self, case: dict, data: List[Tensors], ours: Tensors):
        self.case, self.ours = case, ours
        self.options = case["options"]
        self.data = joined(data)
        shape = tuple(self.data["inputs"].shape[1:])
        self.model = make_model(case, shape)
        self.output_shapes = self.model.output_shapes(shape)
        for kind in ("parameter", "statistic"):
            for each in self.model.tensors(kind):
                each.assign(ours[f"{kind}.{each.name}"][0])
        self.model.train()
        count, batch = len(self.data["inputs"]), self.options["global_batch"]
        self.steps_per_epoch = -(-count // batch)
        self.steps = self.options["epochs"] * self.steps_per_epoch
        rates = self.options["learning_rate"]
        self.base = rates["base"] * (case.get("replicas", 1) if rates.get("scale_by_replicas") else 1)
        self.optimizer = make_optimizer(self.model, self.options["optimizer"], self.base)
        self.rates = Rates(self.optimizer, rates, self.steps_per_epoch, self.steps)
        self.average = None
        decay = self.options["optimizer"].get("ema_decay", 0.0)
        if decay > 0:
            self.average = swa_utils.AveragedModel(self.model, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(decay))
            self.average.update_parameters(self.model)  # the trainer's average starts with the initial parameters

    def steps_of_training(self) -> Iterator[Tensors]:
        """Trains a step at a time, and yields everything that the trainer has recorded of it."""
        first, epoch_loss, epoch_samples = 0, 0.0, 0
        for step in range(self.steps):
            count = self._samples_of(step)
            rate = self._rate()
            loss = self._train_step(first, count)
            self.rates.end_step()
            first += count
            epoch_loss, epoch_samples = epoch_loss + loss, epoch_samples + count
            if (step + 1) % self.steps_per_epoch == 0:
                self.rates.end_epoch(epoch_loss / epoch_samples)
                epoch_loss, epoch_samples = 0.0, 0
            yield {"loss": np.array(loss / count), "rate": np.array(rate), **self._tensors(step)}

    def results(self) -> Tensors:
        """What the trainer computes after the training, with the average if the case evaluates with it."""
        model = self.average.module if self.options.get("evaluate_with_ema") else self.model
        model.eval()
        with torch.no_grad():
            outputs = model(self.data["inputs"])
            return {"outputs": outputs.numpy(), "evaluation": np.array([self._losses(outputs, self.data).mean().item()])}

    def _losses(self, outputs: torch.Tensor, batch: Dict[str, torch.Tensor]) -> torch.Tensor:
        """The loss of each sample, times its weight."""
        facts = {"targets_are_probabilities": self.case.get("targets_are_probabilities", False)}
        each = losses(self.case["loss"], outputs, {**batch, **facts}, self.output_shapes)
        return each * batch["weights"] if "weights" in batch else each

    def _samples_of(self, step: int) -> int:
        batch = self.options["global_batch"]
        return min(batch, len(self.data["inputs"]) - step % self.steps_per_epoch * batch)

    def _rate(self) -> float:
        name = next(each.name for each in self.model.tensors("parameter") if each.tensor.requires_grad)
        group = group_of(name, self.options["optimizer"].get("groups", []))
        return self.optimizer.param_groups[0]["lr"] / group.get("rate_factor", 1.0)

    def _parts(self, count: int) -> List[Tuple[int, int]]:
        """Ranges of the global batch that the trainer passes through the model at a time."""
        if self.options.get("synchronized_layers"):
            return [(0, count)]
        if self.options.get("deterministic"):
            parts = cut((0, count), self.options["micro_batches"])
        else:
            shares = cut((0, count), self.case.get("replicas", 1))
            parts = [part for share in shares for part in cut(share, self.options.get("accumulate", 1))]
        return [(begin, end) for begin, end in parts if end > begin]

    def _train_step(self, first: int, count: int) -> float:
        order = self.ours["order"].astype(np.int64)
        parts = self._parts(count)
        statistics = BatchStatistics(self.model) if len(parts) > 1 else None
        self.optimizer.zero_grad()
        total = 0.0
        for begin, end in parts:
            rows = slice(first + begin, first + end)
            batch = {name: values[torch.from_numpy(order[rows])] for name, values in self.data.items()}
            for number, layer in self.model.dropouts().items():
                layer.factors = torch.from_numpy(self.ours[f"mask.{number}"][rows])
            each = self._losses(self.model(batch["inputs"]), batch)
            (each.sum() / count).backward()
            total += each.sum().item()
            if statistics:
                statistics.add((end - begin) / count)
        if statistics:
            statistics.move()
        self._clip()
        self.optimizer.step()
        if self.average:
            self.average.update_parameters(self.model)
        return total

    def _clip(self) -> None:
        limit = self.options.get("clip_norm", 0.0)
        if limit > 0:
            trained = [p for p in self.model.parameters() if p.grad is not None]
            norm = torch.nn.utils.clip_grad_norm_(trained, float("inf")).item()
            # torch divides the limit by the norm + 1e-6, the trainer by the norm.
            torch.nn.utils.clip_grad_norm_(trained, limit * (1 + 1e-6 / norm))

    def _tensors(self, step: int) -> Tensors:
        found: Tensors = {}
        if (step + 1) % self.case.get("record_every", 1) != 0:
            return found
        for kind in ("parameter", "statistic"):
            for each in self.model.tensors(kind):
                name = f"{kind}.{each.name}"
                found[name] = each.values(self.ours[name].shape[1:])
        if self.average:
            for each in self.average.module.tensors("parameter"):
                name = f"average.{each.name}"
                found[name] = each.values(self.ours[name].shape[1:])
        return found
