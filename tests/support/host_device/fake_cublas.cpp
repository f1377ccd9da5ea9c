// SPDX-License-Identifier: Apache-2.0
// The double of cuBLAS: products of matrices, computed on the host in streams of the double, one element after another.
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "cublas_api.h"
#include "fake_device.h"
#include "fake_devices.h"
#include "fake_faults.h"
#include "fake_streams.h"
#include "farandole/internal/float16.h"

namespace farandole::fake {
namespace {

using trainer::cuda::CUBLAS_COMPUTE_32F;
using trainer::cuda::CUBLAS_OP_N;
using trainer::cuda::CUBLAS_OP_T;
using trainer::cuda::CUBLAS_STATUS_EXECUTION_FAILED;
using trainer::cuda::CUBLAS_STATUS_INVALID_VALUE;
using trainer::cuda::CUBLAS_STATUS_NOT_INITIALIZED;
using trainer::cuda::CUBLAS_STATUS_SUCCESS;
using trainer::cuda::cublasComputeType_t;
using trainer::cuda::cublasGemmAlgo_t;
using trainer::cuda::cublasHandle_t;
using trainer::cuda::cublasOperation_t;
using trainer::cuda::cublasStatus_t;
using trainer::cuda::CUDA_R_16BF;
using trainer::cuda::CUDA_R_16F;
using trainer::cuda::CUDA_R_32F;
using trainer::cuda::cudaDataType_t;

/// A handle. Never freed, so that uses of a destroyed handle are recognised.
struct CublasHandle : Handle {
  explicit CublasHandle(Device& owner) : Handle(Kind::kCublas), device(owner) {}
  Device& device;
  void* stream = nullptr;
};

/// Returns the object of a handle; reports a misuse and returns null if the handle is dead, or another device current.
CublasHandle* object_of(const char* call, cublasHandle_t handle) {
  auto* const object = reinterpret_cast<CublasHandle*>(handle);
  if (object == nullptr || !object->is(Handle::Kind::kCublas)) {
    misuse("{}: no handle of cuBLAS", call);
    return nullptr;
  }
  if (&object->device == current_device()) return object;
  misuse("{}: the handle is of device {}, which is not current", call, object->device.ordinal);
  return nullptr;
}

/// A matrix, stored column by column.
template <class T>
struct Matrix {
  T* values;
  int rows, columns, stride;

  std::size_t bytes() const {
    const auto all = static_cast<std::size_t>(stride) * static_cast<std::size_t>(columns - 1);
    return (all + static_cast<std::size_t>(rows)) * sizeof(T);
  }
  T& at(int row, int column) const {
    return values[static_cast<std::size_t>(column) * static_cast<std::size_t>(stride) + static_cast<std::size_t>(row)];
  }
};

float wide(float value) {
  return value;
}
double wide(double value) {
  return value;
}
float wide(Half value) {
  return widen(value);
}
float wide(BFloat16 value) {
  return widen(value);
}

/// A product of factors with elements of type F, added up in the type of the result.
template <class F, class T>
struct Product {
  Matrix<const F> left, right;
  bool left_transposed, right_transposed;
  int inner;
  T alpha, beta;
  Matrix<T> result;

