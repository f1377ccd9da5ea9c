// SPDX-License-Identifier: Apache-2.0
// Bodies of the trainer's kernels, for GPUs (trainer_kernels.cu) and for the CPU that plays the GPU in tests. Each body
// is a struct with a function `run(arguments, share)`: the share of one thread. What a body does, Kernels says
// (ops/trainer/src/kernels/kernels.h); the comment at each body lists its operands, sizes and numbers.
//
// Each element of a result is computed by one thread, in an order that depends on the sizes only. So results do not
// depend on the number of blocks.
#pragma once

#include "bodies_halves.h"
#include "bodies_images.h"
#include "bodies_losses.h"
#include "bodies_normalization.h"
#include "bodies_samples.h"
#include "bodies_sequence.h"
#include "bodies_sums.h"
#include "bodies_updates.h"
#include "bodies_vectors.h"
