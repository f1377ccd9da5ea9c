// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "farandole/internal/setting_rows.h"

namespace farandole {

/// Rows of the table of settings for GradientAverager.
inline SettingRows gradients_settings() {
  using namespace setting;
  return {
      bytes("FARANDOLE_BUCKET_BYTES", field<&Settings::gradients, &GradientSettings::bucket_bytes>(), 1, 64 * kGiB,
            Scope::kAllRanks,
            "Maximum size of a bucket of gradients that are reduced together; a larger gradient is a bucket of "
            "its own. Larger buckets use the network better; smaller buckets begin earlier."),
      bytes("FARANDOLE_LAST_BUCKET_BYTES", field<&Settings::gradients, &GradientSettings::last_bucket_bytes>(), 1,
            64 * kGiB, Scope::kAllRanks,
            "Maximum size of the bucket that is reduced last. Backward has ended by then, so no computation "
            "overlaps with it; keep it small."),
  };
}

}  // namespace farandole
