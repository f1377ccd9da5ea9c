// SPDX-License-Identifier: Apache-2.0
#include "faults/private_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <future>
#include <memory>
#include <system_error>
#include <utility>

#include "farandole/internal/library_thread.h"
#include "farandole/internal/standard_descriptors.h"

namespace farandole {
namespace {

bool write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(descriptor, text.data(), text.size());
    if (written < 0 && errno != EINTR) return false;
    if (written > 0) text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

}  // namespace

std::string write_private_file(const std::string& directory, const std::string& name, std::string_view text) {
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(directory).parent_path(), ignored);
  (void)mkdir(directory.c_str(), 0700);  // a failure shows in open() below
  const std::string path = fmt::format("{}/{}", directory, name);
  const std::string aside = fmt::format("{}.{}.part", path, getpid());
  const auto problem = [&path] { return fmt::format("{}: {}", path, std::generic_category().message(errno)); };
  (void)unlink(aside.c_str());
  const int descriptor =
      above_standard_descriptors(open(aside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (descriptor < 0) return problem();
  const bool is_written = write_all(descriptor, text);
  std::string result = is_written ? "" : problem();
  close(descriptor);
  if (is_written && std::rename(aside.c_str(), path.c_str()) != 0) result = problem();
  if (!result.empty()) (void)unlink(aside.c_str());
  return result;
}

std::string write_private_files(const std::string& directory, std::vector<PrivateFile> files,
                                std::chrono::milliseconds limit) {
  const auto writing = std::make_shared<std::packaged_task<std::string()>>([directory, files = std::move(files)] {
    std::string first_problem;
    for (const PrivateFile& file : files) {
      std::string problem = write_private_file(directory, file.name, file.text);
      if (first_problem.empty()) first_problem = std::move(problem);
    }
    return first_problem;
  });
  std::future<std::string> written = writing->get_future();
  try {
    start_library_thread([writing] { (*writing)(); }).detach();
  } catch (const std::system_error&) {
    (*writing)();  // the system refuses a thread
  }
  if (written.wait_for(limit) == std::future_status::ready) return written.get();
  return fmt::format("{} has not taken it within {} s", directory, limit.count() / 1000.0);
}

}  // namespace farandole
