#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: DIR/bin/python scripts/install_torch.py

Installs torch and safetensors, for processors, in the environment of the interpreter that runs this script: the build
for CPUs; or, where PyTorch's own index does not give one, the default build without those of its GPU packages that it
starts without; or, if that does not start, the default build with all its packages. No-op if torch starts already.

The default build links to CUDA's libraries. Each of its GPU packages is left out unless the dynamic loader lacks one of
its libraries, so libraries of a CUDA toolkit on the machine are used. Names and versions of the packages come from torch's
metadata. Exit status 1 if no torch could be installed.
"""

import importlib
import importlib.metadata
import importlib.util
import re
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from typing import Dict, Iterable, List

CPU_INDEX = "https://download.pytorch.org/whl/cpu"
OF_GPUS = re.compile(r"(nvidia|cuda|triton)\b")  # names of packages begin so
# Libraries that `import torch` loads; all others are loaded by these.
LOADED = ("libtorch_global_deps.so", "libtorch_python.so")
CHECK = "import safetensors, torch.distributed as d, torch; assert d.is_available() and torch.ones(2).sum() == 2"


def say(text: str) -> None:
    print(f"setup.sh: {text}", file=sys.stderr, flush=True)


class Environment:
    """The environment of this interpreter.

    reason: why the last `starts` was False; the end of its error text.
    """

    reason = ""

    def install(self, *arguments: str) -> bool:
        """True if pip has installed what `arguments` name."""
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-q"]
        done = subprocess.run([*pip, *arguments], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:  # otherwise pip only lists the packages that were left out
            sys.stderr.write(done.stderr)
        return done.returncode == 0

    def starts(self) -> bool:
        done = subprocess.run([sys.executable, "-c", CHECK], stderr=subprocess.PIPE, text=True)
        lines = done.stderr.strip().splitlines()
        self.reason = lines[-1] if lines else f"exit status {done.returncode}"
        return done.returncode == 0

    def requirements(self, package: str) -> List[str]:
        importlib.invalidate_caches()
        return importlib.metadata.requires(package) or []

    def version(self) -> str:
        return importlib.metadata.version("torch")

    def loader_report(self) -> str:
        """What `ldd -r` says of the libraries that torch loads at its start."""
        importlib.invalidate_caches()
        directory = Path(importlib.util.find_spec("torch").origin).parent / "lib"
        files = [str(directory / name) for name in LOADED if (directory / name).exists()]
        return subprocess.run(["ldd", "-r", *files], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout

    def size(self) -> float:
        """GB of the installed packages."""
        files = Path(sysconfig.get_path("purelib")).rglob("*")
        return sum(file.lstat().st_size for file in files if not file.is_dir()) / 1e9


def missing_names(loader_report: str) -> List[str]:
    """Names, without "lib", of the libraries that the loader has not found or found too old, and of symbols without a
    definition."""
    found = re.findall(
        r"^\s*lib(\S+) => not found|\blib([^/\s]+): version \S+ not found|^undefined symbol: (\w+)", loader_report, re.M
    )
    return sorted({absent or old or symbol for absent, old, symbol in found})


def gpu_packages(requirements: Iterable[str]) -> Dict[str, str]:
    """The requirement that brings each set of libraries, by a name that the libraries' names begin with:
    {"cufft": "cuda-toolkit[cufft]==13.2.2", "nccl": "nvidia-nccl-cu13==2.30.7; …"}."""
    found = {}
    for requirement in requirements:
        toolkit = re.match(r"cuda-toolkit\[([^]]*)\](.*)", requirement)
        single = re.match(r"nvidia-(?:cuda-)?([a-z]+)", requirement)
        if toolkit:
            found.update({extra.strip(): f"cuda-toolkit[{extra.strip()}]{toolkit[2]}" for extra in toolkit[1].split(",")})
        elif single:
            found["cudart" if single[1] == "runtime" else single[1]] = requirement
    return found


def packages_for(names: Iterable[str], packages: Dict[str, str]) -> List[str]:
    """The requirements that bring libraries and symbols of these names, without those that no package brings."""
    wanted = []
    for name in names:
        keys = [key for key in packages if name.lower().startswith(key)]
        wanted += [packages[max(keys, key=len)]] if keys else []
    return list(dict.fromkeys(wanted))


def install_without_spare(environment: Environment) -> bool:
    """Installs the default build with the packages that it needs to start. True if torch then starts; otherwise says why
    not, if pip has not."""
    if not environment.install("--no-deps", "torch"):
        return False
    # Requirements keep their markers ("; platform_system == …"), which pip evaluates.
    required = [each for each in environment.requirements("torch") if "extra ==" not in each]
    if not environment.install(*(each for each in required if not OF_GPUS.match(each))):
        return False
    packages = gpu_packages(required)
    while wanted := packages_for(missing_names(environment.loader_report()), packages):
        packages = {key: each for key, each in packages.items() if each not in wanted}
        for each in wanted:
            # The requirements of a single package are libraries that the machine may have. An extra of the toolkit is
            # a requirement itself.
            options = [] if each.startswith("cuda-toolkit") else ["--no-deps"]
            if not environment.install(*options, each):
                return False
    if environment.starts():
        return True
    say(f"torch does not start so: {environment.reason}")
    return False


def install(environment: Environment) -> bool:
    """Installs torch. True if it starts."""
    if environment.starts():
        return True
    print(f"setup.sh: installing torch in {sys.prefix}", flush=True)
    before, begin = environment.size(), time.monotonic()
    # One retry: where a firewall hides the index, pip would wait for each of its usual five.
    if not environment.install("numpy", "safetensors"):
        return False
    if not environment.install("--retries", "1", "--index-url", CPU_INDEX, "torch"):
        say(
            f"{CPU_INDEX} gives no torch; installing the default build without the GPU packages that it starts without "
            "(torch 2.15: 2.1 GB if the machine has a CUDA toolkit, otherwise 4.3 GB)"
        )
        if not install_without_spare(environment):
            say("installing all packages of torch (torch 2.15: 5.7 GB)")
            if not environment.install("torch"):
                return False
    if not environment.starts():
        say(f"torch is installed and does not start: {environment.reason}")
        return False
    say(f"torch {environment.version()}: {environment.size() - before:.1f} GB in {time.monotonic() - begin:.0f} s")
    return True


if __name__ == "__main__":
    sys.exit(not install(Environment()))
