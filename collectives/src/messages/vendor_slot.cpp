// SPDX-License-Identifier: Apache-2.0
#include "messages/vendor_slot.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <utility>

#include "farandole/core/error.h"
#include "farandole/internal/library_thread.h"

namespace farandole {

/// Shared with the thread that makes them, which is not waited for while the vendor has not returned: after a fault it
/// may never do. `done` is set before the thread ends; its release pairs with the acquire of the thread that looks.
struct VendorSlot::Making {
  std::unique_ptr<VendorCollectives> collectives;
  std::exception_ptr problem;
  std::atomic<bool> done{false};

  void run(const Group& group) {
    try {
      collectives = group.endpoint->vendor_collectives(group.members, group.id);
    } catch (...) {
      problem = std::current_exception();
    }
    done.store(true, std::memory_order_release);
    group.endpoint->progress().ring();
  }
};

namespace {

/// Whether the settings or the table, which are the same on all ranks, name the algorithm.
bool is_named(const Group& group) {
  if (group.endpoint->settings().collectives.allreduce == "vendor") return true;
  if (!group.table_fits) return false;
  const auto& entries = group.table->of(Collective::kAllreduce);
  return std::any_of(entries.begin(), entries.end(), [](const auto& entry) { return entry.algorithm == "vendor"; });
}

}  // namespace

VendorSlot::VendorSlot(const Group& group) : group_(group) {
  if (!group_.endpoint->progress().usable_from_any_thread() && is_named(group_)) begin();
}

void VendorSlot::begin() {
  making_ = std::make_shared<Making>();
  if (!group_.endpoint->progress().usable_from_any_thread()) {
    making_->run(group_);
    return;
  }
  thread_ = start_library_thread([making = making_, group = group_] { making->run(group); });
}

VendorCollectives* VendorSlot::collectives() {
  if (made_ != nullptr) return made_;
  if (!making_ && !group_.endpoint->progress().usable_from_any_thread()) {
    throw Unsupported(
        "the algorithm vendor, with an MPI that only the main thread may call, must be named by "
        "FARANDOLE_ALLREDUCE=vendor "
        "or the tuning table, so that each communicator is made with it; or initialise MPI with MPI_THREAD_MULTIPLE");
  }
  if (!making_) begin();
  if (!making_->done.load(std::memory_order_acquire)) return nullptr;
  if (making_->problem) std::rethrow_exception(making_->problem);
  made_ = making_->collectives.get();
  if (made_ == nullptr) {
    throw Unsupported(
        "the algorithm vendor needs MPI and one rank per process in the communicator; choose another algorithm");
  }
  return made_;
}

VendorSlot::~VendorSlot() {
  close();
}

void VendorSlot::close() {
  made_ = nullptr;
  if (thread_.joinable()) {
    // It ends at once after `done`; otherwise the vendor has not returned, and may never.
    making_->done.load(std::memory_order_acquire) ? thread_.join() : thread_.detach();
  }
  making_.reset();
}

}  // namespace farandole
