// SPDX-License-Identifier: Apache-2.0
// The functions of farandole/base.h: errors, and windows.
#include "farandole/base.h"

#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>

#include "farandole/internal/c_interface.h"
#include "farandole/internal/forked_children.h"
#include "farandole/internal/shared_world.h"

namespace farandole {
namespace {

/// Windows (memory that the ranks of this host share) in use, by address. Windows stay valid after the end of the job,
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

using namespace farandole;  // NOLINT: this file is the C face of the namespace

extern "C" {

farandole_error_kind farandole_error_get_kind(const farandole_error* error) {
  return error == nullptr ? FARANDOLE_INTERNAL : static_cast<farandole_error_kind>(error->kind);
}
const char* farandole_error_kind_name(farandole_error_kind kind) {
  return name(static_cast<ErrorKind>(kind)).data();
}
const char* farandole_error_text(const farandole_error* error) {
  return error == nullptr ? "" : error->text.c_str();
}
void farandole_error_free(farandole_error* error) {
  delete error;
}

void* farandole_window_allocate(size_t bytes) {
  // Without memory left in the window arena the caller uses ordinary memory.
  return value_or<void*>(nullptr, [&]() -> void* {
    const auto world = SharedWorld::current();
    if (!world || bytes == 0 || !world->shares_memory()) return nullptr;
    return add_window(world->allocate(bytes));
  });
}
int farandole_window_free(void* memory) {
  return value_or(0, [&] { return take_window(memory).has_value() ? 1 : 0; });
}

}  // extern "C"
