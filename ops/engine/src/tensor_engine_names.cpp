// SPDX-License-Identifier: Apache-2.0
// Names that are in use on a rank, and the requests that wait for theirs.
#include <fmt/format.h>

#include <memory>
#include <utility>

#include "tensor_engine.h"

namespace farandole {

/// With `inbox_mutex_` held. True: it is the only one of its name. False: it waits for the earlier ones, and is gone.
///
/// Those that wait come in the order of their calls on each rank. A request is done only when all ranks have submitted
/// one of its name; so the n-th of a name meets the n-th of all ranks, whenever each of them notices that the one
/// before has ended.
/// @throws DuplicateName  the name is not one that comes again
bool TensorEngine::enter_name(std::unique_ptr<LocalRequest>& request) {
  const auto [entry, is_free] = names_.try_emplace({request->process_set, request->spec.name});
  NameInUse& name = entry->second;
  if (!is_free && !request->spec.by_order && name.latest != RequestKind::kRefused) {
    throw DuplicateName(fmt::format(
        "{}: a request of this name is pending on rank {}; give each a name of its own, or wait for the first",
        describe(request->spec), communicator_.rank()));
  }
  name.latest = request->spec.kind;
  if (is_free) return true;
  if (request->waiting != Waiting::kNobody) {
    waited_names_.push_back({entry->first, request->waiting});
    has_inbox_.store(true);
  }
  name.next.push_back(std::move(request));
  return false;
}

/// With `inbox_mutex_` held.
void TensorEngine::hand_over(std::unique_ptr<LocalRequest> request) {
  const std::shared_ptr<void> registration(nullptr, [this, name = Name(request->process_set, request->spec.name),
                                                     counts = request->spec.kind != RequestKind::kRefused,
                                                     waits = request->waiting == Waiting::kCaller](void*) {
    const std::lock_guard lock(inbox_mutex_);
    if (counts) pending_.fetch_sub(1);
    if (waits) pending_waits_.fetch_sub(1);
    leave_name(name);
  });
  for (LocalTensor& tensor : request->tensors) tensor.registration = registration;
  request->ticket = next_ticket_.fetch_add(1);
  request->since = Clock::now();
  inbox_.push_back(std::move(request));
  has_inbox_.store(true);
}

/// With `inbox_mutex_` held: the request that was under way has ended.
void TensorEngine::leave_name(const Name& name) {
  const auto found = names_.find(name);
  if (found->second.next.empty()) {
    names_.erase(found);
    return;
  }
  auto next = std::move(found->second.next.front());
  found->second.next.pop_front();
  hand_over(std::move(next));
}

void TensorEngine::refuse(LocalRequest&& request) {
  {
    const std::lock_guard lock(inbox_mutex_);
    const auto set = set_infos_.find(request.process_set);
    if (request.spec.name.empty() || fault_ || set == set_infos_.end() || !set->second.is_member) return;
    if (set->second.ranks.size() == 1 || request.generation > set->second.generation) return;
    auto owned = std::make_unique<LocalRequest>(std::move(request));
    try {
      if (enter_name(owned)) hand_over(std::move(owned));
    } catch (const DuplicateName&) {
      return;  // the ranks compare the one that is pending
    }
  }
  wake();
}

}  // namespace farandole
