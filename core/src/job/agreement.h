// SPDX-License-Identifier: Apache-2.0
// Settings and tuning table that process 0 distributes to all processes while the job is joined.
#pragma once

#include <string>
#include <string_view>

#include "farandole/core/settings.h"
#include "farandole/sdk/backend.h"

namespace farandole {

/// Rank 0's values of the agreed settings, and the text of the tuning table.
struct Agreement {
  std::string settings;  ///< result of encode_agreed
  std::string tuning;    ///< contents of the file of FARANDOLE_TUNING; empty if the setting is empty
  std::string problem;   ///< reason why rank 0 cannot read the file, which all ranks raise; or empty
};

/// Makes the agreement of process 0. Reads the file of FARANDOLE_TUNING.
Agreement make_agreement(const Settings& settings);
std::string encode(const Agreement& agreement);
/// @throws Mismatch  the text was not made by `encode`
Agreement decode_agreement(std::string_view text);

/// Broadcasts process 0's `text` to all processes. Collective, blocks. @throws TransportError  the text is longer than
/// 16 MiB, or its pieces announce different lengths
std::string share_text(ProcessGroup& group, std::string_view text);

}  // namespace farandole
