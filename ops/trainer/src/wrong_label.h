// SPDX-License-Identifier: Apache-2.0
// The error of a label that is no class.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "farandole/core/error.h"

namespace farandole::trainer {

/// A sample of a batch has a label that is no class. Losses and metrics, which see a batch only, throw this error;
/// `name_samples` turns it into one that names the sample of the data set.
class WrongLabel final : public InvalidArgument {
 public:
  /// @param who  the loss or metric   @param sample  place in the batch
  WrongLabel(const std::string& who, std::size_t sample, std::int32_t label, std::int64_t classes)
      : InvalidArgument(text(who, fmt::format("sample {} of the batch", sample), label, classes)),
        who_(who),
        sample_(sample),
        label_(label),
        classes_(classes) {}

  /// The error with the index of the sample in the data set. @param samples  indices of the batch's samples
  InvalidArgument in(const std::string& data, std::span<const std::uint32_t> samples) const {
    return InvalidArgument(text(who_, fmt::format("sample {} of {}", samples[sample_], data), label_, classes_));
  }

 private:
  static std::string text(const std::string& who, const std::string& sample, std::int32_t label, std::int64_t classes) {
    return fmt::format("{}: {} has label {}, expected 0 to {}", who, sample, label, classes - 1);
  }

  const std::string who_;
  const std::size_t sample_;
  const std::int32_t label_;
  const std::int64_t classes_;
};

/// @param who  the loss or metric, for the message   @throws WrongLabel  a label is not in [0, classes)
inline void check_labels(const std::string& who, std::span<const std::int32_t> labels, std::int64_t classes,
                         std::int64_t labels_per_sample) {
  const auto wrong =
      std::find_if(labels.begin(), labels.end(), [&](std::int32_t label) { return label < 0 || label >= classes; });
  if (wrong == labels.end()) return;
  throw WrongLabel(who, static_cast<std::size_t>((wrong - labels.begin()) / labels_per_sample), *wrong, classes);
}

/// Calls `code`, which passes a batch to losses or metrics. Names the sample of a WrongLabel by its index in the data.
/// @param data  for the message: "the training data"   @param samples  indices of the batch's samples
template <class Code>
void name_samples(const std::string& data, std::span<const std::uint32_t> samples, const Code& code) {
  try {
    code();
  } catch (const WrongLabel& error) {
    throw error.in(data, samples);
  }
}

}  // namespace farandole::trainer
