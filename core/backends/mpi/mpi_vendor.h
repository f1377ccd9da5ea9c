// SPDX-License-Identifier: Apache-2.0
// VendorCollectives, implemented with MPI's own collectives, for the algorithm `vendor`.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <memory>
#include <span>

#include "farandole/sdk/backend.h"
#include "mpi_session.h"

namespace farandole::mpi {

/// Makes MPI's collectives among `processes`. Reuses the MPI communicator of an earlier object with the same id and
/// processes if every process still has that communicator in its pool; else creates an MPI communicator.
///
/// Collective over `processes`; blocks inside MPI. Must not be used with MPI_THREAD_SERIALIZED, because the
/// process-wide lock would be held meanwhile.
/// @param part_count  vectors of more elements (at most INT_MAX) are reduced in parts
std::unique_ptr<VendorCollectives> make_vendor_collectives(MpiSession& session, std::span<const int> processes,
                                                           std::uint16_t id, std::size_t part_count);

}  // namespace farandole::mpi
