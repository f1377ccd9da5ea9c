// SPDX-License-Identifier: Apache-2.0
// The kernels of own_loop_gpu.cpp. The model: targets ≈ tanh(inputs · first) · second. All matrices are in device
// memory, in row-major order; rows are samples. Each function enqueues one kernel in `stream`, and throws if CUDA
// reports an error.
#pragma once

#include <cuda_runtime.h>

inline constexpr int kInputs = 4, kHidden = 32;

/// hidden = tanh(inputs · first): rows × kHidden from rows × kInputs and kInputs × kHidden.
void compute_hidden(const double* inputs, const double* first, double* hidden, int rows, cudaStream_t stream);
/// error = (hidden · second - targets) · factor: one number per row.
void compute_error(const double* hidden, const double* second, const double* targets, double factor, double* error,
                   int rows, cudaStream_t stream);
/// d_second = hiddenᵀ · error: kHidden numbers.
void compute_d_second(const double* hidden, const double* error, double* d_second, int rows, cudaStream_t stream);
/// d_first = inputsᵀ · (error · secondᵀ ∘ (1 - hidden²)): kInputs × kHidden.
void compute_d_first(const double* inputs, const double* hidden, const double* error, const double* second,
                     double* d_first, int rows, cudaStream_t stream);
/// weights -= rate · gradient, for `count` numbers.
void descend(double* weights, const double* gradient, double rate, int count, cudaStream_t stream);
