// SPDX-License-Identifier: Apache-2.0
// torch's device type for others, PrivateUse1 ("privateuseone"), on the double of libcuda: streams, events, memory,
// copies and `fill_` run in streams of the double; all other operations run on copies of their tensors on the CPU. So
// the part of ops/torch that handles devices runs without a GPU. device_test.py builds and loads this library.
//
// Memory is cached as torch caches it: a freed block is reused at once in the stream that it was allocated for, and
// after the work of the streams that record_stream() named.
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/full.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "cuda/cuda_api.h"
#include "fake_device.h"

// The functions of the double that are used here, with CUDA's names.
namespace farandole::cuda {
extern "C" {
#define FARANDOLE_DECLARE(name, symbol, parameters) CUresult symbol parameters;
FARANDOLE_CUDA_FUNCTIONS(FARANDOLE_DECLARE)
#undef FARANDOLE_DECLARE
CUresult cuStreamSynchronize(CUstream stream);  // which Farandole does not call
}
}  // namespace farandole::cuda

namespace {

using namespace farandole::cuda;
constexpr auto kType = c10::DeviceType::PrivateUse1;
constexpr c10::StreamId kStreams = 4;  // of each device; 0 is the default stream

void check(CUresult result, const char* what) {
  TORCH_CHECK(result == CUDA_SUCCESS, what, " returned ", result);
}

CUdeviceptr number(const void* memory) {
  return reinterpret_cast<CUdeviceptr>(memory);
}

thread_local c10::DeviceIndex current_device = 0;
thread_local std::vector<c10::StreamId> current_streams;

struct Device {
  CUcontext context = nullptr;
  std::vector<CUstream> streams;
};

const std::vector<Device>& devices() {
  static const auto* const all = [] {
    check(cuInit(0), "cuInit");
    int count = 0;
    check(cuDeviceGetCount(&count), "cuDeviceGetCount");
    auto* const made = new std::vector<Device>(static_cast<size_t>(count));
    for (int ordinal = 0; ordinal < count; ++ordinal) {
      Device& device = made->at(static_cast<size_t>(ordinal));
      CUdevice handle = 0;
      check(cuDeviceGet(&handle, ordinal), "cuDeviceGet");
      check(cuDevicePrimaryCtxRetain(&device.context, handle), "cuDevicePrimaryCtxRetain");
      check(cuCtxSetCurrent(device.context), "cuCtxSetCurrent");
      for (c10::StreamId id = 0; id < kStreams; ++id) {
        check(cuStreamCreate(&device.streams.emplace_back(), CU_STREAM_NON_BLOCKING), "cuStreamCreate");
      }
    }
    return made;
  }();
  return *all;
}

/// Makes the device's context current in this thread.
const Device& use(c10::DeviceIndex index) {
  const Device& device = devices().at(static_cast<size_t>(index));
  check(cuCtxSetCurrent(device.context), "cuCtxSetCurrent");
  return device;
}

CUstream handle_of(const c10::Stream& stream) {
  return use(stream.device_index()).streams.at(static_cast<size_t>(stream.id()));
}

c10::StreamId& current_stream_id(c10::DeviceIndex index) {
  current_streams.resize(devices().size());
  return current_streams.at(static_cast<size_t>(index));
}

CUstream current_stream_of(c10::DeviceIndex index) {
  return use(index).streams.at(static_cast<size_t>(current_stream_id(index)));
}

// ---- Memory ---------------------------------------------------------------------------------------------------------

struct Block {
  CUdeviceptr memory = 0;
  size_t bytes = 0;
  c10::DeviceIndex device = 0;
  CUstream owner = nullptr;           // stream that was current when the block was allocated
  std::vector<CUstream> other_users;  // of record_stream()
  std::vector<CUevent> pending;       // of a freed block: the ends of their work

  bool is_reusable() {
    while (!pending.empty() && cuEventQuery(pending.back()) == CUDA_SUCCESS) {
      check(cuEventDestroy_v2(pending.back()), "cuEventDestroy");
      pending.pop_back();
    }
    return pending.empty();
  }
};

class CachingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::DeviceIndex index = current_device;
    CUstream stream = current_stream_of(index);
    const std::lock_guard lock(mutex_);
    Block* block = take(index, stream, bytes);
    if (block == nullptr) {
      block = new Block;
      block->bytes = bytes;
      block->device = index;
      block->owner = stream;
      check(cuMemAlloc_v2(&block->memory, bytes == 0 ? 1 : bytes), "cuMemAlloc");
    }
    return {reinterpret_cast<void*>(block->memory), block, &CachingAllocator::free, {kType, index}};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &CachingAllocator::free; }
  void copy_data(void* target, const void* source, size_t bytes) const override {
    check(cuMemcpyAsync(number(target), number(source), bytes, current_stream_of(current_device)), "cuMemcpyAsync");
  }
  void record(const c10::DataPtr& memory, CUstream stream) {
    if (memory.get_deleter() != &CachingAllocator::free) return;
    const std::lock_guard lock(mutex_);
    auto& block = *static_cast<Block*>(memory.get_context());
    if (stream != block.owner) block.other_users.push_back(stream);
  }

 private:
  static void free(void* context);
  Block* take(c10::DeviceIndex index, CUstream stream, size_t bytes) {
    for (auto block = freed_.begin(); block != freed_.end(); ++block) {
      if ((*block)->device != index || (*block)->owner != stream || (*block)->bytes != bytes) continue;
      if (!(*block)->is_reusable()) continue;
      Block* const found = *block;
      freed_.erase(block);
      return found;
    }
    return nullptr;
  }

  std::mutex mutex_;
  std::vector<Block*> freed_;
};

