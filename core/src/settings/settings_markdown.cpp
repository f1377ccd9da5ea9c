// SPDX-License-Identifier: Apache-2.0
// Generates docs/configuration.md from the table of settings.
#include <fmt/format.h>

#include "farandole/core/settings.h"

namespace farandole {
namespace {

constexpr std::string_view kIntroduction = R"(# Configuration

<!-- Made by `farandole-info --config markdown`; a test compares this file with the table of settings. -->

Farandole reads the environment variables below once, when a `World` is made. A variable that starts with `FARANDOLE_`
and is not listed here, or a value out of its range, raises `InvalidArgument`; the message names the nearest variable
or the valid values.

* Bytes are whole numbers, with `K`, `M`, `G` or `T` for powers of 1024: `1000`, `64K`, `4MiB`.
* Seconds are numbers, with `us`, `ms`, `s`, `min` or `h` for other units: `5`, `0.25`, `100ms`, `2min`.
* Column "all ranks": `rank 0's`: the whole job uses rank 0's value, and a rank whose own value differs logs the
  difference. `own`: each process uses its own value.
* Names of algorithms, such as `exchange`, `hierarchical` and `vendor`: see [algorithms.md](algorithms.md).

`farandole-info` shows the settings that differ from their defaults; `farandole-info --config` shows all settings.

| variable | default | values | all ranks | meaning |
| --- | --- | --- | --- | --- |
)";

}  // namespace

std::string settings_markdown() {
  std::string text(kIntroduction);
  const Settings defaults;
  for (const SettingInfo& info : settings_table()) {
    const std::string value = value_text(defaults, info);
    text += fmt::format("| `{}` | {} | {} | {} | {} |\n", info.variable,
                        value.empty() ? "empty" : fmt::format("`{}`", value), expected_text(info),
                        info.agreed ? "rank 0's" : "own", info.meaning);
  }
  return text;
}

}  // namespace farandole
