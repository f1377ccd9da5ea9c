// SPDX-License-Identifier: Apache-2.0
// The op FarandoleProgress: exchanges each rank's next action. strategy/_progress.py describes purpose and message.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "call.h"
#include "farandole/engine.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"

namespace farandole_tensorflow {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;

// Inputs of the op: three variables, then the values that this rank reports.
enum Input { kPlaceVariable, kShareVariable, kBatchesVariable, kFirstReported };
// Columns of a rank's row: three inputs of the op, then the rank's place in the program, which the place variable
// holds.
enum Column { kKind, kDigest, kSamples, kCall, kStop, kEpoch, kBatch, kColumns };
// Elements of the place variable: the place, then 1 if at the last exchange some rank wanted to stop, otherwise 0.
constexpr int kPlaceBegin = kCall;
constexpr int kStopAgreed = kColumns - kPlaceBegin;
constexpr int kPlaceLength = kStopAgreed + 1;
constexpr int64_t kBatchKind = 1;    // BATCH of strategy/_progress.py
constexpr int64_t kKeptBatches = 4;  // KEPT_BATCHES of strategy/_progress.py

/// Calls `visitor` with the value of the variable that is input `index`, after checking type and number of elements.
template <class Visitor>
absl::Status visit(OpKernelContext* context, int index, tensorflow::DataType type, int64_t elements, Visitor visitor) {
  tensorflow::core::RefCountPtr<tensorflow::Var> variable;
  TF_RETURN_IF_ERROR(tensorflow::LookupResource(context, tensorflow::HandleFromInput(context, index), &variable));
  const tensorflow::mutex_lock lock(*variable->mu());
  Tensor* const value = variable->tensor();
  if (!variable->is_initialized || value->dtype() != type || value->NumElements() != elements) {
    return error_status(FARANDOLE_INVALID_ARGUMENT, "FarandoleProgress takes the variables of strategy/_progress.py");
  }
  return visitor(*value);
}

/// Calls `write` with a copy of the variable's value, then replaces the value by the copy. Tensors that were read from
/// the variable may share the memory of the old value, so `write` must not change it.
template <class Write>
absl::Status update(OpKernelContext* context, int index, tensorflow::DataType type, int64_t elements, Write write) {
  return visit(context, index, type, elements, [&](Tensor& value) -> absl::Status {
    Tensor next;
    TF_RETURN_IF_ERROR(context->allocate_temp(type, value.shape(), &next));
    std::memcpy(const_cast<char*>(next.tensor_data().data()), value.tensor_data().data(), value.TotalBytes());
    write(next);
    value = next;
    return absl::OkStatus();
  });
}

/// Does the exchange in a single op instead of about thirty, because with a small model the number of ops determines
/// the duration of a training step.
class ProgressKernel : public tensorflow::AsyncOpKernel {
 public:
  explicit ProgressKernel(tensorflow::OpKernelConstruction* context) : AsyncOpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("caller_waits", &options_.caller_waits));
    options_.name = "farandole.strategy.progress";
    options_.collective = FARANDOLE_ALLREDUCE;
    options_.op = FARANDOLE_SUM;
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    const farandole_place place = current_place();
    Tensor* rows = nullptr;
    OP_REQUIRES_OK_ASYNC(context, context->allocate_output(0, {place.size, kColumns}, &rows), done);
    OP_REQUIRES_OK_ASYNC(context, write_own_row(context, place.rank, *rows), done);
    const auto on_done = [context, rows, rank = place.rank, done = std::move(done)] {
      if (context->status().ok()) context->SetStatus(conclude(context, *rows, rank));
      done();
    };
    const auto call = std::make_shared<Call>(context, on_done, options_, 1);
    call->add(*rows, *rows);
    call->submit();
  }

 private:
  /// Writes this rank's row, and zeros to all other rows, so that the sum over the ranks contains every rank's row.
  static absl::Status write_own_row(OpKernelContext* context, int rank, Tensor& rows) {
    auto matrix = rows.matrix<int64_t>();
    matrix.setZero();
    for (int i = 0; i < kPlaceBegin; ++i) matrix(rank, i) = context->input(kFirstReported + i).scalar<int64_t>()();
    return visit(context, kPlaceVariable, tensorflow::DT_INT64, kPlaceLength, [&](Tensor& place) {
      for (int i = kPlaceBegin; i < kColumns; ++i) matrix(rank, i) = place.flat<int64_t>()(i - kPlaceBegin);
      return absl::OkStatus();
    });
  }

  /// Compares all rows, and updates the variables.
  static absl::Status conclude(OpKernelContext* context, const Tensor& rows, int rank) {
    const auto matrix = rows.matrix<int64_t>();
    bool is_same = true, stop = false;
    int64_t samples = 0;
    for (int64_t i = 0; i < rows.dim_size(0); ++i) {
      for (const int column : {kKind, kDigest, kCall}) is_same = is_same && matrix(i, column) == matrix(0, column);
      stop = stop || matrix(i, kStop) != 0;
      samples += matrix(i, kSamples);
    }
    TF_RETURN_IF_ERROR(update(context, kPlaceVariable, tensorflow::DT_INT64, kPlaceLength, [&](Tensor& next) {
      next.flat<int64_t>()(kStopAgreed) = stop ? 1 : 0;
      if (matrix(rank, kKind) == kBatchKind) ++next.flat<int64_t>()(kBatch - kPlaceBegin);
    }));
    Tensor* result = nullptr;
    TF_RETURN_IF_ERROR(context->allocate_output(1, {}, &result));
    result->scalar<bool>()() = is_same;
    // Actions other than batches leave the share of the last batch unchanged.
    return matrix(rank, kKind) == kBatchKind ? keep_batch(context, rows, rank, samples) : absl::OkStatus();
  }

  /// Stores this rank's share of the samples, and adds the batch to the history. @param samples  sum over all ranks
  static absl::Status keep_batch(OpKernelContext* context, const Tensor& rows, int rank, int64_t samples) {
    const auto matrix = rows.matrix<int64_t>();
    TF_RETURN_IF_ERROR(update(context, kShareVariable, tensorflow::DT_DOUBLE, 1, [&](Tensor& next) {
      next.flat<double>()(0) =
          static_cast<double>(matrix(rank, kSamples)) / static_cast<double>(std::max<int64_t>(samples, 1));
    }));
    // A row per batch, the newest first; a column per rank.
    const int64_t size = rows.dim_size(0), length = kKeptBatches * size;
    return update(context, kBatchesVariable, tensorflow::DT_INT64, length, [&](Tensor& next) {
      auto kept = next.flat<int64_t>();
      for (int64_t i = length - 1; i >= size; --i) kept(i) = kept(i - size);
      for (int64_t i = 0; i < size; ++i) kept(i) = matrix(i, kSamples);
    });
  }

  CallOptions options_;
};

REGISTER_KERNEL_BUILDER(Name("FarandoleProgress").Device(tensorflow::DEVICE_CPU), ProgressKernel);

}  // namespace
}  // namespace farandole_tensorflow
