# SPDX-License-Identifier: Apache-2.0
# A job of two ranks, with an array.
import numpy as np

import farandole
import farandole.numpy as collectives

farandole.init()
mine = np.ones(3)
# BLOCK
