# SPDX-License-Identifier: Apache-2.0
# A part of a program, which is only compiled.
# BLOCK
