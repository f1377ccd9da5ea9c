#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: install_torch_test.py

scripts/install_torch.py chooses the packages of torch that a machine lacks. pip, the loader and torch are doubles: a
machine has some libraries, and each package brings the libraries of its own.
"""

import contextlib
import importlib.util
import io
import re
import sys
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "install_torch.py"
REQUIREMENTS = [
    "filelock",
    "sympy>=1.13.3",
    "cuda-toolkit[cublas,cudart,cusparse,nvtx]==13.2.2; platform_system == \"Linux\"",
    "cuda-bindings<14,>=13.0.3; platform_system == \"Linux\"",
    "nvidia-cudnn-cu13==9.26.0.51; platform_system == \"Linux\"",
    "nvidia-cusparselt-cu13==0.8.1; platform_system == \"Linux\"",
    "nvidia-nccl-cu13==2.30.7; platform_system == \"Linux\"",
    "triton~=3.9.0; platform_system == \"Linux\"",
    "optree>=0.13.0; extra == \"optree\"",
]  # fmt: skip
LIBRARIES = {
    "cublas": ["libcublas.so.13", "libcublasLt.so.13"],
    "cudart": ["libcudart.so.13"],
    "cudnn": ["libcudnn.so.9"],
    "cusparse": ["libcusparse.so.12"],
    "cusparselt": ["libcusparseLt.so.0"],
    "nccl": ["libnccl.so.2"],
}
TOOLKIT = [file for name in ("cublas", "cudart", "cudnn", "cusparse") for file in LIBRARIES[name]]


def load_script():
    spec = importlib.util.spec_from_file_location("install_torch", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


install_torch = load_script()


class Machine:
    """A double of Environment. found: libraries of the machine; too_old: those that lack a symbol of torch's."""

    def __init__(self, found=(), too_old=(), index=False, pypi=True, also_needed=()):
        self.found, self.too_old, self.also_needed = set(found), set(too_old), list(also_needed)
        self.index, self.pypi = index, pypi
        self.calls, self.has_torch, self.is_whole = [], False, False

    def install(self, *arguments):
        self.calls.append(" ".join(arguments))
        from_index = "--index-url" in arguments
        if not (self.index if from_index else self.pypi):
            return False
        if arguments[-1] == "torch":
            self.has_torch = True
            self.is_whole = from_index or "--no-deps" not in arguments
        for argument in arguments:
            package = re.match(r"cuda-toolkit\[(.*)\]|nvidia-([a-z]+)", argument)
            if package:
                files = LIBRARIES[package[1] or package[2]]
                self.found |= set(files)
                self.too_old -= set(files)
        return True

    def lacking(self):
        needed = [file for files in LIBRARIES.values() for file in files] + self.also_needed
        return [file for file in needed if file not in self.found]

    reason = "ImportError: libnew.so.1: cannot open shared object file"

    def starts(self):
        return self.has_torch and (self.is_whole or not (self.lacking() or self.too_old))

    def requirements(self, package):
        return REQUIREMENTS if package == "torch" else []

    def version(self):
        return "2.15.0"

    def loader_report(self):
        lines = [f"\t{file} => not found" for file in self.lacking()]
        lines += [f"\t{file} => /usr/lib/{file} (0x00007f00)" for file in sorted(self.found)]
        for file in sorted(self.too_old):
            name = file[len("lib") : file.index(".so")]
            lines.append(f"undefined symbol: {name}CommGrow\t(/env/torch/lib/libtorch_cuda.so)")
        lines.append("undefined symbol: PyExc_KeyError\t(/env/torch/lib/libtorch_python.so)")
        return "\n".join(lines)

    def size(self):
        return 0.5 * len(self.calls)


