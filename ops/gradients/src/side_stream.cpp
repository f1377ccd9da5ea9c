// SPDX-License-Identifier: Apache-2.0
#include "side_stream.h"

#include <utility>

namespace farandole {

StreamView SideStream::fork(StreamView stream) {
  is_forked_ = true;
  device_.record(*forked_, stream);
  device_.wait(stream_, *forked_);
  return stream_;
}

void SideStream::join(StreamView stream) {
  if (!std::exchange(is_forked_, false)) return;
  device_.record(*joined_, stream_);
  device_.wait(stream, *joined_);
}

}  // namespace farandole
