// SPDX-License-Identifier: Apache-2.0
#include "farandole/internal/endpoint.h"

#include <set>
#include <vector>

#include "job/job.h"

namespace farandole {
namespace {

Doorbell& doorbell_of(Job& job, int rank) {
  return job.memory().header().slots[static_cast<std::size_t>(job.topology().rank(rank).replica)].doorbell;
}

}  // namespace

Endpoint::Endpoint(Job& job, int rank)
    : job_(job), rank_(rank), progress_(job, doorbell_of(job, rank)), faults_(job, rank), late_ranks_(job, rank) {}

std::shared_ptr<Endpoint> Endpoint::share() {
  return {job_.shared_from_this(), this};
}

const Topology& Endpoint::topology() const {
  return job_.topology();
}
const Settings& Endpoint::settings() const {
  return job_.settings();
}
const std::string& Endpoint::tuning_text() const {
  return job_.tuning_text();
}
Transport& Endpoint::route(int peer) const {
  return job_.route(peer);
}
SharedMemory& Endpoint::memory() const {
  return job_.memory();
}
bool Endpoint::shares_memory(int host_index) const {
  return job_.shares_memory(host_index);
}

std::unique_ptr<VendorCollectives> Endpoint::vendor_collectives(std::span<const int> ranks,
                                                                std::uint16_t communicator) const {
  if (job_.group() == nullptr) return nullptr;
  std::set<int> processes;
  for (const int rank : ranks) processes.insert(topology().rank(rank).process);
  if (processes.size() != ranks.size()) return nullptr;
  return job_.group()->vendor_collectives(std::vector<int>(processes.begin(), processes.end()), communicator);
}

}  // namespace farandole
