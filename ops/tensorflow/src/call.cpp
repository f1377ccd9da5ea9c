// SPDX-License-Identifier: Apache-2.0
#include "call.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/platform/env.h"
#include "tensorflow/core/platform/errors.h"

#include "block_pool.h"
#include "device_stream.h"

namespace farandole_tensorflow {
namespace {

using tensorflow::CancellationManager;
using tensorflow::Tensor;
using tensorflow::TensorShape;

constexpr int64_t kCancelledCallEndsAfterMicros = 10'000'000;

std::atomic<int32_t> pending_count{0};

/// Address of a tensor; null if it has no elements.
void* memory_of(const Tensor& tensor) {
  return tensor.NumElements() == 0 ? nullptr : const_cast<char*>(tensor.tensor_data().data());
}

// malloc maps a new result of this size separately, and the result contains at least one aligned huge page.
constexpr std::size_t kHugePagesBytes = 4 << 20;
constexpr std::size_t kHugePageBytes = 2 << 20;

/// Requests huge pages for a large result in host memory outside the BlockPool (best effort): such memory is newly
/// mapped each time, and page faults of 4 KiB can take several times as long as the reduction.
void request_huge_pages(void* memory, std::size_t bytes) {
  if (bytes < kHugePagesBytes || BlockPool::instance().size_of(memory) != 0) return;
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  const std::size_t skipped = -begin % kHugePageBytes;
  (void)madvise(static_cast<char*>(memory) + skipped, (bytes - skipped) / kHugePageBytes * kHugePageBytes,
                MADV_HUGEPAGE);
}

/// The latest steps that have made calls, with one entry for each process set that a step uses. A function that
/// TensorFlow does not inline is a step of its own. Thread-safe.
class Steps {
 public:
  static Steps& instance() {
    static auto* const steps = new Steps;  // never destroyed: callbacks may come at exit
    return *steps;
  }
  /// Returns the set's generation at the time when the step made its first call in the set.
  uint64_t generation(int64_t step_id, int32_t process_set) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return of(step_id, process_set).generation;
  }
  /// Notes that a collective of the step has failed on all ranks. TensorFlow cancels the step's other calls soon
  /// afterwards; they then query `has_failed`.
  void add_failure(int64_t step_id, int32_t process_set) {
    const std::lock_guard<std::mutex> lock(mutex_);
    of(step_id, process_set).has_failed = true;
  }
  bool has_failed(int64_t step_id) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::any_of(latest_.begin(), latest_.begin() + count(),
                       [&](const Step& step) { return step.step_id == step_id && step.has_failed; });
  }

 private:
  struct Step {
    int64_t step_id = 0;
    int32_t process_set = 0;
    uint64_t generation = 0;
    bool has_failed = false;
  };

  std::size_t count() const { return std::min(next_, latest_.size()); }
  Step& of(int64_t step_id, int32_t process_set) {
    Step* const end = latest_.data() + count();
    Step* const known = std::find_if(latest_.data(), end, [&](const Step& step) {
      return step.step_id == step_id && step.process_set == process_set;
    });
    if (known != end) return *known;
    Step& step = latest_[next_++ % latest_.size()];
    step = {step_id, process_set, farandole_generation(process_set), false};
    return step;
  }

  std::mutex mutex_;
  std::array<Step, 64> latest_;
  std::size_t next_ = 0;
};

absl::StatusCode code_of(farandole_error_kind kind) {
  switch (kind) {
    case FARANDOLE_MISMATCH:
      return absl::StatusCode::kFailedPrecondition;
    case FARANDOLE_INVALID_ARGUMENT:
    case FARANDOLE_DUPLICATE_NAME:
      return absl::StatusCode::kInvalidArgument;
    case FARANDOLE_UNSUPPORTED:
      return absl::StatusCode::kUnimplemented;
    default:
      return absl::StatusCode::kAborted;
  }
}

absl::Status status_of(absl::StatusCode code, farandole_error_kind kind, const std::string& text) {
  const char* const name = farandole_error_kind_name(kind);
  absl::Status status(code, absl::StrCat(kErrorPrefix, name, ": ", text));
  const std::string payload = absl::StrCat(name, "\n", text);
  status.SetPayload(kErrorPayload, absl::Cord(absl::string_view(payload)));  // TensorFlow exports no other constructor
  return status;
}

}  // namespace

absl::Status error_status(farandole_error_kind kind, const std::string& text) {
  return status_of(code_of(kind), kind, text);
}

