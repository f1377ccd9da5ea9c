// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "farandole/internal/setting_rows.h"

namespace farandole {

/// Rows of the settings that say how collectives run. The settings that force an algorithm accept the names of the
/// table of algorithms and of the list of methods.
SettingRows collectives_settings();

}  // namespace farandole
