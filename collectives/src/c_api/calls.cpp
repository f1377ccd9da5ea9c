// SPDX-License-Identifier: Apache-2.0
// The functions of farandole/collectives.h that move data, and those of their work handles.
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "c_api/handles.h"
#include "farandole/collectives.h"
#include "farandole/internal/c_interface.h"

namespace farandole {
namespace {

/// Arguments of one call, checked and translated.
class CallArguments {
 public:
  /// @throws InvalidArgument  an argument is out of its range
  CallArguments(const char* function, farandole_comm* comm, const farandole_dtype& dtype,
                const farandole_call_options* options)
      : function_(function), dtype_(static_cast<DType>(number_in(dtype))) {
    need(comm, function, "comm");
    communicator_ = &comm->communicator;
    if (number_in(dtype) < 0 || number_in(dtype) >= kDTypeCount) {
      throw InvalidArgument(fmt::format("{}: dtype is {}; expected a farandole_dtype", function, number_in(dtype)));
    }
    read(known_options(options, function, "farandole_call_options"));
  }

  Communicator& communicator() const { return *communicator_; }
  const CallOptions& options() const { return options_; }
  MemorySpace space() const { return space_; }
  ConstBufferView input(const void* data, std::size_t count) const {
    return {checked(data, count), count, dtype_, space_};
  }
  BufferView output(void* data, std::size_t count) const {
    (void)checked(data, count);
    return {data, count, dtype_, space_};
  }
  /// The list of counts of all ranks; empty if `counts` is null.
  std::span<const std::size_t> counts(const std::size_t* counts) const {
    if (counts == nullptr) return {};
    return {counts, static_cast<std::size_t>(communicator_->size())};
  }
  /// Sum of the counts of all ranks, `count` of each rank if `counts` is null.
  std::size_t total(const std::size_t* counts, std::size_t count) const {
    const auto ranks = static_cast<std::size_t>(communicator_->size());
    if (counts != nullptr) return std::accumulate(counts, counts + ranks, std::size_t{0});
    if (count > SIZE_MAX / ranks) {
      throw InvalidArgument(fmt::format("{}: {} elements for each of {} ranks are more than an address space holds",
                                        function_, count, ranks));
    }
    return count * ranks;
  }
  /// The stream of a message. @throws InvalidArgument  an option is set that messages do not have
  StreamView stream_of_message() const {
    if (options_.prescale != 1.0 || options_.postscale != 1.0 || options_.segments != 0 ||
        !options_.algorithm.empty()) {
      throw InvalidArgument(fmt::format("{}: messages have the options memory, device and stream only", function_));
    }
    return options_.stream;
  }
  ReduceOp op(const farandole_reduce_op& op) const {
    for (const ReduceOp known : kAllReduceOps) {
      if (static_cast<int>(known) == number_in(op)) return known;
    }
    throw InvalidArgument(fmt::format("{}: op is {}; expected a farandole_reduce_op other than FARANDOLE_ADASUM",
                                      function_, number_in(op)));
  }

 private:
  const void* checked(const void* data, std::size_t count) const {
    if (data == nullptr && count > 0) {
      throw InvalidArgument(fmt::format("{}: a buffer of {} elements is NULL", function_, count));
    }
    (void)allocated_bytes(count, dtype_);  // throws if no address space holds them
    return data;
  }
  void read(const farandole_call_options& known) {
    if (known.has_factors != 0) {
      options_.prescale = known.prescale;
      options_.postscale = known.postscale;
    }
    options_.segments = known.segments;
    options_.algorithm = text_or_none(known.algorithm);
    if (known.memory == FARANDOLE_CUDA_MEMORY) {
      if (known.device < 0 || known.device > UINT16_MAX) {
        throw InvalidArgument(
            fmt::format("{}: device is {}; expected the ordinal of a device", function_, known.device));
      }
      space_ = {MemoryKind::kCuda, static_cast<std::uint16_t>(known.device)};
    } else if (known.memory != FARANDOLE_HOST_MEMORY) {
      throw InvalidArgument(fmt::format("{}: memory is {}; expected a farandole_memory", function_, known.memory));
    }
    if (known.stream == nullptr && known.has_stream == 0) return;
    if (space_.is_host()) throw InvalidArgument(fmt::format("{}: a call on host memory has a stream", function_));
    options_.stream = StreamView(known.stream, space_);
  }