bool ends_the_job(farandole_error_kind kind) {
  return kind == FARANDOLE_TIMEOUT || kind == FARANDOLE_PEER_LOST || kind == FARANDOLE_TRANSPORT_ERROR ||
         kind == FARANDOLE_DEVICE_ERROR || kind == FARANDOLE_INTERNAL;
}

absl::Status error_status(const farandole_error* error) {
  return error_status(farandole_error_get_kind(error), farandole_error_text(error));
}

absl::Status error_status(const farandole_error* error, absl::StatusCode code) {
  return status_of(code, farandole_error_get_kind(error), farandole_error_text(error));
}

absl::Status engine_dtype(tensorflow::DataType type, farandole_dtype* result) {
  switch (type) {
    case tensorflow::DT_BOOL:
      *result = FARANDOLE_BOOL;
      break;
    case tensorflow::DT_UINT8:
      *result = FARANDOLE_U8;
      break;
    case tensorflow::DT_INT8:
      *result = FARANDOLE_I8;
      break;
    case tensorflow::DT_UINT16:
      *result = FARANDOLE_U16;
      break;
    case tensorflow::DT_INT16:
      *result = FARANDOLE_I16;
      break;
    case tensorflow::DT_INT32:
      *result = FARANDOLE_I32;
      break;
    case tensorflow::DT_UINT32:
      *result = FARANDOLE_U32;
      break;
    case tensorflow::DT_UINT64:
      *result = FARANDOLE_U64;
      break;
    case tensorflow::DT_INT64:
      *result = FARANDOLE_I64;
      break;
    case tensorflow::DT_HALF:
      *result = FARANDOLE_F16;
      break;
    case tensorflow::DT_BFLOAT16:
      *result = FARANDOLE_BF16;
      break;
    case tensorflow::DT_FLOAT:
      *result = FARANDOLE_F32;
      break;
    case tensorflow::DT_DOUBLE:
      *result = FARANDOLE_F64;
      break;
    default:
      return error_status(
          FARANDOLE_INVALID_ARGUMENT,
          absl::StrCat("tensors of type ", tensorflow::DataTypeString(type),
                       " cannot be sent; cast to one of bool, uint8, int8, uint16, int16, int32, uint32, int64, "
                       "uint64, half, bfloat16, float, double"));
  }
  return absl::OkStatus();
}

namespace {

/// Translates the options to a request without tensors. An eager call belongs to no step: no other call fails with it.
farandole_request request_of(const CallOptions& options, int64_t step_id) {
  farandole_request request{};
  request.struct_bytes = sizeof(request);
  request.name = options.name.c_str();
  request.collective = options.collective;
  request.op = options.op;
  request.root = options.root;
  request.process_set = options.process_set;
  request.prescale = options.prescale;
  request.postscale = options.postscale;
  request.has_factors = 1;
  // Not eager: the caller waits for the whole function, whose other ops may be submitted meanwhile.
  request.caller_waits = options.caller_waits ? FARANDOLE_CALLER_WAITS : FARANDOLE_PROGRAM_WAITS;
  request.about = options.about.c_str();
  if (!options.caller_waits) request.generation = Steps::instance().generation(step_id, options.process_set);
  return request;
}

}  // namespace

void refuse(const CallOptions& options, int64_t step_id, const absl::Status& status) {
  const farandole_request request = request_of(options, step_id);
  absl::string_view text = status.message();
  if (absl::ConsumePrefix(&text, kErrorPrefix)) text.remove_prefix(text.find(": ") + 2);
  farandole_refuse(&request, std::string(text).c_str());
}

farandole_place current_place() {
  farandole_place place{};
  place.struct_bytes = sizeof(place);
  farandole_get_place(&place);
  return place;
}

int32_t pending_calls() {
  return pending_count.load(std::memory_order_relaxed);
}

Call::Call(tensorflow::OpKernelContext* context, tensorflow::AsyncOpKernel::DoneCallback done, CallOptions options,
           int tensor_count)
    : context_(context), options_(std::move(options)), step_id_(context->step_id()), done_(std::move(done)) {
  records_.reserve(tensor_count);  // the engine holds pointers to the records
}

Call::TensorRecord& Call::add_record(const Tensor& input) {
  TensorRecord record;
  record.call = this;
  if (options_.is_on_gpu) record.memory = FARANDOLE_CUDA_MEMORY;
  const absl::Status status = engine_dtype(input.dtype(), &record.dtype);
  if (!status.ok()) set_error(status, /*failed_on_all=*/false);
  for (int i = 0; i < input.dims(); ++i) record.shape.push_back(input.dim_size(i));
  if (status.ok()) record.input = memory_of(input);
  records_.push_back(std::move(record));
  return records_.back();
}

