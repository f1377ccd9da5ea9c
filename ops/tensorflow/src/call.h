// SPDX-License-Identifier: Apache-2.0
// One execution of a collective op: passes its tensors to the engine, and the result to TensorFlow.
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

/// Key of the payload of Farandole's errors. The payload is the kind's name, a line feed, and the text.
inline constexpr char kErrorPayload[] = "type.farandole/error";

/// Prefix of the messages of Farandole's errors; the kind's name, a colon and the text follow. TensorFlow and Keras
/// keep the message when they turn an error into another exception, but may lose the payload.
inline constexpr char kErrorPrefix[] = "farandole.errors.";

/// Makes a status with payload and message. The code is the one that programs written for Horovod expect:
/// FAILED_PRECONDITION if the ranks disagree, INVALID_ARGUMENT for a call that cannot work on this rank, UNIMPLEMENTED
/// for UNSUPPORTED, otherwise ABORTED. The last form sets another code.
absl::Status error_status(farandole_error_kind kind, const std::string& text);
absl::Status error_status(const farandole_error* error);
absl::Status error_status(const farandole_error* error, absl::StatusCode code);

/// This process's place in the job; -1 in all fields if there is no job.
farandole_place current_place();

/// Translates a TensorFlow type to the engine's type. If the engine does not have the type, fails with InvalidArgument,
/// which lists the valid types.
absl::Status engine_dtype(tensorflow::DataType type, farandole_dtype* result);

/// Number of collective ops that have been submitted and have not finished.
int32_t pending_calls();

/// The part of a request that all tensors of a call share.
struct CallOptions {
  std::string name;
  farandole_collective collective = FARANDOLE_ALLREDUCE;
  farandole_reduce_op op = FARANDOLE_SUM;
  int32_t root = 0;
  int32_t process_set = FARANDOLE_GLOBAL_SET;
  double prescale = 1.0;
  double postscale = 1.0;
  bool caller_waits = false;
  bool is_on_gpu = false;  ///< the op runs on a GPU, in whose memory the tensors lie
  std::string about;       ///< further property that the ranks must agree on
  absl::Status outcome;    ///< if not OK: replaces the engine's result as the status of the op
};

/// Reports to the engine that this rank cannot make a call, for the reason in `status`, so that the other ranks' calls
/// fail instead of waiting for this rank.
void refuse(const CallOptions& options, int64_t step_id, const absl::Status& status);

/// One execution of a collective op. A kernel makes a Call in a shared_ptr, adds the tensors, and submits; the Call
/// then keeps itself alive until the op is done.
///
/// Memory. TensorFlow's `done` is called only after the engine's last callback. Until then the OpKernelContext and all
/// inputs and outputs stay alive, even if TensorFlow cancels the op.
///
/// GPUs. The engine calls back when the collective is enqueued. The stream in which TensorFlow computes then waits for
/// the result; no thread waits. After `done`, TensorFlow may give the memory of an input to another op; that op's work
/// is enqueued in the same stream, after the wait.
///
/// Cancellation. TensorFlow cancels the pending ops of a step when an op of the step has failed, and when the caller
/// requests it. A collective that has not been submitted does not start. A submitted collective runs to its end all the
/// same, because the other ranks need this rank's part. It ends in one of these ways:
/// - Another op of the step has failed on this rank only, or this rank's data has ended: the other ranks do not know
///   this and submit their collectives, so this call completes. If this rank then gives up, its uncaught exception
///   aborts the job, which ends the waiting calls of the other ranks.
/// - The ranks disagree about a collective: the error reaches all ranks, so the step fails on all of them, and some may
///   never reach this call. The engine ends this call together with the step, because all calls of a function carry the
///   generation in which their step began (farandole_generation). The generation also prevents this call from being
///   matched with a call of a later step.
/// - The ranks disagree in another process set: the engine does not end this call, because the failure belongs to the
///   other set. If all ranks have submitted this call, the call completes. If a rank does not submit it within ten
///   seconds, this rank aborts the job with a text that explains why, because an abort is better than a hang.
/// - Ctrl-C: Python's watcher (_interrupt.py) calls farandole_abort, and every pending call ends immediately.
///
/// Threads. Used by one thread until `submit`, then by the engine's callbacks. `mutex_` guards data that several
/// callbacks write.
class Call : public std::enable_shared_from_this<Call> {
 public:
  /// @param tensor_count  maximum number of `add…` calls that follow
  Call(tensorflow::OpKernelContext* context, tensorflow::AsyncOpKernel::DoneCallback done, CallOptions options,
       int tensor_count);

