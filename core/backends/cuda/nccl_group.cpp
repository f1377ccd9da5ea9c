// SPDX-License-Identifier: Apache-2.0
#include "cuda/nccl_group.h"

#include <fmt/format.h>

#include <bit>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "cuda/nccl_support.h"
#include "cuda/scopes.h"
#include "farandole/core/error.h"
#include "farandole/internal/float16.h"
#include "farandole/internal/log.h"

namespace farandole::cuda {

namespace {

/// Time that `abort` gives running calls to return, because ncclCommAbort frees memory that they use.
constexpr auto kAbortGrace = std::chrono::seconds(1);
/// Maximum number of scaled sums that a group keeps: a program that uses a new factor in each training step must not
/// accumulate them.
constexpr std::size_t kMaxScaledSums = 64;

/// "NCCL error 5, invalid usage; NCCL says: …"
std::string nccl_error_text(const NcclApi& api, ncclResult_t error) {
  const char* const text = api.ncclGetErrorString(error);
  const char* const last = api.ncclGetLastError(nullptr);
  const bool has_more = last != nullptr && *last != '\0';
  return fmt::format("NCCL error {}, {}{}{}", error, text != nullptr ? text : "which it does not name",
                     has_more ? "; NCCL says: " : "; NCCL_DEBUG=WARN makes it say more", has_more ? last : "");
}

[[noreturn]] void throw_nccl_error(const NcclApi& api, ncclResult_t error, std::string_view function,
                                   std::string_view where) {
  throw DeviceError(fmt::format("{} failed on {}: {}", function, where, nccl_error_text(api, error)));
}

std::byte* part_of(void* vector, std::size_t part, std::size_t part_bytes) {
  return static_cast<std::byte*>(vector) + part * part_bytes;
}

}  // namespace

DeviceGroupId make_nccl_id(const NcclApi& api, const DeviceContext& device) {
  const RelaxedCapture relaxed(device.api);
  ncclUniqueId id{};
  static_assert(sizeof id == sizeof(DeviceGroupId));
  if (const ncclResult_t result = api.ncclGetUniqueId(&id); result != ncclSuccess) {
    throw_nccl_error(api, result, "ncclGetUniqueId", device.name);
  }
  DeviceGroupId bytes{};
  std::memcpy(bytes.data(), &id, sizeof id);
  return bytes;
}

class NcclGroup::CallScope {
 public:
  /// @throws DeviceError  the group was aborted
  explicit CallScope(NcclGroup& group) : group_(group) {
    const std::lock_guard guard(group_.mutex_);
    if (group_.communicator_ == nullptr) throw DeviceError(fmt::format("{}: the group was aborted", group_.name_));
    ++group_.running_calls_;
    communicator = group_.communicator_;
  }
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;
  ~CallScope() {
    const std::lock_guard guard(group_.mutex_);
    --group_.running_calls_;
    group_.call_ended_.notify_all();
  }
  ncclComm_t communicator = nullptr;

