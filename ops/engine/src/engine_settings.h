// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "farandole/internal/setting_rows.h"

namespace farandole {

/// Settings of the engine and of the frameworks that use it; rows of the table of settings.
inline SettingRows engine_settings() {
  using namespace setting;
  return {
      bytes("FARANDOLE_FUSION_BYTES", field<&Settings::engine, &EngineSettings::fusion_bytes>(), 1, 64 * kGiB,
            Scope::kAllRanks,
            "The engine of named tensors packs small tensors that are ready together into buffers of at most "
            "this size."),
      text("FARANDOLE_TIMELINE", field<&Settings::engine, &EngineSettings::timeline>(), Scope::kOwn,
           "File in the format of Chrome's traces, in which rank 0 records when each named tensor is "
           "negotiated, waits and is moved. `off`: no file."),
      flag("FARANDOLE_TIMELINE_CYCLES", field<&Settings::engine, &EngineSettings::timeline_cycles>(), Scope::kOwn,
           "Rank 0 marks each negotiation in the timeline."),
      flag("FARANDOLE_TENSORFLOW_WINDOWS", field<&Settings::engine, &EngineSettings::tensorflow_windows>(), Scope::kOwn,
           "TensorFlow allocates large CPU tensors in windows, memory that the ranks of a host share, so that "
           "collectives need no copy of them. Read when farandole.tensorflow is imported."),
  };
}

}  // namespace farandole