class InstallTorch(unittest.TestCase):
    def install(self, machine):
        self.output = io.StringIO()
        with contextlib.redirect_stderr(self.output), contextlib.redirect_stdout(self.output):
            return install_torch.install(machine)

    def gpu_packages(self, machine):
        calls = " ".join(machine.calls)
        return re.findall(r"cuda-\S+|nvidia-\S+|triton\S*", calls)

    def test_takes_the_build_for_cpus(self):
        machine = Machine(index=True)
        self.assertTrue(self.install(machine))
        self.assertEqual(machine.calls[0], "numpy safetensors")
        self.assertEqual(machine.calls[1:], ["--retries 1 --index-url https://download.pytorch.org/whl/cpu torch"])
        self.assertRegex(self.output.getvalue(), r"setup.sh: torch 2.15.0: 1.0 GB in \d+ s")

    def test_does_nothing_if_torch_starts(self):
        machine = Machine()
        machine.has_torch = machine.is_whole = True
        self.assertTrue(self.install(machine))
        self.assertEqual(machine.calls, [])
        self.assertEqual(self.output.getvalue(), "")

    def test_installs_what_a_toolkit_lacks(self):
        machine = Machine(found=TOOLKIT)
        self.assertTrue(self.install(machine))
        self.assertIn("filelock sympy>=1.13.3", machine.calls)
        self.assertEqual(self.gpu_packages(machine), ["nvidia-cusparselt-cu13==0.8.1;", "nvidia-nccl-cu13==2.30.7;"])
        self.assertIn('--no-deps nvidia-nccl-cu13==2.30.7; platform_system == "Linux"', machine.calls)
        self.assertRegex(self.output.getvalue(), "whl/cpu gives no torch; installing the default build without")
        self.assertNotIn("does not start so", self.output.getvalue())

    def test_replaces_a_library_that_is_too_old(self):
        machine = Machine(found=[*TOOLKIT, *LIBRARIES["nccl"], *LIBRARIES["cusparselt"]], too_old=["libnccl.so.2"])
        self.assertTrue(self.install(machine))
        self.assertEqual(self.gpu_packages(machine), ["nvidia-nccl-cu13==2.30.7;"])

    def test_leaves_spare_packages_out_without_a_toolkit(self):
        machine = Machine()
        self.assertTrue(self.install(machine))
        packages = self.gpu_packages(machine)
        self.assertEqual(
            sorted(packages),
            ["cuda-toolkit[cublas]==13.2.2;", "cuda-toolkit[cudart]==13.2.2;", "cuda-toolkit[cusparse]==13.2.2;",
             "nvidia-cudnn-cu13==9.26.0.51;", "nvidia-cusparselt-cu13==0.8.1;", "nvidia-nccl-cu13==2.30.7;"],
        )  # fmt: skip
        self.assertIn('cuda-toolkit[cublas]==13.2.2; platform_system == "Linux"', machine.calls)

    def test_installs_everything_if_torch_does_not_start(self):
        machine = Machine(also_needed=["libnew.so.1"])
        self.assertTrue(self.install(machine))
        self.assertEqual(machine.calls[-1], "torch")
        self.assertIn(f"torch does not start so: {machine.reason}\nsetup.sh: installing all packages", self.output.getvalue())

    def test_says_why_torch_does_not_start(self):
        machine = Machine()
        machine.starts = lambda: False
        self.assertFalse(self.install(machine))
        self.assertIn(f"torch is installed and does not start: {machine.reason}", self.output.getvalue())

    def test_knows_the_packages_of_cuda_12(self):
        names = ["nvidia-cuda-runtime-cu12==12.8.90", "nvidia-cuda-nvrtc-cu12==12.8.93", "nvidia-cublas-cu12==12.8.4.1"]
        packages = install_torch.gpu_packages(names)
        self.assertEqual(sorted(packages), ["cublas", "cudart", "nvrtc"])
        self.assertEqual(install_torch.packages_for(["cudart.so.12"], packages), names[:1])

    def test_fails_without_a_registry(self):
        self.assertFalse(self.install(Machine(pypi=False)))

    def test_reads_versions_that_the_loader_has_not_found(self):
        text = "/lib/libtorch_python.so: /lib/libcudnn.so.9: version `libcudnn.so.9.1' not found (required by torch)\n"
        self.assertEqual(install_torch.missing_names(text), ["cudnn.so.9"])


if __name__ == "__main__":
    sys.exit(unittest.main())
