// SPDX-License-Identifier: Apache-2.0
// MPI's own collectives: the algorithm `vendor`.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <memory>
#include <span>

#include "farandole/sdk/backend.h"
#include "mpi_session.h"

namespace farandole::mpi {

/// With the communicator of an earlier one of the same id and processes, if all processes still have it in their pools.
/// Collective over `processes`, blocks inside MPI: not for MPI_THREAD_SERIALIZED, whose lock would be held meanwhile.
/// Counts above `part_count` elements (at most INT_MAX) are reduced in parts.
std::unique_ptr<VendorCollectives> make_vendor_collectives(MpiSession& session, std::span<const int> processes,
                                                           std::uint16_t id, std::size_t part_count);

}  // namespace farandole::mpi