  /// The elements of `left` are widened once, and lie beside each other for the innermost loop, which runs over rows.
  void compute() const {
    using Wide = decltype(wide(F{}));
    const auto rows = static_cast<std::size_t>(result.rows);
    std::vector<Wide> lefts(rows * static_cast<std::size_t>(inner));
    for (int k = 0; k < inner; ++k) {
      for (int row = 0; row < result.rows; ++row) {
        lefts[static_cast<std::size_t>(k) * rows + static_cast<std::size_t>(row)] =
            wide(left_transposed ? left.at(k, row) : left.at(row, k));
      }
    }
    std::vector<T> sums(rows);
    for (int column = 0; column < result.columns; ++column) {
      std::ranges::fill(sums, T{0});
      for (int k = 0; k < inner; ++k) {
        const Wide factor = wide(right_transposed ? right.at(column, k) : right.at(k, column));
        const Wide* const of_k = lefts.data() + static_cast<std::size_t>(k) * rows;
        for (std::size_t row = 0; row < rows; ++row) sums[row] += of_k[row] * factor;
      }
      for (int row = 0; row < result.rows; ++row) {
        T& element = result.at(row, column);
        element = alpha * sums[static_cast<std::size_t>(row)] + (beta == T{0} ? T{0} : beta * element);
      }
    }
  }
};

template <class F, class T>
void run_product(void* argument, int is_possible) {
  if (is_possible != 0) static_cast<const Product<F, T>*>(argument)->compute();
}

template <class F, class T>
void release_product(void* argument) {
  delete static_cast<Product<F, T>*>(argument);
}

template <class F, class T>
cublasStatus_t enqueue(const char* call, const CublasHandle& handle, Product<F, T> product) {
  const std::array<FakeDeviceAccess, 3> accesses{{{product.result.values, product.result.bytes(), 1},
                                                  {product.left.values, product.left.bytes(), 0},
                                                  {product.right.values, product.right.bytes(), 0}}};
  const auto translated = [](const auto& matrix) {
    auto copy = matrix;
    copy.values = static_cast<decltype(copy.values)>(fake_device_stream_address(matrix.values));
    return copy;
  };
  auto for_stream = std::make_unique<Product<F, T>>(product);
  for_stream->left = translated(product.left);
  for_stream->right = translated(product.right);
  for_stream->result = translated(product.result);
  const int failed = fake_device_launch(handle.stream, call, &run_product<F, T>, for_stream.get(),
                                        &release_product<F, T>, accesses.data(), accesses.size());
  if (failed != 0) return CUBLAS_STATUS_EXECUTION_FAILED;
  (void)for_stream.release();
  return CUBLAS_STATUS_SUCCESS;
}

/// The arguments of a product, as cuBLAS names them.
template <class F, class T>
struct GemmCall {
  cublasHandle_t handle;
  cublasOperation_t left_operation, right_operation;
  int rows, columns, inner;
  const T* alpha;
  const F* left;
  int left_stride;
  const F* right;
  int right_stride;
  const T* beta;
  T* result;
  int stride;
};

template <class F, class T>
cublasStatus_t gemm(const char* name, const GemmCall<F, T>& call) {
  const CublasHandle* const handle = object_of(name, call.handle);
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  const bool left_t = call.left_operation == CUBLAS_OP_T, right_t = call.right_operation == CUBLAS_OP_T;
  const auto is_known = [](cublasOperation_t operation) {
    return operation == CUBLAS_OP_N || operation == CUBLAS_OP_T;
  };
  const int left_rows = left_t ? call.inner : call.rows, right_rows = right_t ? call.columns : call.inner;
  if (!is_known(call.left_operation) || !is_known(call.right_operation) || call.rows < 1 || call.columns < 1 ||
      call.inner < 1 || call.left_stride < left_rows || call.right_stride < right_rows || call.stride < call.rows) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  return enqueue<F, T>(name, *handle,
                       {{call.left, left_rows, left_t ? call.rows : call.inner, call.left_stride},
                        {call.right, right_rows, right_t ? call.inner : call.columns, call.right_stride},
                        left_t,
                        right_t,
                        call.inner,
                        *call.alpha,
                        *call.beta,
                        {call.result, call.rows, call.columns, call.stride}});
}

/// Steps from a product of a batch to the next, in elements.
struct BatchSteps {
  long long left, right, result;
  int count;
};

template <class F, class T>
cublasStatus_t gemm_batch(const char* name, GemmCall<F, T> call, const BatchSteps& steps) {
  for (int k = 0; k < steps.count; ++k) {
    if (const cublasStatus_t failed = gemm(name, call); failed != CUBLAS_STATUS_SUCCESS) return failed;
    call.left += steps.left;
    call.right += steps.right;
    call.result += steps.result;
  }
  return CUBLAS_STATUS_SUCCESS;
}

/// The types of a product of factors of 16 bits.
struct HalfTypes {
  cudaDataType_t left, right, result;
  cublasComputeType_t compute;
};

/// Calls `multiply(F{})`, where F is the type of the factors.
template <class Multiply>
cublasStatus_t with_factors(const HalfTypes& types, const Multiply& multiply) {
  if (types.left != types.right || types.result != CUDA_R_32F || types.compute != CUBLAS_COMPUTE_32F) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (types.left == CUDA_R_16F) return multiply(Half{});
  return types.left == CUDA_R_16BF ? multiply(BFloat16{}) : CUBLAS_STATUS_INVALID_VALUE;
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming,bugprone-macro-parentheses): cuBLAS's names
#define FARANDOLE_DECLARE_CUBLAS(name, exported, parameters) cublasStatus_t exported parameters;
extern "C" {
FARANDOLE_CUBLAS_FUNCTIONS(FARANDOLE_DECLARE_CUBLAS)

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  static CallSite call_site(__func__);
  if (const int failed = call_site.begin_call(); failed != 0) return failed;
  if (current_device() == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  *handle = reinterpret_cast<cublasHandle_t>(&make_kept<CublasHandle>(*current_device()));
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  CublasHandle* const object = object_of("cublasDestroy", handle);
  if (object == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  object->die();
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetVersion_v2(cublasHandle_t /*handle*/, int* version) {
  *version = 130100;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cuda::CUstream stream) {
  CublasHandle* const object = object_of("cublasSetStream", handle);
  if (object == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  object->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void* /*memory*/, std::size_t /*bytes*/) {
  return object_of("cublasSetWorkspace", handle) == nullptr ? CUBLAS_STATUS_NOT_INITIALIZED : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t left_operation,
                              cublasOperation_t right_operation, int rows, int columns, int inner, const float* alpha,
                              const float* left, int left_stride, const float* right, int right_stride,
                              const float* beta, float* result, int stride) {
  static CallSite call_site(__func__);
  if (const int failed = call_site.begin_call(); failed != 0) return failed;
  return gemm<float, float>("cublasSgemm", {handle, left_operation, right_operation, rows, columns, inner, alpha, left,
                                            left_stride, right, right_stride, beta, result, stride});
}

cublasStatus_t cublasDgemm_v2(cublasHandle_t handle, cublasOperation_t left_operation,
                              cublasOperation_t right_operation, int rows, int columns, int inner, const double* alpha,
                              const double* left, int left_stride, const double* right, int right_stride,
                              const double* beta, double* result, int stride) {
  static CallSite call_site(__func__);
  if (const int failed = call_site.begin_call(); failed != 0) return failed;
  return gemm<double, double>("cublasDgemm", {handle, left_operation, right_operation, rows, columns, inner, alpha,
                                              left, left_stride, right, right_stride, beta, result, stride});
}

cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t handle, cublasOperation_t left_operation,
                                         cublasOperation_t right_operation, int rows, int columns, int inner,
                                         const float* alpha, const float* left, int left_stride, long long left_step,
                                         const float* right, int right_stride, long long right_step, const float* beta,
                                         float* result, int stride, long long step, int count) {
  static CallSite call_site(__func__);
  if (const int failed = call_site.begin_call(); failed != 0) return failed;
  return gemm_batch<float, float>("cublasSgemmStridedBatched",
                                  {handle, left_operation, right_operation, rows, columns, inner, alpha, left,
                                   left_stride, right, right_stride, beta, result, stride},
                                  {left_step, right_step, step, count});
}

cublasStatus_t cublasDgemmStridedBatched(cublasHandle_t handle, cublasOperation_t left_operation,
                                         cublasOperation_t right_operation, int rows, int columns, int inner,
                                         const double* alpha, const double* left, int left_stride, long long left_step,
                                         const double* right, int right_stride, long long right_step,
                                         const double* beta, double* result, int stride, long long step, int count) {
  static CallSite call_site(__func__);
  if (const int failed = call_site.begin_call(); failed != 0) return failed;
  return gemm_batch<double, double>("cublasDgemmStridedBatched",
                                    {handle, left_operation, right_operation, rows, columns, inner, alpha, left,
                                     left_stride, right, right_stride, beta, result, stride},
                                    {left_step, right_step, step, count});
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t left_operation, cublasOperation_t right_operation,
                            int rows, int columns, int inner, const void* alpha, const void* left,
                            cudaDataType_t left_type, int left_stride, const void* right, cudaDataType_t right_type,
                            int right_stride, const void* beta, void* result, cudaDataType_t result_type, int stride,
                            cublasComputeType_t compute, cublasGemmAlgo_t /*algorithm*/) {
  static CallSite call_site(__func__);
  if (const int failed = call_site.begin_call(); failed != 0) return failed;
  return with_factors({left_type, right_type, result_type, compute}, [&](auto type) {
    using F = decltype(type);
    return gemm<F, float>("cublasGemmEx", {handle, left_operation, right_operation, rows, columns, inner,
                                           static_cast<const float*>(alpha), static_cast<const F*>(left), left_stride,
                                           static_cast<const F*>(right), right_stride, static_cast<const float*>(beta),
                                           static_cast<float*>(result), stride});
  });
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t left_operation,
                                          cublasOperation_t right_operation, int rows, int columns, int inner,
                                          const void* alpha, const void* left, cudaDataType_t left_type,
                                          int left_stride, long long left_step, const void* right,
                                          cudaDataType_t right_type, int right_stride, long long right_step,
                                          const void* beta, void* result, cudaDataType_t result_type, int stride,
                                          long long step, int count, cublasComputeType_t compute,
                                          cublasGemmAlgo_t /*algorithm*/) {
  static CallSite call_site(__func__);
  if (const int failed = call_site.begin_call(); failed != 0) return failed;
  return with_factors({left_type, right_type, result_type, compute}, [&](auto type) {
    using F = decltype(type);
    return gemm_batch<F, float>(
        "cublasGemmStridedBatchedEx",
        {handle, left_operation, right_operation, rows, columns, inner, static_cast<const float*>(alpha),
         static_cast<const F*>(left), left_stride, static_cast<const F*>(right), right_stride,
         static_cast<const float*>(beta), static_cast<float*>(result), stride},
        {left_step, right_step, step, count});
  });
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming,bugprone-macro-parentheses)

}  // namespace farandole::fake
