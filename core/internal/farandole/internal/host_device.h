// SPDX-License-Identifier: Apache-2.0
// Marks functions that are compiled for CPUs and for GPUs.
#pragma once

// On CPUs the function must be inlined into each loop, because loops are compiled once per instruction set. nvcc
// inlines without being asked.
#if defined(__CUDACC__)
#define FARANDOLE_HOST_DEVICE __host__ __device__
#else
#define FARANDOLE_HOST_DEVICE [[gnu::always_inline]]
#endif
