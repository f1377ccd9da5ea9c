# SPDX-License-Identifier: Apache-2.0
"""Makes `import horovod…` find Farandole: the table of names,
modules made from the table, and Horovod's helper modules."""
