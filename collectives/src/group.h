// What operations need to know about the communicator they run on.
#pragma once

#include <cstdint>
#include <vector>

#include "farandole/core/endpoint.h"

namespace farandole {

/// Const after construction.
struct Group {
  Endpoint* endpoint = nullptr;
  std::uint16_t id = 0;
  int rank = 0;              ///< within `members`
  std::vector<int> members;  ///< ranks of the job

  int size() const { return static_cast<int>(members.size()); }
  int member(int index) const { return members[static_cast<std::size_t>(index)]; }
  Transport& route(int peer) const { return endpoint->route(member(peer)); }
  Channel channel_to(int peer, std::uint8_t lane) const { return {id, lane, member(rank), member(peer)}; }
  Channel channel_from(int peer, std::uint8_t lane) const { return {id, lane, member(peer), member(rank)}; }
};

}  // namespace farandole
