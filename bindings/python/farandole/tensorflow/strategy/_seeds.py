# SPDX-License-Identifier: Apache-2.0
"""Seeds of the random generators that must be equal on all ranks because they shuffle data and initialise models."""

import hashlib
import pickle
import random
from typing import Any

import numpy as np
import tensorflow as tf

from ... import _engine, _lifecycle, objects
from ._private_names import global_seed


def _digest(state: Any) -> str:
    return hashlib.sha256(pickle.dumps(state)).hexdigest()


def agree() -> None:
    """Compares the states of Python's and numpy's generators, and TensorFlow's global seed, across ranks. If one
    differs, or TensorFlow has no seed, that generator gets a new seed, the same on all ranks. A generator that the
    program has seeded equally keeps its state. Collective."""
    if _lifecycle.size() == 1:
        return
    seed = objects.broadcast_object(random.SystemRandom().randrange(2**31))
    own = {
        "Python": (_digest(random.getstate()), random.seed),
        "numpy": (_digest(np.random.get_state()), np.random.seed),
        "TensorFlow": (str(global_seed()), tf.random.set_seed),
    }
    everyone = objects.allgather_object({name: digest for name, (digest, _) in own.items()})
    for name, (digest, set_seed) in own.items():
        is_equal = all(other[name] == digest for other in everyone)
        if is_equal and digest != "None":  # "None": TensorFlow without a seed draws different numbers on each rank
            continue
        set_seed(seed)
        if _lifecycle.rank() == 0:
            _engine.log("debug", f"the random numbers of {name} differed between the ranks and have one seed now")
