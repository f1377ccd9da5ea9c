# SPDX-License-Identifier: Apache-2.0
"""MirroredStrategy, a tf.distribute.Strategy over the ranks of the job. All other names of this package are private."""

from ._mirrored_strategy import MirroredStrategy

__all__ = ["MirroredStrategy"]
