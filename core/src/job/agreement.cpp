// SPDX-License-Identifier: Apache-2.0
#include "job/agreement.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <memory>
#include <system_error>
#include <vector>

#include "farandole/core/error.h"

namespace farandole {
namespace {

// Far above the size of any measured table, and small enough to be sent to every process.
constexpr std::size_t kMaxFileBytes = 1 << 20;
// Above the size of an agreement: settings come from an environment, which Linux limits to 6 MiB, and a table of 1 MiB.
constexpr std::uint64_t kMaxSharedBytes = 16 << 20;

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

/// @throws DataError  the file cannot be read, or is too long
std::string read_file(const std::string& path) {
  const auto refuse = [&](const std::string& why) {
    throw DataError(fmt::format("FARANDOLE_TUNING is '{}', which rank 0 cannot read: {}", path, why));
  };
  const std::unique_ptr<std::FILE, CloseFile> file(std::fopen(path.c_str(), "rb"));
  if (!file) refuse(std::generic_category().message(errno));
  std::string text(kMaxFileBytes + 1, '\0');
  errno = 0;
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  if (std::ferror(file.get()) != 0) refuse(std::generic_category().message(errno));
  if (text.size() > kMaxFileBytes) refuse(fmt::format("it has more than {} bytes", kMaxFileBytes));
  return text;
}

}  // namespace

Agreement make_agreement(const Settings& settings) {
  Agreement agreement;
  agreement.settings = encode_agreed(settings);
  try {
    if (!settings.collectives.tuning.empty()) agreement.tuning = read_file(settings.collectives.tuning);
  } catch (const DataError& error) {
    agreement.problem = error.message();
  }
  return agreement;
}

// Format: the length of each text followed by a blank, then the texts.
std::string encode(const Agreement& agreement) {
  return fmt::format("{} {} {} {}{}{}", agreement.settings.size(), agreement.tuning.size(), agreement.problem.size(),
                     agreement.settings, agreement.tuning, agreement.problem);
}

Agreement decode_agreement(std::string_view text) {
  const auto refuse = [] {
    throw Mismatch(
        "what rank 0 says about the settings cannot be read; all ranks must run the same version of Farandole.");
  };
  std::array<std::size_t, 3> lengths{};
  for (std::size_t& length : lengths) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), length);
    if (error != std::errc{} || end == text.data() + text.size() || *end != ' ') refuse();
    text.remove_prefix(static_cast<std::size_t>(end - text.data()) + 1);
  }
  Agreement agreement;
  const std::array parts{&agreement.settings, &agreement.tuning, &agreement.problem};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (lengths[i] > text.size()) refuse();
    *parts[i] = text.substr(0, lengths[i]);
    text.remove_prefix(lengths[i]);
  }
  if (!text.empty()) refuse();
  return agreement;
}

std::string share_text(ProcessGroup& group, std::string_view text) {
  struct Piece {
    std::uint64_t length = 0;  // of the complete text
    char bytes[4088] = {};
  };
  const bool is_mine = group.process() == 0;
  std::vector<Piece> pieces(static_cast<std::size_t>(group.process_count()));
  std::string shared;
  std::uint64_t length = 0;
  do {
    Piece mine;
    if (is_mine) {
      mine.length = text.size();
      text.copy(mine.bytes, sizeof mine.bytes, shared.size());
    }
    group.allgather(&mine, pieces.data(), sizeof mine);
    const Piece& first = pieces.front();
    if (shared.empty()) length = first.length;
    if (first.length != length || length > kMaxSharedBytes) {
      throw TransportError(fmt::format(
          "process 0 has sent what no process of this job sends: a text of {} bytes, of which {} had come and "
          "{} were announced; at most {} are possible",
          first.length, shared.size(), length, kMaxSharedBytes));
    }
    shared.append(first.bytes, std::min<std::size_t>(sizeof first.bytes, length - shared.size()));
  } while (shared.size() < length);
  return shared;
}

}  // namespace farandole
