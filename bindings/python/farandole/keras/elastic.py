# SPDX-License-Identifier: Apache-2.0
"""Horovod's elastic API for Keras, that of farandole.tensorflow.keras.elastic."""

from ..tensorflow.keras.elastic import *  # noqa: F401, F403
from ..tensorflow.keras.elastic import __all__  # noqa: F401
