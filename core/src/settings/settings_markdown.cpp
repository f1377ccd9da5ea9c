// SPDX-License-Identifier: Apache-2.0
// Generates docs/configuration.md from the table of settings.
#include <fmt/format.h>

#include "farandole/core/settings.h"

namespace farandole {
namespace {

constexpr std::string_view kIntroduction = R"(# Configuration

<!-- Made by `farandole-info --config markdown`; a test compares this file with the table of settings. -->

Farandole reads the environment variables below once, when a `World` is made. A variable that starts with `FARANDOLE_`
and is not listed here, or a value out of its range, is an error that names what is valid.

* Bytes are whole numbers, with `K`, `M`, `G` or `T` for powers of 1024: `1000`, `64K`, `4MiB`.
* Seconds are numbers, with `us`, `ms`, `s`, `min` or `h` for other units: `5`, `0.25`, `100ms`, `2min`.
* Where "all ranks" says "rank 0's", rank 0's value holds for the whole job, and a rank that has another one logs it.

`farandole-info` shows the values that differ from their defaults, `farandole-info --config` shows all.

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
