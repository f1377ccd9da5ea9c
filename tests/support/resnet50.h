// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <vector>

namespace farandole::test {

/// Element counts of the 161 trainable tensors of ResNet-50, 25'557'032 in all: He et al., CVPR 2016, table 1, with
/// batch normalisation.
inline std::vector<std::size_t> resnet50_gradients() {
  std::vector<std::size_t> counts{std::size_t{3} * 64 * 49, 64, 64};
  std::size_t channels = 64;
  constexpr std::array kStages{std::array<std::size_t, 2>{64, 3}, std::array<std::size_t, 2>{128, 4},
                               std::array<std::size_t, 2>{256, 6}, std::array<std::size_t, 2>{512, 3}};
  for (const auto [planes, blocks] : kStages) {
    for (std::size_t block = 0; block < blocks; ++block) {
      const auto add = [&](std::size_t weights, std::size_t outputs) {
        counts.insert(counts.end(), {weights, outputs, outputs});
      };
      add(channels * planes, planes);
      add(planes * planes * 9, planes);
      add(planes * planes * 4, planes * 4);
      if (block == 0) add(channels * planes * 4, planes * 4);
      channels = planes * 4;
    }
  }
  counts.insert(counts.end(), {std::size_t{2048} * 1000, 1000});
  return counts;
}

}  // namespace farandole::test
