// SPDX-License-Identifier: Apache-2.0
// What is known of NCCL's versions.
#pragma once

#include <string>

namespace farandole::cuda {

/// The plug-in is made for this one and what came later.
inline constexpr int kOldestNccl = 21900;

/// 22809 → "2.28.9"; before 2.9 versions had one digit less: 2804 → "2.8.4".
std::string nccl_version_text(int version);

/// What users of this version should know, with what to do; empty if nothing is known against it.
std::string nccl_warning(int version);

}  // namespace farandole::cuda
