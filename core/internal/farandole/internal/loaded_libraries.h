// SPDX-License-Identifier: Apache-2.0
// The shared libraries that this process has loaded.
#pragma once

#include <link.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace farandole {

/// Returns the paths of loaded libraries whose file name is in `names`, or is such a name followed by a version.
inline std::vector<std::string> loaded_libraries(std::vector<std::string_view> names) {
  struct Search {
    std::vector<std::string_view> names;
    std::vector<std::string> found;
  } search{std::move(names), {}};
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        auto& wanted = *static_cast<Search*>(data);
        const std::string_view path = info->dlpi_name;
        const std::string_view file = path.substr(path.rfind('/') + 1);
        for (const std::string_view name : wanted.names) {
          if (file == name || (file.starts_with(name) && file[name.size()] == '.')) wanted.found.emplace_back(path);
        }
        return 0;
      },
      &search);
  return search.found;
}

}  // namespace farandole
