# SPDX-License-Identifier: Apache-2.0
"""Implementation of farandole-run and `farandole.run`. The public
names are those of farandole.run; this package is private."""
