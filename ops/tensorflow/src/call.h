// SPDX-License-Identifier: Apache-2.0
// One execution of a collective op: what the engine and TensorFlow need to know of each other until it ends.
#ifndef FARANDOLE_TENSORFLOW_CALL_H
#define FARANDOLE_TENSORFLOW_CALL_H

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "farandole/engine.h"
#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"

namespace farandole_tensorflow {

/// Key of the payload that our errors carry: the kind's name, a line feed, and the text.
inline constexpr char kErrorPayload[] = "type.farandole/error";

/// What stands before the kind's name, a colon and the text in the message. Where TensorFlow or Keras makes another
/// exception of an error it keeps the message, but not always the payload.
inline constexpr char kErrorPrefix[] = "farandole.errors.";

/// The error with its payload, and with the code that programs written for Horovod expect: FAILED_PRECONDITION where
/// the ranks disagree, INVALID_ARGUMENT for what can not work on this rank, UNIMPLEMENTED, else ABORTED.
absl::Status error_status(farandole_error_kind kind, const std::string& text);
absl::Status error_status(const farandole_error* error);
absl::Status error_status(const farandole_error* error, absl::StatusCode code);

/// Where this process is.
farandole_place current_place();

/// The engine's type for a TensorFlow type. InvalidArgument, with the types that there are, for others.
absl::Status engine_dtype(tensorflow::DataType type, farandole_dtype* result);

/// Number of calls that the engine has not finished.
int32_t pending_calls();

/// What is the same for all tensors of a call.
struct CallOptions {
  std::string name;
  farandole_collective collective = FARANDOLE_ALLREDUCE;
  farandole_reduce_op op = FARANDOLE_SUM;
  int32_t root = 0;
  int32_t process_set = FARANDOLE_GLOBAL_SET;
  double prescale = 1.0;
  double postscale = 1.0;
  bool caller_waits = false;
  std::string about;     ///< what else the ranks must agree on
  absl::Status outcome;  ///< if it is an error: what the op fails with, whatever the engine says
};

/// In the place of a call that this rank can not make, for the reason in `status`: the ranks that make it fail too.
void refuse(const CallOptions& options, int64_t step_id, const absl::Status& status);

/// Memory: the op is done, for TensorFlow, only after the engine's last callback. Until then the OpKernelContext, and
/// with it every input and output, stays alive, whatever is cancelled.
///
/// Cancellation. TensorFlow cancels the pending ops of a step when one op of it has failed, and when the caller asks.
/// What has been submitted runs to its end all the same, because the other ranks count on it; what has not been
/// submitted does not start. What ends the wait:
/// - Another op of the step has failed, or the data is at its end: the other ranks know nothing of it and submit what
///   they owe. If this rank then gives up, its uncaught exception aborts the job and so ends the waiting ranks' calls.
/// - The ranks disagree about a collective of ours: all were told the same, so the step fails on all of them, and some
///   may never come to this call. The engine ends it at once: calls of a function carry the generation in which their
///   step began (farandole_generation), and all of them fail together. So this call can not meet what a later step
///   submits either.
/// - The same in another process set: the engine knows nothing of it in this one. Ranks that had submitted this call
///   finish it with us; if the remaining ranks do not submit it within ten seconds, the job is aborted with a text that
///   says so, because a hang would say nothing.
/// - Ctrl-C: Python's watcher (_interrupt.py) calls farandole_abort, and every pending call ends at once.
///
/// Made by one thread, and then used by the engine's callbacks; `mutex_` guards what several of them write.
class Call : public std::enable_shared_from_this<Call> {
 public:
  /// @param tensor_count  number of `add…` calls that follow
  Call(tensorflow::OpKernelContext* context, tensorflow::AsyncOpKernel::DoneCallback done, CallOptions options,
       int tensor_count);

  /// A tensor whose result has its shape. `output` is memory of that size, and may be `input`.
  void add(const tensorflow::Tensor& input, const tensorflow::Tensor& output);
  /// A tensor whose result is output `output_index` of the op, in memory that is allocated when its shape is known.
  /// @param splits  alltoall: rows for each rank; empty for equal parts. Must live until `submit` has returned
  /// @param splits_output  alltoall: index of the output for the rows that came from each rank; else -1
  void add_with_deferred_output(const tensorflow::Tensor& input, int output_index,
                                const std::vector<int64_t>* splits = nullptr, int splits_output = -1);
  /// A barrier's tensor.
  void add_nothing();
  /// Runs after success, before TensorFlow hears of it; is destroyed when the engine has ended the call. Holds what no
  /// context holds: a variable's memory.
  void on_success(std::function<void()> action) { on_success_ = std::move(action); }

  /// Hands the call to the engine. The op's `done` is called exactly once, here or later.
  void submit();
  /// The same for a join; its result is output 0, a scalar.
  void submit_join();

 private:
  struct Slot {
    Call* call = nullptr;
    farandole_dtype dtype = FARANDOLE_U8;
    std::vector<int64_t> shape;
    const void* input = nullptr;
    void* output = nullptr;
    const std::vector<int64_t>* splits = nullptr;
    int output_index = -1;
    int splits_output = -1;
  };

  Slot& add_slot(const tensorflow::Tensor& input);
  std::vector<farandole_tensor> engine_tensors() const;
  bool begin();
  void submitted(int failed, farandole_error* error);
  void* allocate(const Slot& slot, const int64_t* shape, int32_t dimensions);
  absl::Status write_received_splits(const Slot& slot, const farandole_result& result);
  void note(const absl::Status& status, bool told_to_all);
  void one_done();
  void cancelled();
  void finish();

  static void* allocate_callback(void* slot, const int64_t* shape, int32_t dimensions);
  static void done_callback(void* slot, const farandole_result* result);
  static void joined_callback(void* call, const farandole_error* error, int32_t last_rank);

  tensorflow::OpKernelContext* const context_;
  const CallOptions options_;
  const int64_t step_id_;
  std::vector<Slot> slots_;
  std::function<void()> on_success_;
  tensorflow::AsyncOpKernel::DoneCallback done_;
  std::shared_ptr<Call> self_;  // from `submit` to `finish`: the engine holds plain pointers
  tensorflow::CancellationToken token_ = tensorflow::CancellationManager::kInvalidToken;
  std::atomic<int32_t> remaining_{0};  // callbacks to come; the last one sees what the earlier ones wrote
  volatile int32_t all_done_ = 0;      // for farandole_wait_until; written last, read by the waiting thread
  std::mutex mutex_;                   // guards what follows, and the context's outputs
  absl::Status status_;                // the first error
  bool is_told_to_all_ = false;        // the error came to the other ranks too
};

}  // namespace farandole_tensorflow

#endif  // FARANDOLE_TENSORFLOW_CALL_H
