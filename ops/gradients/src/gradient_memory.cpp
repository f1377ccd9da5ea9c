// SPDX-License-Identifier: Apache-2.0
#include "gradient_memory.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <tuple>

#include "farandole/core/error.h"
#include "farandole/internal/forked_children.h"
#include "farandole/internal/memory_range.h"

namespace farandole {
namespace {

/// Key of a memory range: addresses in different memory spaces are never compared.
using Place = std::tuple<MemoryKind, std::uint16_t, std::uintptr_t>;

Place place_of(const BufferView& values) {
  return {values.space.kind, values.space.ordinal, MemoryRange(values).begin};
}

std::string describe(const std::vector<GradientSpan>& gradients, std::size_t index) {
  return fmt::format("gradient {} ({}) {}", index, gradients[index].name,
                     describe(MemoryRange(gradients[index].values)));
}

/// Memory of one gradient of a living averager.
struct Claim {
  std::uint64_t number = 0;
  MemoryRange range;
  std::string text;  // "gradient 0 (embedding) [0x…, 0x…) of rank 1"
};
struct Claims {
  std::map<Place, Claim> by_place;  // claims never overlap
  std::uint64_t last_number = 0;
};

/// Called in a forked child: drops all claims, because the parent's averagers write to the parent's memory only.
void become_child(Claims& claims) {
  claims.by_place.clear();
}
using ClaimsOfProcess = ProcessState<Claims, become_child>;

/// Returns a claim that overlaps `values`, or null.
const Claim* find_overlapping(const Claims& claims, const BufferView& values) {
  const Place place = place_of(values);
  const auto overlaps = [&](const auto& entry) {
    return std::get<0>(entry.first) == values.space.kind && std::get<1>(entry.first) == values.space.ordinal &&
           overlap(entry.second.range, MemoryRange(values));
  };
  const auto after = claims.by_place.lower_bound(place);
  if (after != claims.by_place.end() && overlaps(*after)) return &after->second;
  if (after != claims.by_place.begin() && overlaps(*std::prev(after))) return &std::prev(after)->second;
  return nullptr;
}

}  // namespace

std::vector<std::size_t> find_tied(const std::vector<GradientSpan>& gradients, bool may_be_tied) {
  std::vector<std::size_t> tied(gradients.size()), by_place;
  std::iota(tied.begin(), tied.end(), std::size_t{0});
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i].values.count > 0) by_place.push_back(i);
  }
  std::stable_sort(by_place.begin(), by_place.end(), [&](std::size_t a, std::size_t b) {
    return place_of(gradients[a].values) < place_of(gradients[b].values);
  });
  for (std::size_t k = 1; k < by_place.size(); ++k) {
    const std::size_t before = by_place[k - 1], index = by_place[k];
    const BufferView &first = gradients[before].values, &second = gradients[index].values;
    if (first.space != second.space || !overlap(MemoryRange(first), MemoryRange(second))) continue;
    const bool is_same = first.data == second.data && first.count == second.count && first.dtype == second.dtype;
    if (is_same && may_be_tied) {
      tied[index] = tied[before];
      continue;
    }
    throw InvalidArgument(fmt::format(
        "{} and {} {}: each element would be reduced twice; {}", describe(gradients, std::min(before, index)),
        describe(gradients, std::max(before, index)), is_same ? "are the same memory" : "overlap",
        is_same ? "give it once, or set GradientOptions::tied_spans if one gradient serves several parameters"
                : "give each element once"));
  }
  return tied;
}

void ClaimedMemory::claim(const std::vector<GradientSpan>& gradients, const std::vector<std::size_t>& tied,
                          std::size_t first, const std::string& owner) {
  auto claims = ClaimsOfProcess::access();
  for (std::size_t i = first; i < gradients.size(); ++i) {
    if (tied[i] != i) continue;
    const Claim* const other = find_overlapping(*claims, gradients[i].values);
    if (other == nullptr) continue;
    throw InvalidArgument(
        fmt::format("{} overlaps {}, which another GradientAverager of this process has: destroy that one first (to "
                    "replace an averager keep it in a std::optional, and reset() it before its successor is made), or "
                    "give this one memory of its own",
                    describe(gradients, i), other->text));
  }
  number_ = ++claims->last_number;
  for (std::size_t i = first; i < gradients.size(); ++i) {
    const BufferView& values = gradients[i].values;
    if (tied[i] != i || values.count == 0) continue;
    claims->by_place.emplace(place_of(values),
                             Claim{number_, MemoryRange(values), describe(gradients, i) + " of " + owner});
  }
}

ClaimedMemory::~ClaimedMemory() {
  if (number_ == 0) return;
  std::erase_if(ClaimsOfProcess::access()->by_place,
                [this](const auto& entry) { return entry.second.number == number_; });
}

}  // namespace farandole
