// SPDX-License-Identifier: Apache-2.0
// Requests of the engine on tensors in the memory of this rank's device, through the C header.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "farandole/core/buffer.h"
#include "farandole/engine.h"
#include "farandole/sdk/device.h"

namespace farandole::test {

/// A structure of the C header, all zeros but for its size.
template <class Struct>
Struct sized() {
  Struct made{};
  made.struct_bytes = sizeof made;
  return made;
}

/// This rank's place in the job, and its device.
struct EngineRank {
  int rank = 0, size = 1;
  Device* device = nullptr;
  StreamView stream;  ///< in which the program of this rank works
};
/// Set by the environment of the tests. A stream of its own does not wait for the default stream.
const EngineRank& engine_rank();

/// Joins the job for all tests, and leaves it afterwards. If a test has failed on this rank, ends the job.
class EngineEnvironment final : public testing::Environment {
 public:
  void SetUp() override;
  void TearDown() override;
};

/// One tensor of a request: its values come by a copy on the device that is enqueued in the rank's stream just before
/// the request is submitted, and go back by a copy that is enqueued as soon as `done` was called. Nothing waits in
/// between, so that a missing wait of a stream makes wrong values.
class TensorOnDevice {
 public:
  /// @param input  in host memory, of `rows` rows of `width` elements
  TensorOnDevice(Buffer input, std::int64_t rows, std::int64_t width);
  ~TensorOnDevice();
  TensorOnDevice(const TensorOnDevice&) = delete;
  TensorOnDevice& operator=(const TensorOnDevice&) = delete;

  /// In place: the output is the input.
  bool in_place = false;
  /// In host memory instead.
  bool on_host = false;
  /// The tensor's stream.
  StreamView stream = engine_rank().stream;
  /// If valid: the program works in this stream instead, passes an event of its own, and waits for completion_event.
  StreamView own_stream;
  std::vector<std::int64_t> splits;
  /// Called before the work that writes the input is enqueued.
  std::function<void()> before_input;

  /// The structure of the C header; enqueues the copy of the input.
  farandole_tensor describe(farandole_collective collective);
  void wait();
  bool is_done() const { return __atomic_load_n(&done_, __ATOMIC_ACQUIRE) != 0; }
  /// The error, if there was one, after `wait`.
  const std::optional<std::pair<farandole_error_kind, std::string>>& error() const { return error_; }
  /// Waits, and copies the output to the host. @throws std::runtime_error  the request has failed
  Buffer result();
  const std::vector<std::int64_t>& received_splits() const { return received_splits_; }

 private:
  static void* on_allocate(void* context, const std::int64_t* shape, std::int32_t dimensions);
  static void on_done(void* context, const farandole_result* result);
  void* allocate(std::size_t bytes);
  void copy(void* to, const void* from, std::size_t bytes, StreamView in);

  Buffer input_, came_;
  const std::vector<std::int64_t> shape_;
  void *device_input_ = nullptr, *device_output_ = nullptr;
  std::vector<void*> memory_;
  std::unique_ptr<DeviceEvent> written_;  // in own_stream
  std::vector<std::int64_t> received_splits_;
  std::optional<std::pair<farandole_error_kind, std::string>> error_;
  volatile std::int32_t done_ = 0;
};

/// What a request says beside its tensors.
struct DeviceRequest {
  std::string name;
  farandole_collective collective = FARANDOLE_ALLREDUCE;
  farandole_reduce_op op = FARANDOLE_SUM;
  int root = 0, process_set = FARANDOLE_GLOBAL_SET;
  double prescale = 1.0, postscale = 1.0;
};
using DeviceTensors = std::vector<std::unique_ptr<TensorOnDevice>>;

/// Submits the request. @returns  the error's text; empty if there was none
std::string submit(const DeviceRequest& request, DeviceTensors& tensors);
/// Submits, and expects success.
void must_submit(const DeviceRequest& request, DeviceTensors& tensors);
/// A tensor of this rank's values (tests/conformance/values.h), one element a row.
std::unique_ptr<TensorOnDevice> tensor_of(std::size_t count, DType dtype, ReduceOp op = ReduceOp::kSum);
/// Waits until all ranks are here.
void barrier();
/// Joins, and waits until all ranks have.
void join();
farandole_counters counters();
/// Makes a process set; -1, with a failure of the test, after an error. Collective.
std::int32_t add_set(const std::vector<std::int32_t>& ranks);
void remove_set(std::int32_t set);

}  // namespace farandole::test
