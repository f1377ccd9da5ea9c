# SPDX-License-Identifier: Apache-2.0
"""Elastic API with the names of `horovod.keras.elastic`, imported from farandole.tensorflow.keras.elastic."""

from ..tensorflow.keras.elastic import *  # noqa: F401, F403
from ..tensorflow.keras.elastic import __all__  # noqa: F401
