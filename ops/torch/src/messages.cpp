// SPDX-License-Identifier: Apache-2.0
// Functions of FarandoleBackend that send and receive messages.
#include <c10/util/StringUtil.h>

#include <utility>

#include "call_start.h"

namespace farandole_torch {
namespace {

using WorkPointer = c10::intrusive_ptr<c10d::Work>;

/// The Work of a message on a device in a block of coalesced calls, which has not started.
class DeferredMessage final : public c10d::Work {
 public:
  using Work::Work;
  bool isCompleted() override { return false; }
  bool wait(std::chrono::milliseconds /*timeout*/) override {
    throw_error(FARANDOLE_INVALID_ARGUMENT,
                "wait: messages of tensors on devices start at the end of the block of coalesced calls; wait for the "
                "work of the block");
  }
};

}  // namespace

/// `peer` is FARANDOLE_ANY_SOURCE for a receive from any rank.
WorkPointer FarandoleBackend::send_or_recv(const at::Tensor& tensor, c10d::OpType type, int peer, int tag) {
  const bool is_send = type == c10d::OpType::SEND;
  const char* const what = is_send ? "send" : "recv";
  const Staged staged = stage(tensor, is_send ? Use::kInput : Use::kOutput, what);
  const Elements& values = staged.elements;
  const farandole_message message{sizeof message, values.data, values.count, values.dtype, is_send ? 0 : 1, peer, tag};
  StreamUse use;
  if (!tensor.is_cpu()) {
    if (peer == FARANDOLE_ANY_SOURCE) {
      throw_error(
          FARANDOLE_UNSUPPORTED,
          "recv: a tensor on a device is received from a certain rank; pass `src`, or send a copy, tensor.cpu()");
    }
    if (defer(staged, message)) return c10::make_intrusive<DeferredMessage>(rank_, type);
    use = {is_send ? StreamUse::Kind::kSend : StreamUse::Kind::kReceive, peer};
  }
  const Tensors tensors{tensor};
  const char* const title = is_send                        ? "farandole:send"
                            : peer == FARANDOLE_ANY_SOURCE ? "farandole:recvAnySource"
                                                           : "farandole:recv";
  Start start(*this, Mode{}, type, title, tensors, is_send ? Tensors{} : tensors, use);
  start.use(staged);
  if (is_send) {
    call(farandole_send, start.comm(), values.data, values.count, values.dtype, peer, tag, start.options(),
         start.handle());
  } else {
    call(farandole_recv, start.comm(), values.data, values.count, values.dtype, peer, tag, nullptr, start.options(),
         start.handle());
  }
  return start.launch();
}

WorkPointer FarandoleBackend::send(Tensors& tensors, int target, int tag) {
  return send_or_recv(only(tensors, "send"), c10d::OpType::SEND, target, tag);
}

WorkPointer FarandoleBackend::recv(Tensors& tensors, int source, int tag) {
  return send_or_recv(only(tensors, "recv"), c10d::OpType::RECV, source, tag);
}

WorkPointer FarandoleBackend::recvAnysource(Tensors& tensors, int tag) {
  return send_or_recv(only(tensors, "recv"), c10d::OpType::RECVANYSOURCE, FARANDOLE_ANY_SOURCE, tag);
}

c10::intrusive_ptr<CallWork> FarandoleBackend::exchange(const std::vector<DeviceMessage>& messages) {
  Tensors sent, received;
  std::vector<farandole_message> list;
  for (const auto& [staged, message] : messages) {
    (message.is_receive != 0 ? received : sent).push_back(staged.tensor);
    list.push_back(message);
  }
  Start start(*this, Mode{}, c10d::OpType::COALESCED, "farandole:exchange", sent, received,
              {StreamUse::Kind::kExchange});
  for (const DeviceMessage& each : messages) start.use(each.staged);
  call(farandole_exchange, start.comm(), list.data(), list.size(), start.options());
  return start.launch();
}

}  // namespace farandole_torch
