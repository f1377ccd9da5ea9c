// SPDX-License-Identifier: Apache-2.0
// The table of settings: the rows of all layers, in the order of docs/configuration.md.
#include "engine_settings.h"
#include "gradients_settings.h"
#include "selection/collectives_settings.h"

namespace farandole {

std::span<const SettingInfo> settings_table() {
  static const SettingRows table = [] {
    SettingRows rows;
    for (const SettingRows& part : {collectives_settings(), gradients_settings(), engine_settings(), core_settings()}) {
      rows.insert(rows.end(), part.begin(), part.end());
    }
    return rows;
  }();
  return table;
}

}  // namespace farandole
