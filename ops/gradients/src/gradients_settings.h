// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "farandole/internal/setting_rows.h"

namespace farandole {

/// Rows of the table of settings for GradientAverager.
inline SettingRows gradients_settings() {
  using namespace setting;
  return {
      bytes("FARANDOLE_BUCKET_BYTES", field<&Settings::gradients, &GradientSettings::bucket_bytes>(), 1, 64 * kGiB,
            Scope::kAllRanks, "Gradients are reduced together in buckets of about this size."),
      bytes("FARANDOLE_LAST_BUCKET_BYTES", field<&Settings::gradients, &GradientSettings::last_bucket_bytes>(), 1,
            64 * kGiB, Scope::kAllRanks, "Size of the last bucket, which no computation hides."),
  };
}

}  // namespace farandole
