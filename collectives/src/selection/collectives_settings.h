// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "farandole/internal/setting_rows.h"

namespace farandole {

/// Of how collectives run. The names of algorithms are those of the table of algorithms, and of the list of methods.
SettingRows collectives_settings();

}  // namespace farandole
