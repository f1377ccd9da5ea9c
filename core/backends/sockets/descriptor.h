// SPDX-License-Identifier: Apache-2.0
// Owner of a file descriptor.
#pragma once

#include <unistd.h>

#include <utility>

#include "farandole/internal/standard_descriptors.h"

namespace farandole::sockets {

/// Closes the descriptor on destruction; -1 means empty. A descriptor from 0 to 2 (a standard stream that the program
/// has closed) is replaced by a duplicate with a higher number, so that output of the program never goes into a socket.
class UniqueDescriptor {
 public:
  UniqueDescriptor() = default;
  explicit UniqueDescriptor(int descriptor) : descriptor_(above_standard_descriptors(descriptor)) {}
  UniqueDescriptor(UniqueDescriptor&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  UniqueDescriptor& operator=(UniqueDescriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~UniqueDescriptor() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  int get() const { return descriptor_; }
  explicit operator bool() const { return descriptor_ >= 0; }

 private:
  int descriptor_ = -1;
};

}  // namespace farandole::sockets
