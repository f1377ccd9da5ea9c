// SPDX-License-Identifier: Apache-2.0
#include "device_client.h"

#include <cstdlib>
#include <cstring>
#include <numeric>
#include <stdexcept>

#include "farandole/core/settings.h"
#include "values.h"

namespace farandole::test {
namespace {

EngineRank& mutable_rank() {
  static EngineRank rank;
  return rank;
}

bool has_new_shape(farandole_collective collective) {
  return collective != FARANDOLE_ALLREDUCE && collective != FARANDOLE_BROADCAST;
}

}  // namespace

const EngineRank& engine_rank() {
  return mutable_rank();
}

void EngineEnvironment::SetUp() {
  farandole_error* error = nullptr;
  if (farandole_init(nullptr, &error) != 0) throw std::runtime_error(farandole_error_text(error));
  auto place = sized<farandole_place>();
  farandole_get_place(&place);
  EngineRank& rank = mutable_rank();
  rank.rank = place.rank;
  rank.size = place.size;
  const DeviceAvailability& available = device_runtime(Settings::from_environment());
  if (available.runtime == nullptr) return;
  const char* const chosen = std::getenv("FARANDOLE_DEVICE");
  rank.device = &available.runtime->open(chosen == nullptr ? place.local_rank : std::atoi(chosen));
  rank.stream = rank.device->make_stream();
}

void EngineEnvironment::TearDown() {
  if (testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed() ||
      testing::UnitTest::GetInstance()->failed_test_count() > 0) {
    farandole_abort("a test has failed");
  }
  farandole_error* error = nullptr;
  if (farandole_shutdown(&error) != 0) ADD_FAILURE() << farandole_error_text(error);
  farandole_error_free(error);
}

TensorOnDevice::TensorOnDevice(Buffer input, std::int64_t rows, std::int64_t width)
    : input_(std::move(input)), shape_{rows, width} {}

TensorOnDevice::~TensorOnDevice() {
  if (memory_.empty()) return;
  Device& device = *engine_rank().device;
  device.synchronize(stream);
  if (own_stream.valid()) device.synchronize(own_stream);
  for (void* const each : memory_) device.release(each);
}

void* TensorOnDevice::allocate(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  memory_.push_back(engine_rank().device->allocate(bytes));
  return memory_.back();
}

farandole_tensor TensorOnDevice::describe(farandole_collective collective) {
  const std::size_t bytes = input_.view().size_in_bytes();
  auto tensor = sized<farandole_tensor>();
  tensor.dtype = static_cast<farandole_dtype>(input_.dtype());
  tensor.dimensions = static_cast<std::int32_t>(shape_.size());
  tensor.shape = shape_.data();
  tensor.splits = splits.empty() ? nullptr : splits.data();
  tensor.splits_count = static_cast<std::int32_t>(splits.size());
  tensor.context = this;
  tensor.done = on_done;
  if (has_new_shape(collective)) {
    tensor.allocate = on_allocate;
  } else {
    came_ = Buffer(input_.count(), input_.dtype());
  }
  if (on_host) {
    tensor.input = input_.view().data;
    tensor.output = came_.view().data;
    return tensor;
  }
  Device& device = *engine_rank().device;
  device_input_ = allocate(bytes);
  if (!has_new_shape(collective)) device_output_ = in_place ? device_input_ : allocate(bytes);
  const StreamView program = own_stream.valid() ? own_stream : stream;
  // Ordinary memory of the host is copied before the call returns; what comes later is the copy on the device.
  void* const staged = allocate(bytes);
  device.copy(staged, input_.view().data, bytes, program);
  if (before_input) {
    // The memory may hold these values already, from an earlier tensor.
    device.fill_zero(device_input_, bytes, program);
    device.synchronize(program);
    before_input();
  }
  device.copy(device_input_, staged, bytes, program);
  tensor.input = device_input_;
  tensor.output = device_output_;
  tensor.memory = FARANDOLE_CUDA_MEMORY;
  tensor.device = device.info().ordinal;
  tensor.stream = stream.handle;
  if (own_stream.valid()) {
    written_ = device.make_event(DeviceEvent::Use::kStreams);
    device.record(*written_, own_stream);
    tensor.ready_event = written_->handle();
  }
  return tensor;
}

void* TensorOnDevice::on_allocate(void* context, const std::int64_t* shape, std::int32_t dimensions) {
  auto& self = *static_cast<TensorOnDevice*>(context);
  const std::int64_t count = std::accumulate(shape, shape + dimensions, std::int64_t{1}, std::multiplies<>());
  self.came_ = Buffer(static_cast<std::size_t>(count), self.input_.dtype());
  if (self.on_host) return self.came_.view().data;
  const std::size_t bytes = self.came_.view().size_in_bytes();
  self.device_output_ = self.allocate(bytes);
  // As a framework whose allocator gives out memory that earlier work of the stream still uses.
  engine_rank().device->fill_zero(self.device_output_, bytes, self.stream);
  return self.device_output_;
}

void TensorOnDevice::on_done(void* context, const farandole_result* result) {
  auto& self = *static_cast<TensorOnDevice*>(context);
  if (result->error != nullptr) {
    self.error_.emplace(farandole_error_get_kind(result->error), farandole_error_text(result->error));
  } else {
    self.received_splits_.assign(result->received_splits, result->received_splits + result->received_splits_count);
    if (self.own_stream.valid() && result->completion_event != nullptr) {
      engine_rank().device->wait_for_handle(self.own_stream, result->completion_event);
    }
  }
  __atomic_store_n(&self.done_, 1, __ATOMIC_RELEASE);
}

void TensorOnDevice::wait() {
  farandole_wait_until(&done_);
}

Buffer TensorOnDevice::result() {
  wait();
  if (error_) throw std::runtime_error(error_->second);
  Buffer result(came_.count(), came_.dtype());
  if (on_host) {
    if (came_.count() > 0) std::memcpy(result.view().data, came_.view().data, came_.view().size_in_bytes());
    return result;
  }
  Device& device = *engine_rank().device;
  const StreamView program = own_stream.valid() ? own_stream : stream;
  device.copy(result.view().data, device_output_, result.view().size_in_bytes(), program);
  device.synchronize(program);
  return result;
}

std::string submit(const DeviceRequest& request, DeviceTensors& tensors) {
  std::vector<farandole_tensor> described;
  for (const auto& tensor : tensors) described.push_back(tensor->describe(request.collective));
  auto submitted = sized<farandole_request>();
  submitted.name = request.name.c_str();
  submitted.collective = request.collective;
  submitted.op = request.op;
  submitted.root = request.root;
  submitted.process_set = request.process_set;
  submitted.prescale = request.prescale;
  submitted.postscale = request.postscale;
  submitted.tensors = described.data();
  submitted.tensor_count = static_cast<std::int32_t>(described.size());
  farandole_error* error = nullptr;
  if (farandole_submit(&submitted, &error) == 0) return {};
  std::string text = farandole_error_text(error);
  farandole_error_free(error);
  return text;
}

void must_submit(const DeviceRequest& request, DeviceTensors& tensors) {
  const std::string error = submit(request, tensors);
  if (!error.empty()) throw std::runtime_error(error);
}

std::unique_ptr<TensorOnDevice> tensor_of(std::size_t count, DType dtype, ReduceOp op) {
  return std::make_unique<TensorOnDevice>(values(engine_rank().rank, 0, count, dtype, op),
                                          static_cast<std::int64_t>(count), 1);
}

void barrier() {
  DeviceTensors one;
  one.push_back(std::make_unique<TensorOnDevice>(Buffer(0, DType::kU8), 0, 1));
  one.front()->on_host = true;
  must_submit({.name = "barrier of the test", .collective = FARANDOLE_BARRIER}, one);
  one.front()->wait();
}

void join() {
  volatile std::int32_t done = 0;
  farandole_error* error = nullptr;
  const auto on_joined = [](void* context, const farandole_error* failed, std::int32_t) {
    EXPECT_EQ(failed, nullptr) << farandole_error_text(failed);
    __atomic_store_n(static_cast<std::int32_t*>(context), 1, __ATOMIC_RELEASE);
  };
  ASSERT_EQ(farandole_join(FARANDOLE_GLOBAL_SET, const_cast<std::int32_t*>(&done), on_joined, &error), 0)
      << farandole_error_text(error);
  farandole_wait_until(&done);
}

farandole_counters counters() {
  auto counted = sized<farandole_counters>();
  farandole_get_counters(&counted);
  return counted;
}

std::int32_t add_set(const std::vector<std::int32_t>& ranks) {
  std::int32_t set = -1;
  farandole_error* error = nullptr;
  EXPECT_EQ(farandole_add_process_set(ranks.data(), static_cast<std::int32_t>(ranks.size()), &set, &error), 0)
      << farandole_error_text(error);
  return set;
}

void remove_set(std::int32_t set) {
  farandole_error* error = nullptr;
  EXPECT_EQ(farandole_remove_process_set(set, &error), 0) << farandole_error_text(error);
}

}  // namespace farandole::test
