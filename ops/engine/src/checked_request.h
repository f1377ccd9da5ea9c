// SPDX-License-Identifier: Apache-2.0
// Translation of the C header's structures into requests of the engine, with all checks that need no other rank.
#pragma once

#include <string_view>
#include <vector>

#include "farandole/engine.h"
#include "local_request.h"

namespace farandole {

/// Copies the fields of a caller's request that this library knows. Does not check the pointers in the copy.
/// @throws InvalidArgument  the request is null, or its `struct_bytes` is impossible
farandole_request known_request(const farandole_request* request);
/// Checks a request completely and copies it. EngineDevice::prepare checks addresses in device memory afterwards.
/// @param ranks  job ranks of the process set
/// @throws InvalidArgument  the request cannot work, whatever the other ranks submit
LocalRequest checked_request(const farandole_request& request, const std::vector<int>& ranks);
/// Makes the refusal that this rank submits in place of a request that it cannot make, for the reason `why`. A refusal
/// has no callbacks. Reads name, process set, generation and `by_order` of `request`. If the name is missing or too
/// long, the refusal's name is empty, and the engine does not submit the refusal.
LocalRequest refusal_of(const farandole_request& request, std::string_view why);

}  // namespace farandole
