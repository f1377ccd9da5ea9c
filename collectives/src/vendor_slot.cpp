#include "vendor_slot.h"

#include <atomic>
#include <exception>
#include <thread>
#include <utility>

#include "farandole/core/error.h"

namespace farandole {

/// Shared with the thread that makes them, which nobody waits for: after a fault the vendor may never return. `done` is
/// set last; its release pairs with the acquire of whoever looks.
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
    group.endpoint->ring();
  }
};

VendorSlot::VendorSlot(const Group& group) : group_(group) {
  if (!group_.endpoint->usable_from_any_thread()) begin();
}

void VendorSlot::begin() {
  making_ = std::make_shared<Making>();
  if (!group_.endpoint->usable_from_any_thread()) {
    making_->run(group_);
    return;
  }
  std::thread([making = making_, group = group_] { making->run(group); }).detach();
}

VendorCollectives* VendorSlot::collectives() {
  if (made_ != nullptr) return made_;
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

void VendorSlot::close() {
  made_ = nullptr;
  making_.reset();
}

}  // namespace farandole