CachingAllocator& allocator() {
  static auto* const instance = new CachingAllocator;
  return *instance;
}

void CachingAllocator::free(void* context) {
  auto* const block = static_cast<Block*>(context);
  use(block->device);
  const std::lock_guard lock(allocator().mutex_);
  for (CUstream stream : std::exchange(block->other_users, {})) {
    CUevent& event = block->pending.emplace_back();
    check(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    check(cuEventRecord(event, stream), "cuEventRecord");
  }
  allocator().freed_.push_back(block);
}

// ---- Streams and events ---------------------------------------------------------------------------------------------

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  c10::Device getDevice() const override { return {kType, current_device}; }
  void setDevice(c10::Device device) const override {
    use(device.index());
    current_device = device.index();
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override { current_device = device.index(); }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::DeviceIndex deviceCount() const noexcept override { return static_cast<c10::DeviceIndex>(devices().size()); }
  c10::Stream getStream(c10::Device device) const override {
    const auto index = device.has_index() ? device.index() : current_device;
    return c10::Stream(c10::Stream::UNSAFE, {kType, index}, current_stream_id(index));
  }
  c10::Stream getDefaultStream(c10::Device device) const override { return c10::Stream(c10::Stream::DEFAULT, device); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool /*is_high_priority*/) const override {
    static std::atomic<c10::StreamId> calls{0};
    return c10::Stream(c10::Stream::UNSAFE, device, 1 + calls++ % (kStreams - 1));
  }
  c10::Stream getNewStream(c10::Device device, int /*priority*/) const override {
    return getStreamFromGlobalPool(device, false);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream before = getStream(stream.device());
    current_stream_id(stream.device_index()) = stream.id();
    return before;
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override { return handle_of(stream); }
  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex /*device*/,
              const c10::EventFlag /*flag*/) const override {
    CUstream handle = handle_of(stream);
    auto& made = *reinterpret_cast<CUevent*>(event);
    if (made == nullptr) check(cuEventCreate(&made, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    check(cuEventRecord(made, handle), "cuEventRecord");
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) {
      check(cuStreamWaitEvent(handle_of(stream), static_cast<CUevent>(event), 0), "cuStreamWaitEvent");
    }
  }
  bool queryEvent(void* event) const override {
    use(current_device);
    return event == nullptr || cuEventQuery(static_cast<CUevent>(event)) == CUDA_SUCCESS;
  }
  void destroyEvent(void* event, const c10::DeviceIndex device) const noexcept override {
    if (event == nullptr) return;
    use(device);
    cuEventDestroy_v2(static_cast<CUevent>(event));
  }
  bool queryStream(const c10::Stream& stream) const override {
    return cuStreamQuery(handle_of(stream)) == CUDA_SUCCESS;
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    check(cuStreamSynchronize(handle_of(stream)), "cuStreamSynchronize");
  }
  void recordDataPtrOnStream(const c10::DataPtr& memory, const c10::Stream& stream) const override {
    allocator().record(memory, handle_of(stream));
  }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex /*index*/) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return static_cast<c10::DeviceIndex>(devices().size()); }
};

// ---- Operations -----------------------------------------------------------------------------------------------------

const c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

/// Allocates for the device of `device`, the current device if empty.
struct On {
  explicit On(std::optional<c10::Device> device) {
    if (device && device->has_index()) current_device = device->index();
  }
  ~On() { current_device = before; }
  const c10::DeviceIndex before = current_device;
};

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout> /*layout*/,
                 std::optional<at::Device> device, std::optional<bool> /*pin*/,
                 std::optional<at::MemoryFormat> format) {
  const On on(device);
  return at::detail::empty_generic(size, &allocator(), kKeys, c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout> /*layout*/, std::optional<at::Device> device,
                         std::optional<bool> /*pin*/) {
  const On on(device);
  return at::detail::empty_strided_generic(size, stride, &allocator(), kKeys, c10::dtype_or_default(dtype));
}

/// Bytes from the tensor's first element to the end of its last.
size_t extent(const at::Tensor& tensor) {
  return at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.itemsize());
}

