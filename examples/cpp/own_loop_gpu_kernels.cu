// SPDX-License-Identifier: Apache-2.0
// Each kernel has one thread per number of the result. cudaLaunchKernelEx launches kernels like <<<…>>> but needs no
// extension of C++, so the tests can compile this file for processors, too.
#include "own_loop_gpu_kernels.h"

#include <cmath>
#include <stdexcept>
#include <string>

namespace {

__global__ void hidden_kernel(const double* inputs, const double* first, double* hidden, int rows) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= rows * kHidden) return;
  const int row = i / kHidden, column = i % kHidden;
  double sum = 0;
  for (int k = 0; k < kInputs; ++k) sum += inputs[row * kInputs + k] * first[k * kHidden + column];
  hidden[i] = tanh(sum);
}

__global__ void error_kernel(const double* hidden, const double* second, const double* targets, double factor,
                             double* error, int rows) {
  const int row = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (row >= rows) return;
  double sum = 0;
  for (int column = 0; column < kHidden; ++column) sum += hidden[row * kHidden + column] * second[column];
  error[row] = (sum - targets[row]) * factor;
}

__global__ void d_second_kernel(const double* hidden, const double* error, double* d_second, int rows) {
  const int column = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (column >= kHidden) return;
  double sum = 0;
  for (int row = 0; row < rows; ++row) sum += hidden[row * kHidden + column] * error[row];
  d_second[column] = sum;
}

__global__ void d_first_kernel(const double* inputs, const double* hidden, const double* error, const double* second,
                               double* d_first, int rows) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= kInputs * kHidden) return;
  const int input = i / kHidden, column = i % kHidden;
  double sum = 0;
  for (int row = 0; row < rows; ++row) {
    const double activation = hidden[row * kHidden + column];
    sum += inputs[row * kInputs + input] * error[row] * second[column] * (1.0 - activation * activation);
  }
  d_first[i] = sum;
}

__global__ void descend_kernel(double* weights, const double* gradient, double rate, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) weights[i] -= rate * gradient[i];
}

/// Enqueues a kernel of at least `threads` threads.
template <class... Parameters>
void launch(int threads, cudaStream_t stream, void (*kernel)(Parameters...), Parameters... arguments) {
  constexpr int kBlockThreads = 128;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>((threads + kBlockThreads - 1) / kBlockThreads));
  config.blockDim = dim3(kBlockThreads);
  config.stream = stream;
  const cudaError_t result = cudaLaunchKernelEx(&config, kernel, arguments...);
  if (result != cudaSuccess) throw std::runtime_error(std::string("a kernel: ") + cudaGetErrorString(result));
}

}  // namespace

void compute_hidden(const double* inputs, const double* first, double* hidden, int rows, cudaStream_t stream) {
  launch(rows * kHidden, stream, hidden_kernel, inputs, first, hidden, rows);
}

void compute_error(const double* hidden, const double* second, const double* targets, double factor, double* error,
                   int rows, cudaStream_t stream) {
  launch(rows, stream, error_kernel, hidden, second, targets, factor, error, rows);
}

void compute_d_second(const double* hidden, const double* error, double* d_second, int rows, cudaStream_t stream) {
  launch(kHidden, stream, d_second_kernel, hidden, error, d_second, rows);
}

void compute_d_first(const double* inputs, const double* hidden, const double* error, const double* second,
                     double* d_first, int rows, cudaStream_t stream) {
  launch(kInputs * kHidden, stream, d_first_kernel, inputs, hidden, error, second, d_first, rows);
}

void descend(double* weights, const double* gradient, double rate, int count, cudaStream_t stream) {
  launch(count, stream, descend_kernel, weights, gradient, rate, count);
}
