// SPDX-License-Identifier: Apache-2.0
// An endpoint is a rank's interface to the job.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "farandole/core/export.h"
#include "farandole/internal/communicator_ids.h"
#include "farandole/internal/endpoint_faults.h"
#include "farandole/internal/endpoint_progress.h"
#include "farandole/internal/flight_recorder.h"
#include "farandole/internal/late_ranks.h"
#include "farandole/internal/shared_memory.h"
#include "farandole/sdk/backend.h"

namespace farandole FARANDOLE_API {

class Job;

/// A rank's interface to the job: who the rank is and how to reach its peers, and parts for everything else. The World
/// makes an endpoint for each rank of the process:
///
///   Endpoint& endpoint = world.endpoint();
///   endpoint.faults().check();
///   Transport& transport = endpoint.route(peer);
///
/// An endpoint that outlives its World (`share`) still knows its rank, topology and settings; functions that need the
/// job raise InvalidArgument. Thread-safe.
class Endpoint {
 public:
  Endpoint(Job& job, int rank);
  /// Shared ownership, which keeps the endpoint valid beyond its World.
  std::shared_ptr<Endpoint> share();

  // Identity.
  int rank() const { return rank_; }
  const Topology& topology() const;
  const Settings& settings() const;
  /// Text of the file of FARANDOLE_TUNING, read by rank 0; empty if the setting is empty.
  const std::string& tuning_text() const;

  // Routes.
  /// The best transport to another rank of the job. @throws InvalidArgument  the World has ended
  Transport& route(int peer) const;
  /// Memory that this process shares with its peers on the host.
  SharedMemory& memory() const;
  /// True if all processes of the host have mapped each other's memory, and FARANDOLE_SHARED_MEMORY is not off.
  bool shares_memory(int host_index) const;
  /// Makes the vendor's collectives among `ranks`; null if several of them share a process, or there is no vendor.
  /// Collective over `ranks`, blocks.
  std::unique_ptr<VendorCollectives> vendor_collectives(std::span<const int> ranks, std::uint16_t communicator) const;

  // Parts.
  EndpointProgress& progress() { return progress_; }
  const EndpointProgress& progress() const { return progress_; }
  EndpointFaults& faults() { return faults_; }
  const EndpointFaults& faults() const { return faults_; }
  LateRanks& late_ranks() { return late_ranks_; }
  CommunicatorIds& communicator_ids() { return communicator_ids_; }
  FlightRecorder& recorder() { return recorder_; }
  const FlightRecorder& recorder() const { return recorder_; }

 private:
  Job& job_;
  const int rank_;
  EndpointProgress progress_;
  EndpointFaults faults_;
  LateRanks late_ranks_;
  CommunicatorIds communicator_ids_;
  FlightRecorder recorder_;
};

}  // namespace FARANDOLE_API
