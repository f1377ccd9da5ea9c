// SPDX-License-Identifier: Apache-2.0
// Marks arithmetic that processors and GPUs share.
#pragma once

// Processors need the code inside of each loop, which is compiled once per instruction set; nvcc inlines by itself.
#if defined(__CUDACC__)
#define FARANDOLE_HOST_DEVICE __host__ __device__
#else
#define FARANDOLE_HOST_DEVICE [[gnu::always_inline]]
#endif
