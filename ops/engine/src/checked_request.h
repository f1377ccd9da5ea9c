// SPDX-License-Identifier: Apache-2.0
// From the structures of the C header to a request of the engine.
#pragma once

#include <string_view>
#include <vector>

#include "farandole/engine.h"
#include "local_request.h"

namespace farandole {

/// What this library knows of a caller's request, whose pointers have not been looked at.
/// @throws InvalidArgument  it is null, or does not tell its size
farandole_request known_request(const farandole_request* request);
/// A copy of `request` that has been checked in itself. @param ranks  of its process set, of the job
/// @throws InvalidArgument  it can not work, whatever the other ranks submit
LocalRequest checked_request(const farandole_request& request, const std::vector<int>& ranks);
/// What takes its place where ranks compare; it has no callback. `request` needs no more than its name and set. Has
/// no name, so that it is none, if that of the request can be none.
LocalRequest refusal_of(const farandole_request& request, std::string_view why);

}  // namespace farandole
