// SPDX-License-Identifier: Apache-2.0
// Translation of the C header's structures into requests of the engine, with all checks that need no other rank.
#pragma once

#include <string_view>
#include <vector>

#include "farandole/engine.h"
#include "local_request.h"

namespace farandole {

/// Copies the fields of a caller's request that this library knows; the pointers in it are unchecked.
/// @throws InvalidArgument  the request is null, or its `struct_bytes` is impossible
farandole_request known_request(const farandole_request* request);
/// Checks a request completely and copies it. @param ranks  job ranks of the process set
/// @throws InvalidArgument  the request cannot work, whatever the other ranks submit
/// @throws Unsupported  a tensor is in device memory
LocalRequest checked_request(const farandole_request& request, const std::vector<int>& ranks);
/// Makes the announcement that replaces a request which this rank cannot make, for the reason `why`; without callbacks.
/// Reads name, process set, generation and `by_order` of `request`. The result has an empty name, which cannot be
/// submitted, if the name is unusable.
LocalRequest refusal_of(const farandole_request& request, std::string_view why);

}  // namespace farandole
