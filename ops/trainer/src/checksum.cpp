// SPDX-License-Identifier: Apache-2.0
#include "checksum.h"

#include <zlib.h>

namespace farandole::trainer {

std::uint32_t checksum(std::span<const std::byte> bytes, std::uint32_t before) {
  if (bytes.empty()) return before;  // zlib would return 0, because an empty vector may have no address
  return static_cast<std::uint32_t>(crc32_z(before, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

std::uint32_t checksum(const std::vector<std::string>& texts, std::uint32_t before) {
  for (const std::string& text : texts)
    before = checksum(std::as_bytes(std::span(text.c_str(), text.size() + 1)), before);
  return before;
}

}  // namespace farandole::trainer