void Call::add(const Tensor& input, const Tensor& output) {
  TensorRecord& record = add_record(input);
  if (record.input == nullptr) return;  // no elements, or a type that cannot be sent
  record.output = output.SharesBufferWith(input) ? memory_of(output) : result_memory_of(output);
}

void* Call::result_memory_of(const Tensor& output) const {
  void* const memory = memory_of(output);
  if (!options_.is_on_gpu) request_huge_pages(memory, output.TotalBytes());
  return memory;
}

void Call::add_with_deferred_output(const Tensor& input, int output_index, const std::vector<int64_t>* splits,
                                    int splits_output) {
  TensorRecord& record = add_record(input);
  record.output_index = output_index;
  record.splits = splits;
  record.splits_output = splits_output;
}

void Call::add_nothing() {
  TensorRecord record;
  record.call = this;
  records_.push_back(std::move(record));
}

std::vector<farandole_tensor> Call::engine_tensors() const {
  std::vector<farandole_tensor> tensors(records_.size());
  const DeviceStream device = options_.is_on_gpu ? device_stream_of(context_) : DeviceStream{};
  for (std::size_t i = 0; i < records_.size(); ++i) {
    const TensorRecord& record = records_[i];
    farandole_tensor& tensor = tensors[i];
    tensor.struct_bytes = sizeof(farandole_tensor);
    tensor.dtype = record.dtype;
    tensor.dimensions = static_cast<int32_t>(record.shape.size());
    tensor.shape = record.shape.data();
    tensor.input = record.input;
    tensor.output = record.output;
    if (record.splits != nullptr && !record.splits->empty()) {
      tensor.splits = record.splits->data();
      tensor.splits_count = static_cast<int32_t>(record.splits->size());
    }
    tensor.context = const_cast<TensorRecord*>(&record);
    tensor.allocate = record.output_index >= 0 ? &Call::allocate_callback : nullptr;
    tensor.done = &Call::done_callback;
    tensor.memory = record.memory;
    tensor.device = device.ordinal;
    tensor.stream = device.stream;
  }
  return tensors;
}

bool Call::begin() {
  self_ = shared_from_this();
  pending_count.fetch_add(1, std::memory_order_relaxed);
  CancellationManager* manager = context_->cancellation_manager();
  if (status_.ok() && manager != nullptr) {
    token_ = manager->get_cancellation_token();
    const bool registered = manager->RegisterCallback(token_, [call = shared_from_this()] { call->cancelled(); });
    if (!registered) {
      token_ = CancellationManager::kInvalidToken;
      set_error(absl::CancelledError("the step was cancelled before this collective began"), /*failed_on_all=*/false);
    }
  }
  if (status_.ok()) return true;
  finish();
  return false;
}

void Call::submit() {
  if (!begin()) return;
  remaining_.store(static_cast<int32_t>(records_.size()), std::memory_order_relaxed);
  const std::vector<farandole_tensor> tensors = engine_tensors();
  farandole_request request = request_of(options_, step_id_);
  request.tensors = tensors.data();
  request.tensor_count = static_cast<int32_t>(tensors.size());
  const std::shared_ptr<Call> held = self_;  // the last callback may come before farandole_submit returns
  farandole_error* error = nullptr;
  const int failed = farandole_submit(&request, &error);
  submitted(failed, error);
}

void Call::submit_join() {
  if (!begin()) return;
  remaining_.store(1, std::memory_order_relaxed);
  const std::shared_ptr<Call> held = self_;
  farandole_error* error = nullptr;
  const int failed = farandole_join(options_.process_set, this, &Call::joined_callback, &error);
  submitted(failed, error);
}

void Call::submitted(int failed, farandole_error* error) {
  if (failed != 0) {
    const bool is_early = farandole_is_initialized() == 0;  // no fault of the call
    set_error(is_early ? error_status(error, absl::StatusCode::kFailedPrecondition) : error_status(error),
              /*failed_on_all=*/false);
    farandole_error_free(error);
    finish();
  } else if (options_.caller_waits) {
    // The op runs eagerly, so this thread would only sleep. It drives the engine instead, which saves waking a thread.
    while (__atomic_load_n(&all_done_, __ATOMIC_ACQUIRE) == 0) farandole_wait_until(&all_done_);
    finish();
  }
}

