// SPDX-License-Identifier: Apache-2.0
#include "tcp/job_key.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sodium.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string_view>
#include <system_error>
#include <vector>

#include "farandole/core/error.h"
#include "farandole/internal/forked_children.h"
#include "sockets/descriptor.h"

namespace farandole::tcp {
namespace {

constexpr const char* kKeyVariable = "FARANDOLE_JOB_KEY";
constexpr const char* kDescriptorVariable = "FARANDOLE_JOB_KEY_FD";
constexpr std::size_t kDigits = 2 * std::tuple_size_v<JobKey>;
// Maximum length of a text with a key: the digits, the end of the line, and one more character, which shows that the
// text is too long.
constexpr std::size_t kMaxTextBytes = kDigits + 3;

[[noreturn]] void refuse(std::string_view source, std::string_view why) {
  throw InvalidArgument(fmt::format("the key of the job, {}, {}", source, why));
}

/// Parses 64 hexadecimal digits, with or without an end of line.
JobKey parse_key(std::string_view text, std::string_view source) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.remove_suffix(1);
  JobKey key{};
  std::size_t bytes = 0;
  const char* end = nullptr;
  const bool is_hex = sodium_hex2bin(key.data(), key.size(), text.data(), text.size(), nullptr, &bytes, &end) == 0;
  if (!is_hex || text.size() != kDigits || bytes != key.size() || end != text.data() + text.size()) {
    refuse(source,
           fmt::format("must be {} hexadecimal digits, such as `openssl rand -hex 32` prints; it has {}{}", kDigits,
                       text.size() > kDigits ? "more characters" : fmt::format("{} characters", text.size()),
                       text.size() == kDigits ? ", of which not all are such digits" : ""));
  }
  return key;
}

/// Reads a file from `position`: several processes may have inherited the file with a shared position. Reads a pipe
/// sequentially.
ssize_t read_at(const sockets::UniqueDescriptor& from, std::size_t position, std::span<char> into) {
  const ssize_t got = pread(from.get(), into.data(), into.size(), static_cast<off_t>(position));
  return got < 0 && errno == ESPIPE ? read(from.get(), into.data(), into.size()) : got;
}

JobKey read_key(const sockets::UniqueDescriptor& from, std::string_view source) {
  std::array<char, kMaxTextBytes> text{};
  std::size_t size = 0;
  // Stops at the end of the line, or after a key: the writer of a pipe may keep the pipe open.
  while (size < kDigits && (size == 0 || text[size - 1] != '\n')) {
    const ssize_t got = read_at(from, size, std::span(text).subspan(size));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) refuse(source, fmt::format("cannot be read: {}", std::generic_category().message(errno)));
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  const JobKey key = parse_key(std::string_view(text.data(), size), source);
  sodium_memzero(text.data(), text.size());
  return key;
}

JobKey read_key_file(const std::string& name) {
  const std::string source = fmt::format("FARANDOLE_JOB_KEY_FILE={}", name);
  // O_NONBLOCK: if the file is a pipe, open does not wait for a writer.
  const sockets::UniqueDescriptor file(open(name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file && errno == ELOOP) refuse(source, "is a symbolic link; it must be the file itself");
  if (!file) refuse(source, fmt::format("cannot be opened: {}", std::generic_category().message(errno)));
  struct stat status {};
  if (fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) refuse(source, "is no regular file");
  if (status.st_uid != geteuid()) {
    refuse(source, fmt::format("belongs to user {}; it must belong to user {}, as this process does", status.st_uid,
                               geteuid()));
  }
  if ((status.st_mode & 07077U) != 0) {
    refuse(source, fmt::format("has mode {:04o}; it must have mode 0600, so that no other user can read it",
                               status.st_mode & 07777U));
  }
  return read_key(file, source);
}

/// Removes a variable from the environment, and overwrites its value, which /proc/<pid>/environ would show.
void scrub(const char* name) {
  if (char* const value = getenv(name)) sodium_memzero(value, std::strlen(value));
  unsetenv(name);
}

/// Hashes a job's name to 256 bits. Not a secret: every program can compute this hash.
std::array<unsigned char, 32> hash(std::string_view purpose, const JobName& name) {
  const std::string text = fmt::format("{}\n{}\n{}", purpose, name.rendezvous, name.job);
  std::array<unsigned char, 32> bits{};
  crypto_generichash(bits.data(), bits.size(), reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                     nullptr, 0);
  return bits;
}

std::vector<std::string_view> ways_of(const Settings& settings) {
  std::vector<std::string_view> ways;
  if (settings.network.job_key_descriptor >= 0) ways.emplace_back(kDescriptorVariable);
  if (!settings.network.job_key_file.empty()) ways.emplace_back("FARANDOLE_JOB_KEY_FILE");
  if (!settings.network.job_key.empty()) ways.emplace_back(kKeyVariable);
  if (settings.network.trust_network) ways.emplace_back("FARANDOLE_TRUST_NETWORK=on");
  return ways;
}

/// Reads the key from the only source that is set.
JobKey read_from(const Settings& settings, const JobName& name) {
  if (settings.network.job_key_descriptor >= 0) {
    const sockets::UniqueDescriptor inherited(static_cast<int>(settings.network.job_key_descriptor));
    unsetenv(kDescriptorVariable);
    return read_key(inherited, fmt::format("{}={}", kDescriptorVariable, settings.network.job_key_descriptor));
  }
  if (!settings.network.job_key_file.empty()) return read_key_file(settings.network.job_key_file);
  if (!settings.network.job_key.empty()) {
    scrub(kKeyVariable);
    return parse_key(settings.network.job_key, kKeyVariable);
  }
  return hash("key of a job that trusts its network", name);
}

}  // namespace

std::array<unsigned char, 32> random_256_bits() {
  std::array<unsigned char, 32> bits{};
  // The kernel returns up to 256 bytes completely; before its generator is ready the call blocks.
  while (getrandom(bits.data(), bits.size(), 0) != static_cast<ssize_t>(bits.size())) {
    if (errno == EINTR) continue;
    throw TransportError(
        fmt::format("the kernel gives no random numbers, without which no process can prove that it is of the job: {}",
                    std::generic_category().message(errno)));
  }
  return bits;
}

std::uint64_t job_number(const JobName& name) {
  std::uint64_t number = 0;
  std::memcpy(&number, hash("number of a job", name).data(), sizeof number);
  return number;
}

KeptKey& KeptKey::of_process() {
  // Never destroyed: a fork may happen at any time.
  static KeptKey* const kept = [] {
    hold_at_forks<mutex_of_process>();
    return new KeptKey;
  }();
  return *kept;
}

std::optional<JobKey> KeptKey::get() {
  const std::lock_guard lock(mutex_);
  return key_;
}

void KeptKey::put(const JobKey& key) {
  const std::lock_guard lock(mutex_);
  key_ = key;
}

JobKey read_job_key(const Settings& settings, const JobName& name, KeptKey& kept) {
  const std::vector<std::string_view> ways = ways_of(settings);
  if (ways.size() > 1) {
    throw InvalidArgument(
        fmt::format("{} are set, and each gives the job a key; keep one of them", fmt::join(ways, " and ")));
  }
  if (ways.empty()) {
    if (const auto key = kept.get()) return *key;
    throw InvalidArgument(
        "a job that no MPI starts needs a key that all its processes have and no other program has: 64 hexadecimal "
        "digits (openssl rand -hex 32) in the file of FARANDOLE_JOB_KEY_FILE, with mode 0600, or in the variable "
        "FARANDOLE_JOB_KEY, or from the descriptor FARANDOLE_JOB_KEY_FD; or set FARANDOLE_TRUST_NETWORK=on, if every "
        "program that can reach the ports of this job may join it");
  }
  const JobKey key = read_from(settings, name);
  if (!settings.network.trust_network && settings.network.job_key_file.empty()) kept.put(key);
  return key;
}

JobSecret make_job_secret() {
  JobSecret secret{make_job_key(), 0};
  std::memcpy(&secret.job, random_256_bits().data(), sizeof secret.job);
  return secret;
}

std::string to_text(const JobSecret& secret) {
  std::string text(2 * sizeof secret + 1, '\0');
  sodium_bin2hex(text.data(), text.size(), reinterpret_cast<const unsigned char*>(&secret), sizeof secret);
  text.pop_back();
  return text;
}

JobSecret parse_secret(std::string_view text) {
  JobSecret secret;
  std::size_t bytes = 0;
  const int failed = sodium_hex2bin(reinterpret_cast<unsigned char*>(&secret), sizeof secret, text.data(), text.size(),
                                    nullptr, &bytes, nullptr);
  if (failed != 0 || bytes != sizeof secret) {
    throw TransportError(fmt::format(
        "expected the job's secret, {} hexadecimal digits, from what process 0 has shared; got {} other characters",
        2 * sizeof secret, text.size()));
  }
  return secret;
}

}  // namespace farandole::tcp
