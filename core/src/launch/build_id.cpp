// SPDX-License-Identifier: Apache-2.0
// Identity of this build of the library: plug-ins and peers of other builds are rejected.
#include <fmt/format.h>
#include <unistd.h>

#include <bit>
#include <cstring>

#include "farandole/core/error.h"
#include "farandole/internal/digest.h"
#include "farandole/internal/fixed_text.h"
#include "farandole/internal/shared_memory.h"
#include "farandole/internal/waiter.h"
#include "farandole/sdk/backend.h"
#include "farandole/sdk/plugin_build.h"
#include "farandole_revision.h"

namespace farandole {
namespace {

/// Digest of sizes and alignments, which may differ between compilers for the same sources.
constexpr std::uint32_t shared_layout() {
  Digest digest;
  for (const std::size_t size : {sizeof(ArenaHeader), alignof(ArenaHeader), sizeof(ArenaHeader::Slot), sizeof(Doorbell),
                                 sizeof(CoreSet), sizeof(ControlMessage), alignof(ControlMessage), sizeof(DType),
                                 sizeof(ReduceOp), sizeof(Channel), sizeof(void*)}) {
    digest.add(std::uint64_t{size});
  }
  return static_cast<std::uint32_t>(digest.value() ^ digest.value() >> 32U);
}

std::string describe(std::span<const BuildClaim> claims, std::size_t process) {
  const BuildClaim& claim = claims[process];
  return fmt::format("process {} (host {}, pid {}) runs Farandole {}", process, text_of(claim.hostname), claim.pid,
                     text_of(claim.layout));
}

}  // namespace

const char* build_id() {
  return FARANDOLE_PLUGIN_BUILD_ID;
}

const char* layout_id() {
  static const std::string id =
      fmt::format(FARANDOLE_VERSION "-" FARANDOLE_REVISION "-{}{}-{:08x}",
                  std::endian::native == std::endian::little ? "le" : "be", 8 * sizeof(void*), shared_layout());
  return id.c_str();
}

BuildClaim own_build_claim() {
  BuildClaim claim;
  write_text(claim.layout, layout_id());
  if (gethostname(claim.hostname, sizeof claim.hostname - 1) != 0) std::strcpy(claim.hostname, "unknown");
  claim.pid = getpid();
  return claim;
}

void check_same_build(std::span<const BuildClaim> claims) {
  for (std::size_t process = 1; process < claims.size(); ++process) {
    if (std::memcmp(claims[process].layout, claims[0].layout, sizeof claims[0].layout) == 0) continue;
    throw InvalidArgument(
        fmt::format("joining the job: {}, but {}: all processes must run the same build; install one on all hosts, and "
                    "see which library each loads (farandole-info prints its id as 'layout')",
                    describe(claims, 0), describe(claims, process)));
  }
}

}  // namespace farandole