 private:
  NcclGroup& group_;
};

NcclGroup::NcclGroup(CudaDevice& device, const NcclApi& api, const DeviceGroupId& id, int rank, int size)
    : device_(device),
      api_(api),
      rank_(rank),
      size_(size),
      name_(fmt::format("{}, rank {} of {}", device.context().name, rank, size)) {
  if (size < 2 || rank < 0 || rank >= size) {
    throw InvalidArgument(
        fmt::format("a group of devices has at least 2 ranks, numbered from 0; this is rank {} of {}", rank, size));
  }
  ncclUniqueId nccl_id{};
  std::memcpy(&nccl_id, id.data(), sizeof nccl_id);
  ncclConfig_v21400 config;
  config.blocking = 1;
  const ContextScope scope(device_.context().api, device_.context().context);
  const RelaxedCapture relaxed(device_.context().api);  // NCCL allocates memory
  check(api_.ncclCommInitRankConfig(&communicator_, size, nccl_id, rank, &config), "ncclCommInitRankConfig");
}

NcclGroup::~NcclGroup() {
  if (communicator_ == nullptr) return;
  const ContextScope scope(device_.context().api, device_.context().context);
  const RelaxedCapture relaxed(device_.context().api);
  const ncclResult_t finalized = api_.ncclCommFinalize(communicator_);
  // If the ranks could not finalize the group together, ncclCommAbort frees the group's resources on this rank alone.
  const ncclResult_t freed =
      finalized == ncclSuccess ? api_.ncclCommDestroy(communicator_) : api_.ncclCommAbort(communicator_);
  if (finalized == ncclSuccess && freed == ncclSuccess) device_.release(connect_bytes_);
  const ncclResult_t failure = finalized != ncclSuccess ? finalized : freed;
  if (failure != ncclSuccess) {
    log(LogLevel::kWarning, fmt::format("{}: the end of its group failed: {}", name_, error_text(failure)));
  }
}

void NcclGroup::exchange(std::span<const DeviceMessage> messages, StreamView stream) {
  bool has_any = false;
  for (const DeviceMessage& message : messages) has_any = has_any || message.bytes > 0;
  if (!has_any) return;
  const CallScope call(*this);
  const ncclComm_t communicator = call.communicator;
  auto* const queue = static_cast<CUstream>(stream.handle);
  run_grouped([&] {
    for (const DeviceMessage& message : messages) {
      // Sender and receiver both skip empty messages.
      if (message.bytes == 0) continue;
      if (message.kind == DeviceMessage::Kind::kSend) {
        check(api_.ncclSend(message.data, message.bytes, ncclUint8, message.peer, communicator, queue), "ncclSend");
      } else {
        check(api_.ncclRecv(message.data, message.bytes, ncclUint8, message.peer, communicator, queue), "ncclRecv");
      }
    }
  });
}

bool NcclGroup::supports(Collective collective, DType dtype, ReduceOp op) const {
  return has_device_collective(collective) && (!reduces(collective) || nccl_reduction(dtype, op).has_value());
}

bool NcclGroup::scales(DType dtype, ReduceOp op, double factor) const {
  if (op != ReduceOp::kSum && op != ReduceOp::kAverage) return false;
  const auto as_float = static_cast<float>(factor);
  if (dtype == DType::kF16) return widen(narrow_to_half(as_float)) == factor;
  if (dtype == DType::kBF16) return widen(narrow_to_bfloat16(as_float)) == factor;
  return is_floating_point(dtype);
}

ncclRedOp_t NcclGroup::scaled_sum(ncclComm_t communicator, DType dtype, ncclDataType_t type, double factor) {
  const std::pair key(dtype, std::bit_cast<std::uint64_t>(factor));
  if (const auto found = scaled_sums_.find(key); found != scaled_sums_.end()) return found->second;
  if (scaled_sums_.size() == kMaxScaledSums) {
    for (const auto& [unused, op] : scaled_sums_) {
      check(api_.ncclRedOpDestroy(op, communicator), "ncclRedOpDestroy");
    }
    scaled_sums_.clear();
  }
  // NCCL reads the factor in the type of the elements.
  double as_double = factor;
  auto as_float = static_cast<float>(factor);
  Half as_half = narrow_to_half(as_float);
  BFloat16 as_bfloat16 = narrow_to_bfloat16(as_float);
  void* scalar = &as_float;
  if (dtype == DType::kF64) scalar = &as_double;
  if (dtype == DType::kF16) scalar = &as_half;
  if (dtype == DType::kBF16) scalar = &as_bfloat16;
  ncclRedOp_t made = ncclSum;
  check(api_.ncclRedOpCreatePreMulSum(&made, scalar, type, ncclScalarHostImmediate, communicator),
        "ncclRedOpCreatePreMulSum");
  return scaled_sums_[key] = made;
}

void NcclGroup::run(const VendorCall& vendor_call, StreamView stream) {
  if (!has_device_collective(vendor_call.collective)) {
    throw Unsupported(fmt::format("NCCL has no {}; use an algorithm other than vendor", name(vendor_call.collective)));
  }
  if (vendor_call.count == 0) return;
  if (vendor_call.collective == Collective::kAlltoall) {
    exchange_parts(vendor_call, stream);
  } else if (reduces(vendor_call.collective)) {
    enqueue_reduction(vendor_call, static_cast<CUstream>(stream.handle));
  } else {
    enqueue_movement(vendor_call, static_cast<CUstream>(stream.handle));
  }
}

void NcclGroup::enqueue_reduction(const VendorCall& vendor_call, CUstream stream) {
  const std::optional<NcclReduction> reduction = nccl_reduction(vendor_call.dtype, vendor_call.op);
  if (!reduction) {
    throw Unsupported(fmt::format("NCCL has no {} of {}; use an algorithm other than vendor", name(vendor_call.op),
                                  name(vendor_call.dtype)));
  }
  const auto& [collective, input, output, count, dtype, reduce_op, root, factor] = vendor_call;
  const CallScope call(*this);
  const ncclComm_t communicator = call.communicator;
  const ncclDataType_t type = reduction->type;
  const ncclRedOp_t op = factor == 1.0 ? reduction->op : scaled_sum(communicator, dtype, type, factor);
  const ContextScope scope(device_.context().api, device_.context().context);
  if (collective == Collective::kAllreduce) {
    check(api_.ncclAllReduce(input, output, count, type, op, communicator, stream), "ncclAllReduce");
  } else if (collective == Collective::kReduce) {
    check(api_.ncclReduce(input, output, count, type, op, root, communicator, stream), "ncclReduce");
  } else {
    check(api_.ncclReduceScatter(input, output, count, type, op, communicator, stream), "ncclReduceScatter");
  }
}

void NcclGroup::enqueue_movement(const VendorCall& vendor_call, CUstream stream) {
  const std::size_t bytes = vendor_call.count * size_in_bytes(vendor_call.dtype);
  const CallScope call(*this);
  const ncclComm_t communicator = call.communicator;
  const ContextScope scope(device_.context().api, device_.context().context);
  if (vendor_call.collective == Collective::kBroadcast) {
    check(api_.ncclBroadcast(vendor_call.input, vendor_call.output, bytes, ncclUint8, vendor_call.root, communicator,
                             stream),
          "ncclBroadcast");
  } else {
    check(api_.ncclAllGather(vendor_call.input, vendor_call.output, bytes, ncclUint8, communicator, stream),
          "ncclAllGather");
  }
}

void NcclGroup::exchange_parts(const VendorCall& vendor_call, StreamView stream) {
  if (vendor_call.input == vendor_call.output) {
    throw InvalidArgument(fmt::format("{}: an alltoall of devices needs an output of its own", name_));
  }
  const std::size_t bytes = vendor_call.count * size_in_bytes(vendor_call.dtype);
  std::vector<DeviceMessage> messages;
  messages.reserve(2 * static_cast<std::size_t>(size_));
  for (int peer = 0; peer < size_; ++peer) {
    const auto part = static_cast<std::size_t>(peer);
    messages.push_back(
        {DeviceMessage::Kind::kSend, peer, part_of(const_cast<void*>(vendor_call.input), part, bytes), bytes});
    messages.push_back({DeviceMessage::Kind::kReceive, peer, part_of(vendor_call.output, part, bytes), bytes});
  }
  exchange(messages, stream);
}

void NcclGroup::connect(StreamView stream) {
  if (connect_bytes_ != nullptr) return;
  // NCCL connects two ranks at their first message, so send a byte each way. The group keeps the bytes until its end,
  // so no thread needs to wait for the stream before releasing their memory.
  const auto count = static_cast<std::size_t>(size_);
  connect_bytes_ = device_.allocate(2 * count);
  auto* const bytes = static_cast<std::byte*>(connect_bytes_);
  std::vector<DeviceMessage> messages;
  messages.reserve(2 * count);
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    const auto place = static_cast<std::size_t>(peer);
    messages.push_back({DeviceMessage::Kind::kSend, peer, bytes + place, 1});
    messages.push_back({DeviceMessage::Kind::kReceive, peer, bytes + count + place, 1});
  }
  exchange(messages, stream);
}