  const char* const function_;
  Communicator* communicator_ = nullptr;
  const DType dtype_;
  MemorySpace space_;
  CallOptions options_;
};

/// Copies the caller's messages. @throws InvalidArgument  `struct_bytes` of a message is impossible, or differs from
/// that of the first
std::vector<farandole_message> known_messages(const farandole_message* messages, std::size_t count,
                                              const char* function) {
  std::vector<farandole_message> known;
  if (count == 0) return known;
  const std::size_t bytes = struct_bytes_of(messages);
  for (std::size_t i = 0; i < count; ++i) {
    const auto* const message = static_cast<const farandole_message*>(element_of(messages, bytes, i));
    known.push_back(known_options(message, function, "farandole_message"));
    if (struct_bytes_of(message) == bytes) continue;
    throw InvalidArgument(
        fmt::format("{}: struct_bytes of message {} is {}, that of the first one {}; they must be the "
                    "same",
                    function, i, struct_bytes_of(message), bytes));
  }
  return known;
}

/// Runs a call: blocks if `work` is null, otherwise stores the handle there. @param run, start  the two forms of the
/// call
/// @param space  where the buffers lie
template <class Run, class Start>
void run_or_start(farandole_work** work, MemorySpace space, const Run& run, const Start& start) {
  if (work == nullptr) return run();
  *work = nullptr;
  auto handle = std::make_unique<farandole_work>();
  handle->space = space;
  handle->work = start();
  *work = handle.release();
}

}  // namespace
}  // namespace farandole

using namespace farandole;  // NOLINT: this file is the C face of the namespace