void enqueue_copy(void* target, const void* source, size_t bytes, c10::DeviceIndex device, bool is_awaited) {
  if (bytes == 0) return;
  CUstream stream = current_stream_of(device);
  check(cuMemcpyAsync(number(target), number(source), bytes, stream), "cuMemcpyAsync");
  if (is_awaited) check(cuStreamSynchronize(stream), "cuStreamSynchronize");
}

/// The tensor's values, in memory of the CPU with the same strides. Waits for the current stream.
at::Tensor on_host(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return tensor;
  at::Tensor copy = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kCPU));
  enqueue_copy(copy.mutable_data_ptr(), tensor.const_data_ptr(), extent(tensor), tensor.get_device(), true);
  return copy;
}

at::Tensor copy_from(const at::Tensor& source, const at::Tensor& target, bool /*non_blocking*/) {
  if (target.is_cpu()) {
    target.copy_(on_host(source));
    return target;
  }
  const bool is_plain = source.dtype() == target.dtype() && source.sizes() == target.sizes() &&
                        source.strides() == target.strides() && source.is_non_overlapping_and_dense();
  if (is_plain && !source.is_cpu()) {
    enqueue_copy(target.mutable_data_ptr(), source.const_data_ptr(), extent(source), target.get_device(), false);
    return target;
  }
  at::Tensor values = on_host(target);
  values.copy_(on_host(source));
  enqueue_copy(target.mutable_data_ptr(), values.const_data_ptr(), extent(target), target.get_device(), true);
  return target;
}

at::Tensor copy_from_and_resize(const at::Tensor& source, const at::Tensor& target) {
  target.resize_(source.sizes());
  return copy_from(source, target, false);
}

void record_stream(at::Tensor& self, c10::Stream stream) {
  allocator().record(self.storage().data_ptr(), handle_of(stream));
}

struct Fill {
  char* target = nullptr;
  std::vector<char> values;
};

/// Enqueues a kernel that writes the value to all elements between the tensor's first and last.
at::Tensor& fill(at::Tensor& self, const at::Scalar& value) {
  const size_t bytes = extent(self);
  if (bytes == 0) return self;
  const at::Tensor values =
      at::full({static_cast<int64_t>(bytes / self.itemsize())}, value, self.options().device(at::kCPU));
  auto work = std::make_unique<Fill>();
  work->target = static_cast<char*>(fake_device_stream_address(self.mutable_data_ptr()));
  work->values.assign(static_cast<const char*>(values.const_data_ptr()),
                      static_cast<const char*>(values.const_data_ptr()) + bytes);
  const FakeDeviceAccess access{self.mutable_data_ptr(), bytes, 1};
  check(fake_device_launch(
            current_stream_of(self.get_device()), "fill",
            [](void* argument, int is_possible) {
              const auto* const fill_work = static_cast<Fill*>(argument);
              if (is_possible != 0) {
                std::memcpy(fill_work->target, fill_work->values.data(), fill_work->values.size());
              }
            },
            work.get(), [](void* argument) { delete static_cast<Fill*>(argument); }, &access, 1),
        "fill");
  static_cast<void>(work.release());
  return self;
}

const at::Tensor& resize(const at::Tensor& self, at::IntArrayRef size, std::optional<at::MemoryFormat> format) {
  const at::Tensor made = empty(size, self.scalar_type(), {}, self.device(), {}, format);
  auto* const tensor = self.unsafeGetTensorImpl();
  if (extent(made) > tensor->storage().nbytes()) tensor->set_storage_keep_dtype(made.storage());
  tensor->set_sizes_and_strides(made.sizes(), made.strides());
  return self;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("_copy_from", &copy_from);
  library.impl("_copy_from_and_resize", &copy_from_and_resize);
  library.impl("fill_.Scalar", &fill);
  library.impl("record_stream", &record_stream);
  library.impl("resize_", &resize);
  library.impl("view", &at::native::view);
  library.impl("as_strided", &at::native::as_strided_tensorimpl);
  library.impl("set_.source_Storage_storage_offset", &at::native::set_storage_cpu_);
}

void run_on_host(const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
  at::native::cpu_fallback(operation, stack);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
}

const bool is_registered = [] {
  c10::SetAllocator(kType, &allocator());
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  return true;
}();

}  // namespace

// What device_test.py calls.
extern "C" {
/// The current stream of this thread on a device, for the functions of fake_device.h.
__attribute__((visibility("default"))) void* double_device_current_stream(int device) {
  return current_stream_of(static_cast<c10::DeviceIndex>(device));
}
/// Makes the device's stream of this number, from 0 to 3, the current stream of this thread.
__attribute__((visibility("default"))) void double_device_set_stream(int device, int number) {
  current_stream_id(static_cast<c10::DeviceIndex>(device)) = number;
}
}
