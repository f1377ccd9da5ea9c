// SPDX-License-Identifier: Apache-2.0
// The C header's functions for windows.
#include <optional>
#include <unordered_map>
#include <utility>

#include "farandole/internal/forked_children.h"
#include "process.h"

namespace farandole {
namespace {

/// Windows (memory that the ranks of this host share) in use, by address. Windows stay valid after farandole_shutdown,
/// because frameworks free tensors later, for example in destructors at process exit. A forked child keeps the table:
/// farandole_window_free must still recognise the parent's windows.
using Windows = std::unordered_map<void*, Buffer>;
void keep_in_child(Windows&) {}
using WindowTable = ProcessState<Windows, keep_in_child>;

void* add_window(Buffer window) {
  void* const memory = window.view().data;
  WindowTable::access()->emplace(memory, std::move(window));
  return memory;
}

/// Removes a window from the table and returns it; empty if `memory` is not a window. The caller frees the window by
/// destroying the result, once the table is unlocked, because freeing may take other locks.
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
    return nullptr;  // no memory left in the window arena: the caller uses ordinary memory
  }
}

extern "C" int farandole_window_free(void* memory) {
  return farandole::take_window(memory).has_value() ? 1 : 0;
}
