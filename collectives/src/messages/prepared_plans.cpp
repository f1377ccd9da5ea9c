// SPDX-License-Identifier: Apache-2.0
#include "messages/prepared_plans.h"

#include <utility>

#include "messages/hierarchical_call.h"

namespace farandole {
namespace {

template <class Element>
std::size_t bytes_of_elements(const std::vector<Element>& elements) {
  return elements.capacity() * sizeof(Element);
}

/// Bytes of a cached plan and its key.
std::size_t bytes_of_plan(const PreparedPlan& prepared, const HierarchicalQuery& query) {
  std::size_t bytes = sizeof prepared + sizeof query + bytes_of_elements(query.counts) +
                      bytes_of_elements(prepared.selections) + bytes_of_elements(prepared.across.members) +
                      bytes_of_elements(prepared.plan.across) + bytes_of_elements(prepared.plan.phases);
  for (const HierarchicalPhase& phase : prepared.plan.phases) {
    bytes += bytes_of_elements(phase.counts) + bytes_of_elements(phase.recv_counts) + bytes_of_elements(phase.before) +
             bytes_of_elements(phase.results);
  }
  return bytes;
}

}  // namespace

std::shared_ptr<const PreparedPlan> PreparedPlans::get(const HierarchicalQuery& query, std::size_t element_bytes) {
  Key key{query, element_bytes};
  if (const auto* const kept = kept_.find(key)) return *kept;
  auto prepared = std::make_shared<const PreparedPlan>(make(key));
  const std::size_t bytes = bytes_of_plan(*prepared, key.query);
  kept_.add(std::move(key), prepared, bytes);
  return prepared;
}

PreparedPlan PreparedPlans::make(const Key& key) const {
  PreparedPlan prepared{plan_hierarchical(key.query, hierarchy_), {}, {}};
  prepared.across = group_across(group_, prepared.plan.across);
  for (const HierarchicalPhase& phase : prepared.plan.phases) {
    const bool is_across = phase.where == HierarchicalPhase::Where::kAcross;
    prepared.selections.push_back(
        is_across ? select_across(prepared.across, phase.collective, phase.total * key.element_bytes) : Selection{});
  }
  return prepared;
}

}  // namespace farandole
