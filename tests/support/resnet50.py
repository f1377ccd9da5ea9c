# SPDX-License-Identifier: Apache-2.0
"""Sizes of ResNet-50's gradients; resnet50.h has them for C++."""


def resnet50_gradient_sizes():
    """Element counts of the trainable tensors of ResNet-50: He et al., CVPR 2016, table 1, with batch normalisation."""
    sizes, channels = [3 * 64 * 49, 64, 64], 64
    for planes, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            for inputs, outputs, kernel in ((channels, planes, 1), (planes, planes, 3), (planes, planes * 4, 1)):
                sizes += [inputs * outputs * kernel * kernel, outputs, outputs]
            if block == 0:
                sizes += [channels * planes * 4, planes * 4, planes * 4]
            channels = planes * 4
    return sizes + [2048 * 1000, 1000]
