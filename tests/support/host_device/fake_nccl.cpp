// SPDX-License-Identifier: Apache-2.0
// The double of libnccl. Names and results are those of nccl.h. Communicators are blocking.
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "fake_calls.h"
#include "fake_device.h"
#include "fake_exports.h"
#include "fake_graphs.h"
#include "fake_groups.h"
#include "fake_options.h"
#include "fake_waiting.h"

namespace farandole::fake {

namespace {

/// Number of the first reduction that ncclRedOpCreatePreMulSum makes.
constexpr int kFirstMadeOp = 5;

constexpr std::array kResultTexts{"no error",
                                  "unhandled cuda error",
                                  "unhandled system error",
                                  "internal error",
                                  "invalid argument",
                                  "invalid usage",
                                  "remote process exited or there was a network error",
                                  "NCCL operation in progress"};

// Counts a call. Returns the error with which the call must fail immediately; ncclSuccess to continue.
ncclResult_t begin_nccl_call(CallSite& site) {
  if (const int injected = site.begin_call(); injected != 0) {
    set_last_error(fmt::format("{} fails because a test has injected that", site.name()));
    return injected;
  }
  if (!is_device_lost()) return ncclSuccess;
  set_last_error("Cuda failure 700 'an illegal memory access was encountered'");
  return ncclUnhandledCudaError;
}

#define FARANDOLE_FAKE_NCCL_CALL()                                                   \
  static ::farandole::fake::CallSite call_site(__func__);                            \
  if (const ncclResult_t failed = begin_nccl_call(call_site); failed != ncclSuccess) \
  return open_group().note_failure(failed)

Communicator* communicator_of(const char* call, ncclComm_t handle) {
  auto* const communicator = reinterpret_cast<Communicator*>(handle);
  if (communicator != nullptr && communicator->is(Handle::Kind::kCommunicator)) return communicator;
  misuse("{} of {}, which is no communicator, or was destroyed or aborted", call, fmt::ptr(handle));
  return nullptr;
}

ncclResult_t refuse(ncclResult_t error, const std::string& text) {
  set_last_error(text);
  return open_group().note_failure(error);
}

// Common part of all calls that enqueue: `plan` makes the messages if the communicator works.
template <class Plan>
ncclResult_t enqueue_call(const char* name, ncclComm_t handle, CUstream stream, const Plan& plan) {
  Communicator* const communicator = communicator_of(name, handle);
  if (communicator == nullptr) return refuse(ncclInvalidArgument, "no communicator");
  const CommunicatorCall guard(*communicator, name);
  if (const ncclResult_t error = communicator->error(); error != ncclSuccess) {
    return refuse(error, communicator->error_text());
  }
  if (communicator->is_finalized) {
    misuse("{} on rank {} after ncclCommFinalize", name, communicator->rank);
    return refuse(ncclInvalidUsage, "the communicator is finalized");
  }
  Stream* const target = stream_of(stream, communicator->device);
  if (target == nullptr || &target->device != &communicator->device) {
    misuse("{} on rank {}, of device {}, in a stream that is not of this device", name, communicator->rank,
           communicator->device.ordinal);
    return refuse(ncclInvalidArgument, "a stream of another device");
  }
  if (const Capture* const capture = target->capture(); capture != nullptr && !capture->is_valid()) {
    return refuse(ncclUnhandledCudaError, "Cuda failure 901 'operation failed due to a previous error during capture'");
  }
  PlannedCall call;
  if (const std::string problem = plan(*communicator, call); !problem.empty()) {
    return refuse(ncclInvalidArgument, fmt::format("{}: {}", name, problem));
  }
  if (call.messages.empty() && !call.finish) return ncclSuccess;
  return open_group().add(*communicator, *target, name, std::move(call));
}

ncclResult_t enqueue_message(const char* name, Message message, std::size_t count, ncclDataType_t type,
                             ncclComm_t handle, CUstream stream) {
  message.bytes = count * bytes_of_type(type);
  return enqueue_call(name, handle, stream, [&](const Communicator& communicator, PlannedCall& call) -> std::string {
    if (bytes_of_type(type) == 0) return fmt::format("there is no type {}", static_cast<int>(type));
    if (message.peer < 0 || message.peer >= communicator.size) return fmt::format("there is no rank {}", message.peer);
    const bool is_write = message.direction == Message::Direction::kReceive;
    call.accesses.push_back({message.data, message.bytes, is_write, is_write ? "received data" : "sent data"});
    call.messages.push_back(message);
    call.messages.back().data = stream_address(message.data);
    return {};
  });
}

ncclResult_t enqueue_collective(const char* name, const CollectiveCall& collective, const void* input, void* output,
                                ncclComm_t handle, CUstream stream) {
  return enqueue_call(name, handle, stream, [&](const Communicator& communicator, PlannedCall& call) -> std::string {
    if (bytes_of_type(collective.type) == 0) return fmt::format("there is no type {}", collective.type);
    if (collective.root < 0 || collective.root >= communicator.size) return fmt::format("no rank {}", collective.root);
    const bool reduces = collective.kind != Collective::kBroadcast && collective.kind != Collective::kAllGather;
    CollectiveCall made = collective;
    double factor = 1.0;
    if (const int number = collective.op - kFirstMadeOp; reduces && number >= 0) {
      const auto index = static_cast<std::size_t>(number);
      if (index >= communicator.factors.size() || !communicator.factors[index]) {
        return fmt::format("there is no operation {}", collective.op);
      }
      factor = *communicator.factors[index];
      made.op = ncclSum;
    }
    if (reduces) {
      if (std::string why = why_no_reduction(made.type, made.op); !why.empty()) return why;
    }
    if (collective.count == 0) return {};
    call = plan_collective({made, input, output, communicator.rank, communicator.size, factor});
    return {};
  });
}

// Returns the factor of a reduction, which `scalar` holds in the type of the elements; nothing if that is not one of
// NCCL's floating-point types.
std::optional<double> factor_of(const void* scalar, ncclDataType_t type) {
  const auto read = [scalar](auto value) {
    std::memcpy(&value, scalar, sizeof value);
    return value;
  };
  switch (type) {
    case ncclFloat16:
      return static_cast<float>(read(_Float16{}));
    case ncclBfloat16:
      return std::bit_cast<float>(static_cast<std::uint32_t>(read(std::uint16_t{})) << 16);
    case ncclFloat32:
      return read(0.0F);
    case ncclFloat64:
      return read(0.0);
    default:
      return std::nullopt;
  }
}

// Returns why NCCL would refuse this configuration; empty if it accepts it. Null means the default.
std::string problem_of(const ncclConfig_v21400* config) {
  const ncclConfig_v21400 expected;
  if (config == nullptr) return {};
  if (config->magic != expected.magic) return "ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER";
  if (config->size < expected.size)
    return fmt::format("ncclConfig_t of {} bytes; {} are expected", config->size, expected.size);
  return config->blocking == 0 ? "the double has no communicators that do not block" : "";
}

ncclResult_t wait_for_ranks(Communicator& communicator, const ncclUniqueId& id, ncclComm_t* comm) {
  const ncclResult_t result = communicator.wait_for_ranks(id);
  if (result == ncclSuccess) return ncclSuccess;
  communicator.close();
  communicator.die();
  *comm = nullptr;
  return result;
}

}  // namespace

extern "C" {

const char* ncclGetErrorString(ncclResult_t error) {
  const bool is_known = error >= 0 && error < static_cast<int>(kResultTexts.size());
  return is_known ? kResultTexts[static_cast<std::size_t>(error)] : "unknown result code";
}

// Ignores the communicator, as NCCL does.
const char* ncclGetLastError(ncclComm_t /*comm*/) {
  thread_local std::string text;
  text = last_error();
  return text.c_str();
}

ncclResult_t ncclGetVersion(int* version) {
  static CallSite call_site(__func__);
  if (const int injected = call_site.begin_call(); injected != 0) return injected;
  *version = static_cast<int>(option(Option::kNcclVersion));
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  FARANDOLE_FAKE_NCCL_CALL();
  return make_id(*id) ? ncclSuccess : refuse(ncclSystemError, "no memory file");
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_v21400* config) {
  FARANDOLE_FAKE_NCCL_CALL();
  check_captures(call_site);  // NCCL allocates memory
  *comm = nullptr;
  if (current_device() == nullptr) {
    misuse("ncclCommInitRankConfig on a thread that has no current context; call cuCtxSetCurrent first");
    return refuse(ncclUnhandledCudaError, "no current device");
  }
  if (const std::string problem = problem_of(config); !problem.empty()) return refuse(ncclInvalidArgument, problem);
  if (ranks < 1 || ranks > kMaxRanks || rank < 0 || rank >= ranks) {
    return refuse(ncclInvalidArgument, fmt::format("rank {} of {}; the double has up to {}", rank, ranks, kMaxRanks));
  }
  auto& communicator = make_kept<Communicator>(*current_device(), rank, ranks);
  if (const ncclResult_t result = communicator.join(id); result != ncclSuccess) {
    communicator.die();
    return refuse(result, communicator.error_text());
  }
  *comm = reinterpret_cast<ncclComm_t>(&communicator);
  return open_group().add_join([&communicator, id, comm] { return wait_for_ranks(communicator, id, comm); });
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  FARANDOLE_FAKE_NCCL_CALL();
  Communicator* const communicator = communicator_of("ncclCommFinalize", comm);
  if (communicator == nullptr) return ncclInvalidArgument;
  const CommunicatorCall guard(*communicator, "ncclCommFinalize");
  if (const int groups = communicator->captured_groups(); groups > 0) {
    misuse("ncclCommFinalize of rank {} waits until {} groups in graphs are destroyed; destroy the graphs first",
           communicator->rank, groups);
  }
  if (std::exchange(communicator->is_finalized, true)) misuse("ncclCommFinalize twice on rank {}", communicator->rank);
  if (!communicator->drain()) return ncclInternalError;
  return communicator->error();
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  FARANDOLE_FAKE_NCCL_CALL();
  Communicator* const communicator = communicator_of("ncclCommDestroy", comm);
  if (communicator == nullptr) return ncclInvalidArgument;
  if (open_group().is_open()) misuse("ncclCommDestroy of rank {} inside of an open group", communicator->rank);
  const CommunicatorCall guard(*communicator, "ncclCommDestroy");
  if (!communicator->drain()) return ncclInternalError;
  (void)communicator->error();  // reports what a peer has found
  communicator->die();
  communicator->close();
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  static CallSite call_site(__func__);
  if (const int injected = call_site.begin_call(); injected != 0) return injected;
  Communicator* const communicator = communicator_of("ncclCommAbort", comm);
  if (communicator == nullptr) return ncclInvalidArgument;
  if (const std::uint32_t caller = communicator->calling_thread.load(); caller != 0) {
    misuse("ncclCommAbort of rank {} of {} frees what a call that another thread is in uses", communicator->rank,
           communicator->size);
  }
  while (option(Option::kAbortHangs) != 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  communicator->abort();
  communicator->die();
  communicator->close();
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  static CallSite call_site(__func__);
  if (const int injected = call_site.begin_call(); injected != 0) return injected;
  Communicator* const communicator = communicator_of("ncclCommGetAsyncError", comm);
  if (communicator == nullptr) return ncclInvalidArgument;
  *error = is_device_lost() ? ncclUnhandledCudaError : communicator->error();
  return ncclSuccess;
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t type,
                                      ncclScalarResidence_t residence, ncclComm_t comm) {
  FARANDOLE_FAKE_NCCL_CALL();
  Communicator* const communicator = communicator_of("ncclRedOpCreatePreMulSum", comm);
  const std::optional<double> factor = factor_of(scalar, type);
  if (communicator == nullptr || residence != ncclScalarHostImmediate || !factor) return ncclInvalidArgument;
  const CommunicatorCall guard(*communicator, "ncclRedOpCreatePreMulSum");
  *op = kFirstMadeOp + static_cast<int>(communicator->factors.size());
  communicator->factors.push_back(*factor);
  return ncclSuccess;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  FARANDOLE_FAKE_NCCL_CALL();
  Communicator* const communicator = communicator_of("ncclRedOpDestroy", comm);
  const int number = op - kFirstMadeOp;
  if (communicator == nullptr || number < 0 || number >= static_cast<int>(communicator->factors.size())) {
    return ncclInvalidArgument;
  }
  const CommunicatorCall guard(*communicator, "ncclRedOpDestroy");
  communicator->factors[static_cast<std::size_t>(number)].reset();
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  FARANDOLE_FAKE_NCCL_CALL();
  open_group().start();
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  static CallSite call_site(__func__);
  if (const ncclResult_t failed = begin_nccl_call(call_site); failed != ncclSuccess) {
    open_group().discard();
    return failed;
  }
  return open_group().end();
}

ncclResult_t ncclSend(const void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      CUstream stream) {
  FARANDOLE_FAKE_NCCL_CALL();
  auto* const bytes = static_cast<std::byte*>(const_cast<void*>(data));
  const Message message{Message::Direction::kSend, MessageClass::kPointToPoint, peer, bytes, 0, {}};
  return enqueue_message("ncclSend", message, count, type, comm, stream);
}

ncclResult_t ncclRecv(void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm, CUstream stream) {
  FARANDOLE_FAKE_NCCL_CALL();
  auto* const bytes = static_cast<std::byte*>(data);
  const Message message{Message::Direction::kReceive, MessageClass::kPointToPoint, peer, bytes, 0, {}};
  return enqueue_message("ncclRecv", message, count, type, comm, stream);
}

ncclResult_t ncclAllReduce(const void* input, void* output, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, CUstream stream) {
  FARANDOLE_FAKE_NCCL_CALL();
  return enqueue_collective("ncclAllReduce", {Collective::kAllReduce, type, op, 0, count}, input, output, comm, stream);
}

ncclResult_t ncclBroadcast(const void* input, void* output, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, CUstream stream) {
  FARANDOLE_FAKE_NCCL_CALL();
  return enqueue_collective("ncclBroadcast", {Collective::kBroadcast, type, 0, root, count}, input, output, comm,
                            stream);
}

ncclResult_t ncclReduce(const void* input, void* output, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                        int root, ncclComm_t comm, CUstream stream) {
  FARANDOLE_FAKE_NCCL_CALL();
  return enqueue_collective("ncclReduce", {Collective::kReduce, type, op, root, count}, input, output, comm, stream);
}

ncclResult_t ncclAllGather(const void* input, void* output, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                           CUstream stream) {
  FARANDOLE_FAKE_NCCL_CALL();
  return enqueue_collective("ncclAllGather", {Collective::kAllGather, type, 0, 0, count}, input, output, comm, stream);
}

ncclResult_t ncclReduceScatter(const void* input, void* output, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, CUstream stream) {
  FARANDOLE_FAKE_NCCL_CALL();
  return enqueue_collective("ncclReduceScatter", {Collective::kReduceScatter, type, op, 0, count}, input, output, comm,
                            stream);
}

}  // extern "C"

}  // namespace farandole::fake

extern "C" unsigned long fake_nccl_idle_polls(void* comm) {
  return static_cast<farandole::fake::Communicator*>(comm)->idle_polls();
}

extern "C" void fake_nccl_set_async_error(void* comm, int error) {
  static_cast<farandole::fake::Communicator*>(comm)->fail(error, "a test has injected this");
}
