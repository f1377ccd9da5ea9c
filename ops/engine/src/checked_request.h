// SPDX-License-Identifier: Apache-2.0
// From the structures of the C header to a request of the engine.
#pragma once

#include <string>
#include <vector>

#include "farandole/engine.h"
#include "local_request.h"

namespace farandole {

/// A copy of `request` that has been checked in itself. @param ranks  of its process set, of the job
/// @throws InvalidArgument  it can not work, whatever the other ranks submit
LocalRequest checked_request(const farandole_request& request, const std::vector<int>& ranks);
/// What takes its place where ranks compare; nobody is called back. `request` needs no more than its name and set.
LocalRequest refusal_of(const farandole_request& request, const std::string& why);

}  // namespace farandole
