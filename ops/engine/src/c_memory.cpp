// Windows for callers of the C header.
#include <mutex>
#include <unordered_map>
#include <utility>

#include "process.h"

namespace farandole {
namespace {

/// The windows that are in use; they outlive the engine.
class WindowTable {
 public:
  void* add(Buffer window) {
    void* const memory = window.view().data;
    const std::lock_guard lock(mutex_);
    windows_.emplace(memory, std::move(window));
    return memory;
  }
  bool remove(void* memory) {
    Buffer window;
    const std::lock_guard lock(mutex_);
    const auto found = windows_.find(memory);
    if (found == windows_.end()) return false;
    window = std::move(found->second);
    windows_.erase(found);
    return true;
  }
  /// Never destroyed: frameworks free memory after the program's end.
  static WindowTable& of_process() {
    static auto* table = new WindowTable();
    return *table;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<void*, Buffer> windows_;
};

}  // namespace
}  // namespace farandole

extern "C" void* farandole_window_allocate(size_t bytes) {
  try {
    const auto process = farandole::engine_process();
    if (!process || bytes == 0 || !process->communicator.shares_memory()) return nullptr;
    return farandole::WindowTable::of_process().add(process->engine.allocate(bytes));
  } catch (const std::exception&) {
    return nullptr;  // no room: the caller uses ordinary memory
  }
}

extern "C" int farandole_window_free(void* memory) {
  return farandole::WindowTable::of_process().remove(memory) ? 1 : 0;
}
