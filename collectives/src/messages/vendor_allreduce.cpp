// SPDX-License-Identifier: Apache-2.0
#include "messages/vendor_allreduce.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <exception>

#include "farandole/core/error.h"
#include "farandole/core/reduce.h"
#include "farandole/internal/library_thread.h"
#include "operation/method_inputs.h"

namespace farandole {

/// State shared with the thread that makes the collectives. The slot joins that thread only after `done`, because after
/// a fault the vendor's call may never return. The release of `done` pairs with the reader's acquire.
struct VendorSlot::Creation {
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

/// True if the settings or the tuning table, which are the same on all ranks, name the algorithm `vendor`.
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
  creation_ = std::make_shared<Creation>();
  if (!group_.endpoint->progress().usable_from_any_thread()) {
    creation_->run(group_);
    return;
  }
  thread_ = start_library_thread([creation = creation_, group = group_] { creation->run(group); });
}

VendorCollectives* VendorSlot::collectives() {
  if (collectives_ != nullptr) return collectives_;
  if (!creation_ && !group_.endpoint->progress().usable_from_any_thread()) {
    throw Unsupported(
        "the algorithm vendor, with an MPI that only the main thread may call, must be named by "
        "FARANDOLE_ALLREDUCE=vendor "
        "or the tuning table, so that each communicator is made with it; or initialise MPI with MPI_THREAD_MULTIPLE");
  }
  if (!creation_) begin();
  if (!creation_->done.load(std::memory_order_acquire)) return nullptr;
  if (creation_->problem) std::rethrow_exception(creation_->problem);
  collectives_ = creation_->collectives.get();
  if (collectives_ == nullptr) {
    throw Unsupported(
        "the algorithm vendor needs MPI and one rank per process in the communicator; choose another algorithm");
  }
  return collectives_;
}

VendorSlot::~VendorSlot() {
  close();
}

void VendorSlot::close() {
  collectives_ = nullptr;
  if (thread_.joinable()) {
    // After `done` the thread ends immediately. Before `done` the thread is in the vendor's call, which may never
    // return: detach it.
    creation_->done.load(std::memory_order_acquire) ? thread_.join() : thread_.detach();
  }
  creation_.reset();
}

constinit const Method kVendorMethod{
    .name = "vendor",
    .number = 0xfe,
    .needs = "the transport mpi, with one rank per process",
    .supports = [](Collective collective) { return collective == Collective::kAllreduce; },
    .fits = [](const TuningShape& shape) { return shape.transport == "mpi"; },
    // Always available if the caller names it: the operation then throws an error that says what is missing.
    .is_available = [](const SelectionQuery& query, bool from_table) { return !from_table || query.vendor_agrees; },
    .announce = [](const MethodInputs& inputs) { inputs.vendor.announce(inputs.sequence); },
    .make = [](const MethodInputs& inputs) -> std::unique_ptr<Operation> {
      return std::make_unique<VendorAllreduce>(inputs.group, inputs.vendor, inputs.prepared.call, inputs.sequence);
    },
};

Operation::State VendorAllreduce::advance() {
  if (!transfer_) {
    if (!vendor_.is_next(sequence_)) return State::kWaiting;
    VendorCollectives* const collectives = vendor_.collectives();
    if (collectives == nullptr) return State::kWaiting;
    vendor_.withdraw(sequence_);
    begin(*collectives);
  }
  if (!transfer_->test()) return State::kWaiting;
  if (call_.final_scale != 1.0) {
    scale(call_.output.data, call_.output.data, call_.output.count, call_.output.dtype, call_.final_scale);
  }
  return State::kDone;
}

void VendorAllreduce::begin(VendorCollectives& collectives) {
  const ConstBufferView& input = call_.input;
  if (!collectives.supports(input.dtype, call_.op)) {
    throw Unsupported(fmt::format("the vendor's allreduce does not support {} of {}; choose another algorithm",
                                  name(call_.op), name(input.dtype)));
  }
  const void* data = input.data;
  if (call_.prescale != 1.0) {
    scale(call_.output.data, data, input.count, input.dtype, call_.prescale);
    data = call_.output.data;
  }
  transfer_ = collectives.allreduce(data, call_.output.data, input.count, input.dtype, call_.op);
}

}  // namespace farandole
