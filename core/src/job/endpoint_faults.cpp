// SPDX-License-Identifier: Apache-2.0
#include "farandole/internal/endpoint_faults.h"

#include <fmt/format.h>

#include "job/job.h"

namespace farandole {

void EndpointFaults::check() const {
  job_.fault().check();
}
void EndpointFaults::check_world() const {
  job_.fault().check_world();
}
void EndpointFaults::check_process() const {
  job_.fault().check_process();
}
bool EndpointFaults::is_forked_child() const {
  return job_.fault().is_forked_child();
}
bool EndpointFaults::exist() const {
  return job_.fault().exists();
}
void EndpointFaults::poison(ErrorKind kind, const std::string& text) {
  job_.poison(rank_, kind, text, /*announce=*/true);
}
void EndpointFaults::give_up(std::string_view how) {
  poison(ErrorKind::kPeerLost, fmt::format("{} {}", job_.topology().describe(rank_), how));
}
void EndpointFaults::poll() {
  job_.peers().poll();
}

}  // namespace farandole
