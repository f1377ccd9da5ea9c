# SPDX-License-Identifier: Apache-2.0
"""usage: torch_test.py DRIVER HEADERS [arguments of unittest]

Compares trainings of the trainer in f64 with the same trainings in torch, from the same weights: after every training step
every loss, rate, parameter, statistic and average is equal to 1e-9, and at the end so are the predictions. DRIVER is
farandole_torch_case, HEADERS the directory of the trainer's public headers. The variable TORCH_PYTHON names a Python that
has torch, if this one has not. Exits with 77, and the reason, where there is no torch.
"""
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

SKIPPED = 77  # for ctest
TOLERANCE = 1e-9  # relative to the tensor's largest element


def need_torch() -> None:
    """Goes on in the Python of TORCH_PYTHON, or ends the test, if this Python lacks a module."""
    missing = [module for module in ("torch", "numpy", "safetensors") if importlib.util.find_spec(module) is None]
    if not missing:
        return
    other = os.environ.pop("TORCH_PYTHON", "")
    if other:
        os.execv(other, [other, *sys.argv])
    print(f"skipped: {sys.executable} has no {' and no '.join(missing)} (scripts/setup.sh --python DIR --torch installs "
          "torch; TORCH_PYTHON names another Python)")
    sys.exit(SKIPPED)


need_torch()
import numpy as np  # noqa: E402
import torch  # noqa: E402
from safetensors.numpy import load_file, save_file  # noqa: E402

if not hasattr(torch.nn, "RMSNorm"):
    print(f"skipped: torch {torch.__version__} is older than 2.4")
    sys.exit(SKIPPED)
from cases import CASES, make_data  # noqa: E402
from replay import Replay  # noqa: E402

torch.set_num_threads(1)
LAYER, LOSS = "std::unique_ptr<Layer<Scalar>>", "LossPointer<Scalar>"  # what makers return
DRIVER, HEADERS = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])


def deviation(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The largest difference, relative to the largest element."""
    if ours.shape != theirs.shape:
        return float("inf")
    difference = np.max(np.abs(ours - theirs), initial=0.0)
    if difference == 0:
        return 0.0
    relative = difference / np.max(np.abs(theirs))
    return relative if np.isfinite(relative) else float("inf")


class TorchTest(unittest.TestCase):
    """A test for each case, and three that nothing is left out."""

    def check(self, name: str) -> None:
        case, data = dict(CASES[name]), make_data(name)
        ours = self.train(case, data)
        replay = Replay(case, data, ours)
        for step, theirs in enumerate(replay.steps_of_training()):
            for tensor, values in theirs.items():
                row = step if tensor in ("loss", "rate") else (step + 1) // case.get("record_every", 1) - 1
                # Parameters and statistics have a row for the initial values.
                row += tensor.startswith(("parameter.", "statistic."))
                self.compare(f"training step {step + 1}: {tensor}", ours[tensor][row], values)
        for result, values in replay.results().items():
            self.compare(f"after the training: {result}", ours[result], values)
        self.assertEqual(len(ours["loss"]), 20)
        self.check_movement(case, ours)

    def train(self, case: dict, data: list) -> dict:
        with tempfile.TemporaryDirectory() as directory:
            names = ["case.json", "output.safetensors", *(f"data{number}.safetensors" for number in range(len(data)))]
            files = [os.path.join(directory, name) for name in names]
            with open(files[0], "w", encoding="utf-8") as file:
                json.dump({key: value for key, value in case.items() if key != "data"}, file)
            for file_name, each in zip(files[2:], data):
                save_file(each, file_name)
            done = subprocess.run([DRIVER, *files], capture_output=True, text=True, timeout=300, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            return load_file(files[1])

    def compare(self, what: str, ours: np.ndarray, theirs: np.ndarray) -> None:
        found = deviation(ours, theirs)
        self.assertLessEqual(found, TOLERANCE, f"{what} differs from torch by {found:.2g} of its largest element; the "
                                               f"trainer has\n{ours}\nand torch\n{theirs}")

    def check_movement(self, case: dict, ours: dict) -> None:
        """A comparison of values that the training leaves as they are would show nothing."""
        frozen = [group["pattern"] for group in case["options"]["optimizer"].get("groups", [])
                  if not group.get("trainable", True)]
        for tensor, values in ours.items():
            is_frozen = any(tensor.startswith("parameter." + pattern.rstrip("*")) for pattern in frozen)
            if is_frozen:
                self.assertTrue((values == values[0]).all(), f"{tensor} is frozen")
            elif tensor.startswith("parameter.") and tensor.endswith(("weight", "scale")):
                self.assertGreater(deviation(values[-1], values[0]), 1e-4, f"{tensor} has hardly changed")

    def test_every_maker_has_a_case(self):
        made = set(re.findall(r'"kind": "(\w+)"', json.dumps(CASES)))
        for header, result in (("layers.h", LAYER), ("loss.h", LOSS), ("graph.h", LAYER), ("outputs.h", LOSS)):
            makers = re.findall(rf"FARANDOLE_API {result} (\w+)\(", (HEADERS / header).read_text(encoding="utf-8"))
            self.assertGreater(len(makers), 0 if header in ("graph.h", "outputs.h") else 4)
            self.assertEqual([maker for maker in makers if maker not in made], [], f"makers of {header} without a case")

    def test_every_named_model_and_operation_has_a_case(self):
        made = set(re.findall(r'"kind": "(\w+)"', json.dumps(CASES)))
        for header, pattern in (("models.h", r'^/// - "?(\w+)"(?:, "(\w+)")*:'), ("graph.h", r"^  Node (\w+)\(")):
            text = (HEADERS / header).read_text(encoding="utf-8")
            names = {name for match in re.finditer(pattern, text, re.M) for name in re.findall(r"\w+", match.group()) if name != "Node"}
            names -= {"add", "input", "resnet50"}  # the first two are in every graph; named_models.py says why resnet50 has none
            self.assertGreater(len(names), 3)
            self.assertEqual(sorted(names - made), [], f"of {header}, without a case")

    def test_every_schedule_and_optimizer_has_a_case(self):
        options = [case["options"] for case in CASES.values()]
        for header, enumeration, used in (
                ("learning_rate.h", "LearningRateSchedule", {each["learning_rate"].get("schedule", "") for each in options}),
                ("optimizer.h", "OptimizerKind", {each["optimizer"]["kind"] for each in options} | {"own"})):
            text = (HEADERS / header).read_text(encoding="utf-8")
            names = re.findall(r"k(\w+)", re.search(rf"enum class {enumeration} {{([^}}]*)}}", text).group(1))
            known = {each.replace("-", "") for each in used}
            self.assertGreater(len(names), 3)
            self.assertEqual([name for name in names if name.lower() not in known], [], f"of {enumeration}, without a case")


for _name in CASES:
    setattr(TorchTest, f"test_{_name}", lambda self, name=_name: self.check(name))

if __name__ == "__main__":
    print(f"torch {torch.__version__}, {len(CASES)} cases", flush=True)
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
