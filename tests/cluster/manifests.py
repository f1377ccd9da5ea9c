#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: manifests.py DIRECTORY

Checks the Kubernetes manifests in DIRECTORY against kubernetes_fields.json: every field exists in its object's type, and
holds a value of the field's type; required fields are present. Exit status 77 without PyYAML.
"""
import json
import re
import sys
from pathlib import Path
from typing import Any, Iterator

try:
    import yaml
except ImportError:
    print("skipped: there is no PyYAML for this Python (pip install pyyaml)")
    sys.exit(77)

SCHEMA = json.loads((Path(__file__).parent / "kubernetes_fields.json").read_text(encoding="utf-8"))
QUANTITY = re.compile(r"[+-]?\d+(\.\d+)?([KMGTPE]i|[numkMGTPE])?")
SIMPLE = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "quantity": lambda value: isinstance(value, (int, str)) and bool(QUANTITY.fullmatch(str(value))),
}


def mistakes(value: Any, kind: str, where: str) -> Iterator[str]:
    """What is wrong with a value of a type, and with what it holds."""
    if kind.startswith("["):
        if not isinstance(value, list):
            yield f"{where} is a list, not {value!r}"
            return
        for index, each in enumerate(value):
            yield from mistakes(each, kind[1:-1], f"{where}[{index}]")
    elif kind.startswith("{"):
        if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
            yield f"{where} is a map from texts, not {value!r}"
            return
        for name, each in value.items():
            yield from mistakes(each, kind[1:-1], f"{where}.{name}")
    elif kind in SIMPLE:
        if not SIMPLE[kind](value):
            yield f"{where} is of the type {kind}, not {value!r}"
    elif "|" in kind:
        if value not in kind.split("|"):
            yield f"{where} is one of {kind}, not {value!r}"
    else:
        yield from mistakes_of_object(value, kind, where)


def mistakes_of_object(value: Any, kind: str, where: str) -> Iterator[str]:
    fields = SCHEMA["types"][kind]
    if not isinstance(value, dict):
        yield f"{where} is a {kind} with fields, not {value!r}"
        return
    for name, each in value.items():
        if name in fields:
            yield from mistakes(each, fields[name], f"{where}.{name}")
        else:
            yield f"{where}.{name}: a {kind} has no such field, or kubernetes_fields.json does not list it"
    for name in SCHEMA["required"].get(kind, []):
        if name not in value:
            yield f"{where}.{name} is missing"


def mistakes_of_manifest(manifest: Any) -> Iterator[str]:
    kind = manifest.get("kind") if isinstance(manifest, dict) else None
    if kind not in SCHEMA["kinds"]:
        yield f"kind is one of {', '.join(SCHEMA['kinds'])}, not {kind!r}"
        return
    if manifest.get("apiVersion") != SCHEMA["kinds"][kind]:
        yield f"apiVersion of a {kind} is {SCHEMA['kinds'][kind]}, not {manifest.get('apiVersion')!r}"
    yield from mistakes(manifest, kind, kind)
    yield from dangling_mounts(manifest, kind)


def dangling_mounts(value: Any, where: str) -> Iterator[str]:
    """Mounts of volumes that their pod does not have."""
    if isinstance(value, dict):
        if "containers" in value:
            volumes = {each["name"] for each in value.get("volumes", [])}
            for container in value["containers"]:
                for mount in container.get("volumeMounts", []):
                    if mount["name"] not in volumes:
                        yield f"{where}: the volume {mount['name']} of {container['name']} is not there"
        for name, each in value.items():
            yield from dangling_mounts(each, f"{where}.{name}")


# Errors that the check must find: kind, path in a valid manifest, value to put there, and a part of the message.
BROKEN = [
    ("MPIJob", ["spec", "slotPerWorker"], 2, "has no such field"),
    ("MPIJob", ["spec", "slotsPerWorker"], "2", "of the type integer"),
    ("MPIJob", ["spec", "mpiImplementation"], "LAM", "one of OpenMPI|Intel|MPICH"),
    ("MPIJob", ["spec", "mpiReplicaSpecs", "Worker", "template", "spec", "volumes"], [], "shared-memory of worker is not"),
    ("MPIJob", ["spec", "mpiReplicaSpecs", "Launcher", "template", "spec", "containers"], {}, "is a list"),
    ("MPIJob", ["apiVersion"], "kubeflow.org/v1", "apiVersion of a MPIJob"),
    ("TrainJob", ["spec", "trainer", "numNode"], 2, "has no such field"),
    ("TrainJob", ["spec", "trainer", "env"], [{"value": "x"}], "env[0].name is missing"),
    ("TrainJob", ["spec", "trainer", "resourcesPerNode", "limits", "memory"], "8 GB", "of the type quantity"),
    ("TrainJob", ["spec"], {}, "runtimeRef is missing"),
]


def self_test(manifests: dict) -> int:
    failures = 0
    for kind, path, value, expected in BROKEN:
        manifest = json.loads(json.dumps(manifests[kind]))
        place = manifest
        for name in path[:-1]:
            place = place[name]
        place[path[-1]] = value
        found = list(mistakes_of_manifest(manifest))
        if not any(expected in each for each in found):
            print(f"{kind} with {'.'.join(path)} = {value!r}: expected {expected!r}, found {found}")
            failures += 1
    return failures


def main() -> int:
    manifests = {}
    failures = 0
    for path in sorted(Path(sys.argv[1]).glob("*.yaml")):
        manifest = yaml.safe_load(path.read_text(encoding="utf-8"))
        found = list(mistakes_of_manifest(manifest))
        failures += len(found)
        print("\n".join(f"{path.name}: {each}" for each in found) or f"{path.name}: all fields are those of its types")
        manifests[manifest["kind"]] = manifest
    if set(manifests) != set(SCHEMA["kinds"]):
        print(f"expected manifests of {', '.join(SCHEMA['kinds'])}, found {', '.join(manifests) or 'none'}")
        return 1
    return int(failures + self_test(manifests) > 0)


if __name__ == "__main__":
    sys.exit(main())