  /// Adds a tensor whose result has the same shape. @param output  has the shape of `input`, and may be `input`
  void add(const tensorflow::Tensor& input, const tensorflow::Tensor& output);
  /// Adds a tensor whose result is output `output_index` of the op. Its memory is allocated once the ranks have
  /// exchanged the numbers of rows.
  /// @param splits  alltoall: rows for each rank; empty for equal parts. Must live until `submit` has returned
  /// @param splits_output  alltoall: index of the output for the number of rows from each rank; otherwise -1
  void add_with_deferred_output(const tensorflow::Tensor& input, int output_index,
                                const std::vector<int64_t>* splits = nullptr, int splits_output = -1);
  /// Adds the tensor of a barrier, without data.
  void add_nothing();
  /// Sets an action that runs after success, before TensorFlow's `done`. The action is destroyed when the call has
  /// ended, so it can own memory that the context does not own, such as a variable's.
  void on_success(std::function<void()> action) { on_success_ = std::move(action); }

  /// Submits the call to the engine. Blocks until the call has ended if `caller_waits`. The op's `done` is called
  /// exactly once, by this function or later by a callback.
  void submit();
  /// Submits a join, in the same way. The result, the rank that joined last, is output 0, a scalar.
  void submit_join();

 private:
  /// A tensor of the call. The engine's callbacks get a pointer to it as their `context`.
  struct TensorRecord {
    Call* call = nullptr;
    farandole_dtype dtype = FARANDOLE_U8;
    farandole_memory memory = FARANDOLE_HOST_MEMORY;
    std::vector<int64_t> shape;
    const void* input = nullptr;
    void* output = nullptr;
    const std::vector<int64_t>* splits = nullptr;
    int output_index = -1;
    int splits_output = -1;
  };

  TensorRecord& add_record(const tensorflow::Tensor& input);
  std::vector<farandole_tensor> engine_tensors() const;
  /// Returns the address of a result that TensorFlow has just allocated; requests huge pages for a large one.
  void* result_memory_of(const tensorflow::Tensor& output) const;
  /// Prepares the submission. If the call was cancelled or is invalid, runs `finish` and returns false.
  bool begin();
  /// Handles the result of farandole_submit or farandole_join.
  void submitted(int failed, farandole_error* error);
  void* allocate(const TensorRecord& record, const int64_t* shape, int32_t dimensions);
  absl::Status write_received_splits(const TensorRecord& record, const farandole_result& result);
  /// Records an error; the first error counts.
  void set_error(const absl::Status& status, bool failed_on_all);
  /// Called at the end of each callback. In the last callback, finishes the call, or wakes the waiting thread.
  void finish_one();
  /// Called by TensorFlow's cancellation manager, on any thread; the class comment lists the cases.
  void cancelled();
  /// Reports to TensorFlow, and releases this object.
  void finish();

  static void* allocate_callback(void* record, const int64_t* shape, int32_t dimensions);
  static void done_callback(void* record, const farandole_result* result);
  static void joined_callback(void* call, const farandole_error* error, int32_t last_rank);

  tensorflow::OpKernelContext* const context_;
  const CallOptions options_;
  const int64_t step_id_;
  std::vector<TensorRecord> records_;
  std::function<void()> on_success_;
  tensorflow::AsyncOpKernel::DoneCallback done_;
  // Keeps this object alive from `submit` to `finish`, because the engine holds plain pointers.
  std::shared_ptr<Call> self_;
  tensorflow::CancellationToken token_ = tensorflow::CancellationManager::kInvalidToken;
  // Number of callbacks that are still to come. Acquire-release, so that the last callback sees the writes of all
  // others.
  std::atomic<int32_t> remaining_{0};
  // Flag for farandole_wait_until. The waiting thread calls `finish` once the flag is set.
  volatile int32_t all_done_ = 0;
  std::mutex mutex_;            // guards the following members, and the context's outputs
  absl::Status status_;         // the first error
  bool failed_on_all_ = false;  // the engine has reported the error, so the other ranks get an error, too
};

}  // namespace farandole_tensorflow

#endif  // FARANDOLE_TENSORFLOW_CALL_H
