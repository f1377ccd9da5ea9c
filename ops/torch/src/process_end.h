// SPDX-License-Identifier: Apache-2.0
// End of a process whose program has not destroyed its process groups.
//
// Python's exit handlers run before anybody knows the status with which the process will exit. So they only call
// `begin_process_end` and destroy the groups, whose communicators are kept until the exit handlers of the C library
// run. These know the status: 0 leaves the job, any other ends the job with a fault.
#pragma once

#include <torch/csrc/python_headers.h>
#include <memory>
#include <string>

#include "job.h"

namespace farandole_torch {

/// Called by Python's exit handler. Groups that end later leave their communicators to `keep_until_exit`.
void begin_process_end();
bool process_end_has_begun();
/// Keeps a communicator and its job until the process exits. Thread-safe.
void keep_until_exit(Comm comm, std::shared_ptr<Job> job);

/// Sets the Python function that describes the exception which the calling thread handles; "" if there is none, or none
/// with which a program fails. Keeps `function` forever.
void set_failure_text(PyObject* function);
/// The text of that function. Takes Python's lock.
std::string failure_in_progress();

}  // namespace farandole_torch