extern "C" {

int farandole_allreduce(farandole_comm* comm, const void* input, void* output, size_t count, farandole_dtype dtype,
                        farandole_reduce_op op, const farandole_call_options* options, farandole_work** work,
                        farandole_error** error) {
  return guarded(error, [&] {
    const CallArguments call("farandole_allreduce", comm, dtype, options);
    const ConstBufferView from = call.input(input, count);
    const BufferView to = call.output(output, count);
    run_or_start(
        work, call.space(), [&] { call.communicator().allreduce(from, to, call.op(op), call.options()); },
        [&] { return call.communicator().allreduce_async(from, to, call.op(op), call.options()); });
  });
}

int farandole_broadcast(farandole_comm* comm, void* values, size_t count, farandole_dtype dtype, int32_t root,
                        const farandole_call_options* options, farandole_work** work, farandole_error** error) {
  return guarded(error, [&] {
    const CallArguments call("farandole_broadcast", comm, dtype, options);
    const BufferView to = call.output(values, count);
    run_or_start(
        work, call.space(), [&] { call.communicator().broadcast(to, root, call.options()); },
        [&] { return call.communicator().broadcast_async(to, root, call.options()); });
  });
}

int farandole_reduce(farandole_comm* comm, const void* input, void* output, size_t count, farandole_dtype dtype,
                     farandole_reduce_op op, int32_t root, const farandole_call_options* options, farandole_work** work,
                     farandole_error** error) {
  return guarded(error, [&] {
    const CallArguments call("farandole_reduce", comm, dtype, options);
    const ConstBufferView from = call.input(input, count);
    const bool is_root = call.communicator().rank() == root;
    const BufferView to = call.output(is_root ? output : nullptr, is_root ? count : 0);
    run_or_start(
        work, call.space(), [&] { call.communicator().reduce(from, to, call.op(op), root, call.options()); },
        [&] { return call.communicator().reduce_async(from, to, call.op(op), root, call.options()); });
  });
}

int farandole_allgather(farandole_comm* comm, const void* input, size_t count, void* output, const size_t* counts,
                        farandole_dtype dtype, const farandole_call_options* options, farandole_work** work,
                        farandole_error** error) {
  return guarded(error, [&] {
    const CallArguments call("farandole_allgather", comm, dtype, options);
    const ConstBufferView from = call.input(input, count);
    const BufferView to = call.output(output, call.total(counts, count));
    run_or_start(
        work, call.space(), [&] { call.communicator().allgather(from, to, call.counts(counts), call.options()); },
        [&] { return call.communicator().allgather_async(from, to, call.counts(counts), call.options()); });
  });
}

int farandole_reduce_scatter(farandole_comm* comm, const void* input, void* output, size_t count, const size_t* counts,
                             farandole_dtype dtype, farandole_reduce_op op, const farandole_call_options* options,
                             farandole_work** work, farandole_error** error) {
  return guarded(error, [&] {
    const CallArguments call("farandole_reduce_scatter", comm, dtype, options);
    const ConstBufferView from = call.input(input, call.total(counts, count));
    const BufferView to = call.output(output, count);
    run_or_start(
        work, call.space(),
        [&] { call.communicator().reduce_scatter(from, to, call.op(op), call.counts(counts), call.options()); },
        [&] {
          return call.communicator().reduce_scatter_async(from, to, call.op(op), call.counts(counts), call.options());
        });
  });
}

int farandole_gather(farandole_comm* comm, const void* input, size_t count, void* output, const size_t* counts,
                     farandole_dtype dtype, int32_t root, const farandole_call_options* options, farandole_work** work,
                     farandole_error** error) {
  return guarded(error, [&] {
    const CallArguments call("farandole_gather", comm, dtype, options);
    const ConstBufferView from = call.input(input, count);
    const bool is_root = call.communicator().rank() == root;
    const BufferView to = call.output(is_root ? output : nullptr, is_root ? call.total(counts, count) : 0);
    run_or_start(
        work, call.space(), [&] { call.communicator().gather(from, to, root, call.counts(counts), call.options()); },
        [&] { return call.communicator().gather_async(from, to, root, call.counts(counts), call.options()); });
  });
}

int farandole_scatter(farandole_comm* comm, const void* input, void* output, size_t count, const size_t* counts,
                      farandole_dtype dtype, int32_t root, const farandole_call_options* options, farandole_work** work,
                      farandole_error** error) {
  return guarded(error, [&] {
    const CallArguments call("farandole_scatter", comm, dtype, options);
    const bool is_root = call.communicator().rank() == root;
    const ConstBufferView from = call.input(is_root ? input : nullptr, is_root ? call.total(counts, count) : 0);
    const BufferView to = call.output(output, count);
    run_or_start(
        work, call.space(), [&] { call.communicator().scatter(from, to, root, call.counts(counts), call.options()); },
        [&] { return call.communicator().scatter_async(from, to, root, call.counts(counts), call.options()); });
  });
}

int farandole_alltoall(farandole_comm* comm, const void* input, void* output, size_t count, const size_t* send_counts,
                       const size_t* recv_counts, farandole_dtype dtype, const farandole_call_options* options,
                       farandole_work** work, farandole_error** error) {
  return guarded(error, [&] {
    const CallArguments call("farandole_alltoall", comm, dtype, options);
    if ((send_counts == nullptr) != (recv_counts == nullptr)) {
      throw InvalidArgument("farandole_alltoall: one of send_counts and recv_counts is NULL; pass both or none");
    }
    const ConstBufferView from = call.input(input, call.total(send_counts, count));
    const BufferView to = call.output(output, call.total(recv_counts, count));
    const auto sent = call.counts(send_counts);
    const auto received = call.counts(recv_counts);
    run_or_start(
        work, call.space(), [&] { call.communicator().alltoall(from, to, sent, received, call.options()); },
        [&] { return call.communicator().alltoall_async(from, to, sent, received, call.options()); });
  });
}

int farandole_barrier(farandole_comm* comm, farandole_work** work, farandole_error** error) {
  return guarded(error, [&] {
    need(comm, "farandole_barrier", "comm");
    run_or_start(
        work, MemorySpace{}, [&] { comm->communicator.barrier(); }, [&] { return comm->communicator.barrier_async(); });
  });
}

int farandole_send(farandole_comm* comm, const void* values, size_t count, farandole_dtype dtype, int32_t target,
                   int32_t tag, const farandole_call_options* options, farandole_work** work, farandole_error** error) {
  return guarded(error, [&] {
    const CallArguments call("farandole_send", comm, dtype, options);
    const ConstBufferView from = call.input(values, count);
    const StreamView stream = call.stream_of_message();
    run_or_start(
        work, call.space(), [&] { call.communicator().send(from, target, tag, stream); },
        [&] { return call.communicator().send_async(from, target, tag, stream); });
  });
}

int farandole_recv(farandole_comm* comm, void* values, size_t count, farandole_dtype dtype, int32_t source, int32_t tag,
                   int32_t* sender, const farandole_call_options* options, farandole_work** work,
                   farandole_error** error) {
  return guarded(error, [&] {
    const CallArguments call("farandole_recv", comm, dtype, options);
    const BufferView to = call.output(values, count);
    const StreamView stream = call.stream_of_message();
    run_or_start(
        work, call.space(),
        [&] {
          const int from = call.communicator().recv(to, source, tag, stream);
          if (sender != nullptr) *sender = from;
        },
        [&] { return call.communicator().recv_async(to, source, tag, stream); });
  });
}

int farandole_exchange(farandole_comm* comm, const farandole_message* messages, size_t message_count,
                       const farandole_call_options* options, farandole_error** error) {
  return guarded(error, [&] {
    constexpr const char* kName = "farandole_exchange";
    const CallArguments common(kName, comm, FARANDOLE_U8, options);
    if (message_count > 0) need(messages, kName, "messages");
    std::vector<PeerMessage> list;
    for (const farandole_message& message : known_messages(messages, message_count, kName)) {
      const BufferView values =
          CallArguments(kName, comm, message.dtype, options).output(message.values, message.count);
      list.push_back(message.is_receive != 0 ? PeerMessage::recv(values, message.peer, message.tag)
                                             : PeerMessage::send(values, message.peer, message.tag));
    }
    common.communicator().exchange(list, common.stream_of_message());
  });
}

int farandole_work_wait(farandole_work* work, farandole_error** error) {
  return guarded(error, [&] {
    need(work, "farandole_work_wait", "work");
    if (work->work.valid()) work->work.wait();
  });
}
int farandole_work_test(farandole_work* work) {
  // A call that has failed is done; farandole_work_wait says why.
  return work == nullptr || !work->work.valid() ? 1 : value_or(1, [&] { return work->work.test() ? 1 : 0; });
}
int farandole_work_wait_on(farandole_work* work, void* stream, farandole_error** error) {
  return guarded(error, [&] {
    need(work, "farandole_work_wait_on", "work");
    if (!work->work.valid()) return;
    work->work.wait_on(StreamView(stream, work->space));
  });
}
int32_t farandole_work_source(const farandole_work* work) {
  if (work == nullptr || !work->work.valid()) return -1;
  return value_or(-1, [&] { return work->work.source(); });
}

int farandole_work_on_done(farandole_work* work, void* context, void (*done)(void*, const farandole_error*),
                           farandole_error** error) {
  return guarded(error, [&] {
    need(work, "farandole_work_on_done", "work");
    need(done, "farandole_work_on_done", "done");
    if (!work->work.valid()) return done(context, nullptr);
    work->work.on_done([context, done](const Error* failure) {
      if (failure == nullptr) return done(context, nullptr);
      const farandole_error shown{failure->kind(), failure->message()};
      done(context, &shown);
    });
  });
}
void farandole_work_free(farandole_work* work) {
  if (work == nullptr) return;
  (void)guarded(nullptr, [&] {
    if (work->work.valid()) work->work.detach();
  });
  delete work;
}

}  // extern "C"