void Call::set_error(const absl::Status& status, bool failed_on_all) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!status_.ok()) return;
  status_ = status;
  failed_on_all_ = failed_on_all;
}

void Call::finish_one() {
  if (remaining_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  if (options_.caller_waits) {
    // The waiting thread may destroy this object as soon as it sees the flag: do not use the object afterwards.
    __atomic_store_n(&all_done_, 1, __ATOMIC_RELEASE);
  } else {
    finish();
  }
}

void* Call::allocate_callback(void* record_pointer, const int64_t* shape, int32_t dimensions) {
  const TensorRecord& record = *static_cast<TensorRecord*>(record_pointer);
  return record.call->allocate(record, shape, dimensions);
}

void* Call::allocate(const TensorRecord& record, const int64_t* shape, int32_t dimensions) {
  TensorShape output_shape;
  absl::Status status = TensorShape::BuildTensorShape(absl::MakeConstSpan(shape, dimensions), &output_shape);
  Tensor* output = nullptr;
  if (status.ok()) {
    const std::lock_guard<std::mutex> lock(mutex_);  // other threads may allocate other tensors of the call
    status = context_->allocate_output(record.output_index, output_shape, &output);
  }
  if (status.ok()) return result_memory_of(*output);
  set_error(status, /*failed_on_all=*/false);
  return nullptr;
}

void Call::done_callback(void* record_pointer, const farandole_result* result) {
  const TensorRecord& record = *static_cast<TensorRecord*>(record_pointer);
  Call* const call = record.call;
  if (result->error != nullptr) {
    if (ends_the_job(farandole_error_get_kind(result->error))) BlockPool::instance().quarantine_windows_in_use();
    call->set_error(error_status(result->error), /*failed_on_all=*/true);
  } else if (record.splits_output >= 0) {
    const absl::Status status = call->write_received_splits(record, *result);
    if (!status.ok()) call->set_error(status, /*failed_on_all=*/false);
  }
  call->finish_one();
}

absl::Status Call::write_received_splits(const TensorRecord& record, const farandole_result& result) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Tensor* output = nullptr;
  const absl::Status status =
      context_->allocate_output(record.splits_output, TensorShape({result.received_splits_count}), &output);
  if (!status.ok()) return status;
  const int64_t* const first = result.received_splits;
  if (output->dtype() == tensorflow::DT_INT32) {
    std::copy_n(first, result.received_splits_count, output->flat<int32_t>().data());
  } else {
    std::copy_n(first, result.received_splits_count, output->flat<int64_t>().data());
  }
  return absl::OkStatus();
}

void Call::joined_callback(void* call_pointer, const farandole_error* error, int32_t last_rank) {
  Call* const call = static_cast<Call*>(call_pointer);
  Tensor* output = nullptr;
  const absl::Status status = error != nullptr ? error_status(error) : call->context_->allocate_output(0, {}, &output);
  if (status.ok()) {
    output->scalar<int32_t>()() = last_rank;
  } else {
    call->set_error(status, error != nullptr);
  }
  call->finish_one();
}

void Call::cancelled() {
  if (!Steps::instance().has_failed(step_id_)) return;
  const std::weak_ptr<Call> pending = shared_from_this();
  std::string text = absl::StrCat(
      "a collective of a step failed, and '", options_.name, "' of the same step still waits for ranks of process set ",
      options_.process_set, ", whose steps may have failed before they came to it. Use one process set in a step");
  tensorflow::Env::Default()->SchedClosureAfter(kCancelledCallEndsAfterMicros, [pending, text = std::move(text)] {
    if (!pending.expired()) farandole_abort(text.c_str());
  });
}

void Call::finish() {
  const std::shared_ptr<Call> held = std::move(self_);
  // Not DeregisterCallback, which waits until the callback has ended: this function may run in the callback.
  if (token_ != CancellationManager::kInvalidToken) context_->cancellation_manager()->TryDeregisterCallback(token_);
  if (!options_.outcome.ok()) status_ = options_.outcome;
  if (status_.ok()) {
    if (on_success_) on_success_();
  } else {
    // Must precede SetStatus, which makes TensorFlow cancel the step's other calls: these call `has_failed`.
    if (failed_on_all_) Steps::instance().add_failure(step_id_, options_.process_set);
    context_->SetStatus(status_);
  }
  on_success_ = nullptr;
  pending_count.fetch_sub(1, std::memory_order_relaxed);
  const auto done = std::move(done_);
  done();
}

}  // namespace farandole_tensorflow
