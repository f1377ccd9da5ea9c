// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "farandole/internal/setting_rows.h"

namespace farandole {

/// Rows of the settings that control how collectives run. The settings that force an algorithm accept the names of
/// algorithms (`algorithms`) and of methods (`methods`).
SettingRows collectives_settings();

}  // namespace farandole
