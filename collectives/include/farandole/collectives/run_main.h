// SPDX-License-Identifier: Apache-2.0
// Main function for a program whose processes are the ranks of a job.
#pragma once

#include <functional>
#include <string>

#include "farandole/collectives/communicator.h"
#include "farandole/core/export.h"
#include "farandole/core/world.h"

namespace farandole FARANDOLE_API {

/// Joins the job, runs `body` on each rank of this process, and prints an exception that `body` throws. Use it as the
/// main function of a program that has one World; a `try` of your own would print the same error on every rank:
///
///     int main() {
///       return farandole::run_main("sum", [](farandole::Communicator& ranks) {
///         …
///         return 0;
///       });
///     }
///
/// An error is printed as one line on standard error: "sum: Mismatch: rank 0: …". An error that all ranks raise
/// together is printed once, by the rank that caused it or by rank 0; after a Mismatch each of the other ranks prints
/// "sum: Mismatch: rank 1: the same error as rank 0's". The line is printed before any rank can end because of the
/// error, because a launcher kills all ranks as soon as one rank ends with a nonzero status.
/// @param program  name of the program, the beginning of the line
/// @param body     returns the rank's exit status; 0 is success
/// @returns the exit status of the process: 2 after an InvalidArgument, 1 after any other exception, else the status
/// that `body` returned. If several ranks of this process return different statuses, the result is one of the nonzero
/// statuses. Never throws.
/// Collective over the processes of the job; blocks.
int run_main(const std::string& program, const std::function<int(Communicator&)>& body,
             const WorldOptions& options = {});

}  // namespace FARANDOLE_API
