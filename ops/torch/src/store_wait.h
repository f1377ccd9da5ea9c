// SPDX-License-Identifier: Apache-2.0
// Waits for keys of torch's stores.
#pragma once

#include <chrono>
#include <exception>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace farandole_torch {

/// Waits for a key of the store until `end`. Returns whether it is there. @throws std::exception  the store has failed
inline bool wait_for_key(c10d::Store& store, const std::string& key, std::chrono::steady_clock::time_point end) {
  using Milliseconds = std::chrono::milliseconds;
  const auto left = std::chrono::duration_cast<Milliseconds>(end - std::chrono::steady_clock::now());
  if (left > Milliseconds::zero()) {
    try {
      store.wait({key}, left);
    } catch (const std::exception&) {  // stores throw different classes at the timeout
    }
  }
  return store.check({key});
}

}  // namespace farandole_torch
