// SPDX-License-Identifier: Apache-2.0
// Temporary memory of an operation.
#pragma once

#include <cstddef>
#include <memory>

namespace farandole {

/// Owner of temporary memory, not initialised.
class Scratch {
 public:
  Scratch() = default;
  explicit Scratch(std::size_t bytes) : bytes_(bytes), memory_(std::make_unique_for_overwrite<std::byte[]>(bytes)) {}
  std::byte* data() const { return memory_.get(); }
  std::size_t size() const { return bytes_; }

 private:
  std::size_t bytes_ = 0;
  std::unique_ptr<std::byte[]> memory_;
};

}  // namespace farandole
