#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: lightning_test.py

A program of Lightning with `DDPStrategy(process_group_backend="farandole")` on two processes has the losses and parameters
of one process. Lightning starts the second process by itself; each half of a batch goes to one process. Status 77 if
Lightning is not installed.
"""

import json
import logging
import os
import subprocess
import sys
import tempfile
import unittest
import warnings
from pathlib import Path

EPOCHS, SAMPLES, BATCH = 2, 32, 8


def make_module():
    import lightning
    import torch

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            torch.manual_seed(1)
            self.network = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
            self.losses = []

        def loss_of(self, batch):
            inputs, targets = batch
            return (self.network(inputs) - targets).square().mean()

        def training_step(self, batch, _):
            loss = self.loss_of(batch)
            self.losses.append(float(self.trainer.strategy.reduce(loss.detach(), reduce_op="mean")))
            return loss

        def validation_step(self, batch, _):
            self.log("validation", self.loss_of(batch), sync_dist=True)

        def train_dataloader(self):
            return loader(self.trainer, 1)

        def val_dataloader(self):
            return loader(self.trainer, 2)

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=0.02)

    return Module()


def loader(trainer, seed: int):
    """Batches of this process: its part of each whole batch."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    inputs = torch.randn(SAMPLES // BATCH, BATCH, 6, generator=torch.Generator().manual_seed(seed))
    own = inputs.chunk(trainer.world_size, dim=1)[trainer.global_rank].reshape(-1, 6)
    return DataLoader(TensorDataset(own, own.sum(1, keepdim=True)), batch_size=BATCH // trainer.world_size)


def train(processes: int, file: str) -> None:
    """Trains, each epoch with a new model that loads the checkpoint of the epoch before, and writes the results to
    `file`."""
    import lightning
    from lightning.pytorch.strategies import DDPStrategy

    import farandole.torch  # noqa: F401: registers the backend

    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    checkpoint = Path(file).with_suffix(".checkpoint")
    losses, validation = [], []
    for epoch in range(EPOCHS):
        trainer = lightning.Trainer(
            accelerator="cpu",
            devices=processes,
            strategy=DDPStrategy(process_group_backend="farandole") if processes > 1 else "auto",
            max_epochs=epoch + 1,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            enable_checkpointing=False,
            use_distributed_sampler=False,  # it shuffles
        )
        module = make_module()
        trainer.fit(module, ckpt_path=str(checkpoint) if epoch > 0 else None)
        trainer.save_checkpoint(checkpoint)
        losses += module.losses
        validation.append(float(trainer.callback_metrics["validation"]))
    if trainer.is_global_zero:
        import torch.distributed as dist

        backend = dist.get_backend() if processes > 1 else None
        parameters = [values.tolist() for values in module.parameters()]
        Path(file).write_text(json.dumps([backend, losses, validation, parameters]))


class LightningTest(unittest.TestCase):
    def train(self, processes):
        with tempfile.TemporaryDirectory() as directory:
            file = os.path.join(directory, "results")
            done = subprocess.run(
                [sys.executable, __file__, str(processes), file], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                timeout=200, env={**os.environ, "OMP_NUM_THREADS": "1"},
            )  # fmt: skip
            self.assertEqual(done.returncode, 0, done.stdout)
            return json.loads(Path(file).read_text())

    def test_two_processes_train_as_one(self):
        import torch

        _, *alone = self.train(1)
        backend, *together = self.train(2)
        self.assertEqual(backend, "farandole")
        self.assertEqual(len(alone[0]), EPOCHS * SAMPLES // BATCH)
        self.assertLess(alone[1][-1], alone[1][0])  # the validation's loss falls
        for expected, found in zip(alone, together):
            torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


if __name__ == "__main__":
    try:
        import lightning
    except ImportError as error:
        print(f"skipped: {error}; to install Lightning: pip install lightning")
        sys.exit(77)
    if len(sys.argv) > 1:
        train(int(sys.argv[1]), sys.argv[2])
    else:
        print(f"Lightning {lightning.__version__}")
        unittest.main()
