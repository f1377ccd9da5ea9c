// SPDX-License-Identifier: Apache-2.0
// Communicator: point-to-point messages.
#include "communicator/communicator_state.h"
#include "farandole/collectives/communicator.h"

namespace farandole {

void Communicator::send(ConstBufferView values, int target, int tag) {
  state().messages().send(values, target, tag);
}
Work Communicator::send_async(AsyncInput values, int target, int tag) {
  return Work(state().messages().start_send(values, target, tag));
}

int Communicator::recv(BufferView values, int source, int tag) {
  return state().messages().recv(values, source, tag);
}
Work Communicator::recv_async(BufferView values, int source, int tag) {
  return Work(state().messages().start_recv(values, source, tag));
}

}  // namespace farandole
