# SPDX-License-Identifier: Apache-2.0
"""`import horovod…` finds Farandole: the table of names, the modules made from it, and what Horovod has beside its API."""
