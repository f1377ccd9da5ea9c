// SPDX-License-Identifier: Apache-2.0
// Hierarchical plans ready to run, kept for the next call.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "messages/hierarchical_plan.h"
#include "messages/hierarchy.h"
#include "operation/group.h"
#include "schedule/recently_used.h"
#include "selection/selection.h"

namespace farandole {

/// A plan of this rank, and what follows from it and the ranks alone.
struct PreparedPlan {
  HierarchicalPlan plan;
  Group across;                       ///< the ranks that this one meets across hosts
  std::vector<Selection> selections;  ///< by phase; of phases inside: none
};

/// The plans of a communicator over several hosts. Used by one thread at a time (the work queue's lock).
class PreparedPlans {
 public:
  /// What all plans that are kept may take together.
  static constexpr std::size_t kMaxBytes = std::size_t{256} << 10;

  /// @param group, hierarchy  outlive this object
  PreparedPlans(const Group& group, const Hierarchy& hierarchy) : group_(group), hierarchy_(hierarchy) {}

  const Hierarchy& hierarchy() const { return hierarchy_; }
  /// Made where none is kept. @param element_bytes  of the call's type: across hosts bytes count
  std::shared_ptr<const PreparedPlan> get(const HierarchicalQuery& query, std::size_t element_bytes);
  /// Bytes of the plans that are kept.
  std::size_t kept_bytes() const { return kept_.used(); }

 private:
  struct Key {
    HierarchicalQuery query;
    std::size_t element_bytes;
    bool operator==(const Key&) const = default;
  };
  PreparedPlan make(const Key& key) const;

  const Group& group_;
  const Hierarchy& hierarchy_;
  RecentlyUsed<Key, std::shared_ptr<const PreparedPlan>> kept_{kMaxBytes};
};

}  // namespace farandole
