# SPDX-License-Identifier: Apache-2.0
"""What the strategy calls its own collectives in graphs.

Keras numbers layers, models and optimizers as they are made, and TensorFlow puts their names in front of those of ops. A
rank that has made one more would wait under another name than the others. So these names say in which function of the
user a collective is, what it is for, and which one of these it is: the same on all ranks that run the same program. What
must be equal besides, shapes and types, is compared when the ranks meet.
"""

from typing import Any, Dict

import tensorflow as tf

from .._running import normalize_name, numbered


def named(role: str) -> Dict[str, Any]:
    """The arguments `name` and `ignore_name_scope` of the next collective of this role. Eager ones have no name: they
    come one after the other."""
    if tf.executing_eagerly():
        return {"name": None, "ignore_name_scope": False}
    where = getattr(tf.distribute.get_replica_context(), "function_name", "strategy")
    return {"name": numbered(normalize_name(f"farandole_{where}_{role}")), "ignore_name_scope": True}
