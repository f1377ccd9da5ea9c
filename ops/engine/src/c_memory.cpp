// SPDX-License-Identifier: Apache-2.0
// Windows for callers of the C header.
#include <optional>
#include <unordered_map>
#include <utility>

#include "farandole/internal/forked_children.h"
#include "process.h"

namespace farandole {
namespace {

/// The windows that are in use; they outlive the engine, and frameworks free memory after the program's end. A forked
/// child still knows which memory is a window of its parent's.
using Windows = std::unordered_map<void*, Buffer>;
void keep_in_child(Windows&) {}
using WindowTable = ProcessState<Windows, keep_in_child>;

void* add_window(Buffer window) {
  void* const memory = window.view().data;
  WindowTable::access()->emplace(memory, std::move(window));
  return memory;
}

/// Empty if there is none. Released by the caller, because that may take locks.
std::optional<Buffer> take_window(void* memory) {
  auto windows = WindowTable::access();
  const auto found = windows->find(memory);
  if (found == windows->end()) return std::nullopt;
  std::optional<Buffer> window = std::move(found->second);
  windows->erase(found);
  return window;
}

}  // namespace
}  // namespace farandole

extern "C" void* farandole_window_allocate(size_t bytes) {
  try {
    const auto process = farandole::engine_process();
    if (!process || bytes == 0 || !process->communicator.shares_memory()) return nullptr;
    return farandole::add_window(process->engine.allocate(bytes));
  } catch (const std::exception&) {
    return nullptr;  // no room: the caller uses ordinary memory
  }
}

extern "C" int farandole_window_free(void* memory) {
  return farandole::take_window(memory).has_value() ? 1 : 0;
}
