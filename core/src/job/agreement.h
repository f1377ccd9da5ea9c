// SPDX-License-Identifier: Apache-2.0
// What process 0 sends all processes when they meet.
#pragma once

#include <string>
#include <string_view>

#include "farandole/core/settings.h"
#include "farandole/sdk/backend.h"

namespace farandole {

/// The settings that hold for all ranks, and the file that one of them names.
struct Agreement {
  std::string settings;  ///< of encode_agreed
  std::string tuning;    ///< contents of the file of FARANDOLE_TUNING; empty if that is not set
  std::string problem;   ///< why that file can not be read, for all ranks to raise
};

/// Process 0 says what holds. Reads the file of FARANDOLE_TUNING.
Agreement make_agreement(const Settings& settings);
std::string encode(const Agreement& agreement);
/// @throws Mismatch  the text was not made by `encode`
Agreement decode_agreement(std::string_view text);

/// Process 0's `text`, on every process. Collective, blocks. @throws TransportError  it is longer than 16 MiB, or its
/// length changes on the way
std::string share_text(ProcessGroup& group, std::string_view text);

}  // namespace farandole