std::string NcclGroup::asynchronous_error() {
  const std::lock_guard guard(mutex_);
  if (communicator_ == nullptr) return {};
  ncclResult_t error = ncclSuccess;
  if (const ncclResult_t result = api_.ncclCommGetAsyncError(communicator_, &error); result != ncclSuccess) {
    return fmt::format("ncclCommGetAsyncError failed on {}: {}", name_, error_text(result));
  }
  if (error == ncclSuccess || error == ncclInProgress) return {};
  return fmt::format("{}: {}", name_, error_text(error));
}

void NcclGroup::abort() {
  ncclComm_t communicator = nullptr;
  {
    // The mutex is not held during ncclCommAbort, which may block forever: `asynchronous_error` must not block.
    std::unique_lock guard(mutex_);
    communicator = std::exchange(communicator_, nullptr);
    if (!call_ended_.wait_for(guard, kAbortGrace, [this] { return running_calls_ == 0; })) {
      log(LogLevel::kWarning, fmt::format("{}: a thread waits in NCCL for a peer, so that what is in streams cannot be "
                                          "ended; end the process without waiting for the device",
                                          name_));
      return;
    }
  }
  if (communicator == nullptr) return;
  const ContextScope scope(device_.context().api, device_.context().context);
  const RelaxedCapture relaxed(device_.context().api);
  if (const ncclResult_t result = api_.ncclCommAbort(communicator); result != ncclSuccess) {
    log(LogLevel::kWarning, fmt::format("ncclCommAbort failed on {}: {}", name_, error_text(result)));
  }
}

void NcclGroup::check(ncclResult_t result, std::string_view function) const {
  if (result != ncclSuccess) throw_nccl_error(api_, result, function, name_);
}

std::string NcclGroup::error_text(ncclResult_t error) const {
  return nccl_error_text(api_, error);
}

void NcclGroup::run_grouped(const std::function<void()>& enqueue) {
  const ContextScope scope(device_.context().api, device_.context().context);
  check(api_.ncclGroupStart(), "ncclGroupStart");
  try {
    enqueue();
  } catch (...) {
    // Close the NCCL group; otherwise all later NCCL calls of this thread would join it.
    api_.ncclGroupEnd();
    throw;
  }
  check(api_.ncclGroupEnd(), "ncclGroupEnd");
}

}  // namespace farandole::cuda
