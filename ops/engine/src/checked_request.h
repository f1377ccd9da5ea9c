// From the structures of the C header to a request of the engine.
#pragma once

#include <vector>

#include "farandole/engine.h"
#include "local_request.h"

namespace farandole {

/// A copy of `request` that has been checked in itself. @param ranks  of its process set, of the job
/// @throws InvalidArgument  it can not work, whatever the other ranks submit
LocalRequest checked_request(const farandole_request& request, const std::vector<int>& ranks);

}  // namespace farandole
