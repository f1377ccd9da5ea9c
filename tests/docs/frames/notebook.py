# SPDX-License-Identifier: Apache-2.0
# A notebook that has imported farandole.
import farandole

# BLOCK
