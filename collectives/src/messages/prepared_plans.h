// SPDX-License-Identifier: Apache-2.0
// Cache of hierarchical plans.
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

/// A plan of this rank, with the group and the algorithms of its phases across. Const; shared by operations.
struct PreparedPlan {
  HierarchicalPlan plan;
  Group across;                       ///< this rank and its counterparts on the other hosts
  std::vector<Selection> selections;  ///< by phase; empty selections for inside phases
};

/// The most recently used plans of a communicator over several hosts. Not thread-safe: the work queue's lock guards it.
class PreparedPlans {
 public:
  /// Maximum bytes of all cached plans together; beyond it the least recently used plans are evicted.
  static constexpr std::size_t kMaxBytes = std::size_t{256} << 10;

  /// @param group, hierarchy  outlive this object
  PreparedPlans(const Group& group, const Hierarchy& hierarchy) : group_(group), hierarchy_(hierarchy) {}

  const Hierarchy& hierarchy() const { return hierarchy_; }
  /// Returns the plan for a query, from the cache or newly made.
  /// @param element_bytes  size of the call's type; the algorithms across depend on the bytes
  std::shared_ptr<const PreparedPlan> get(const HierarchicalQuery& query, std::size_t element_bytes);
  /// Bytes of all cached plans.
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
