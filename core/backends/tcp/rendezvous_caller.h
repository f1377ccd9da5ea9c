// SPDX-License-Identifier: Apache-2.0
// A process that looks for process 0, and says where it listens.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "farandole/internal/deadline.h"
#include "sockets/kept_bytes.h"
#include "sockets/link.h"
#include "tcp/connector.h"
#include "tcp/rendezvous.h"
#include "tcp/rendezvous_messages.h"

struct pollfd;

namespace farandole::tcp::rendezvous {

/// Calls all addresses and ports at which process 0 may be, side by side; the program that answers as process 0 of the
/// job is it. Nothing blocks but the name service. Not thread-safe.
class Caller {
 public:
  /// Where process 0 may be, as far as it is known now. @param problem  set if nowhere
  using AddressSource = std::function<std::vector<Address>(std::string& problem)>;

  Caller(const Slot& slot, TcpNetwork& network, const Request& request, AddressSource find_addresses);

  /// Goes on. True once process 0 has said where the neighbours listen, and the network knows.
  /// @throws PeerLost  process 0 has gone   @throws Error  as process 0 says   @throws TransportError
  bool advance();
  /// "process 0 does not answer at 10.0.0.1:29500: Connection refused"; "processes 3, 7 have not come"
  std::string describe_wait() const;
  /// Adds what to look for with poll(2).
  void add_to(std::vector<pollfd>& sockets) const;

 private:
  void look_up_addresses(Clock::time_point now);
  void send_request(Connector& connector);
  bool receive_answer();

  const Slot slot_;
  TcpNetwork& network_;
  const Request request_;
  const AddressSource find_addresses_;
  std::vector<Connector> connectors_;  // of one address each
  std::string problem_;                // of the places
  Clock::time_point next_lookup_{};
  sockets::KeptBytes kept_{4 * kMaxMessageBytes};
  std::unique_ptr<sockets::Link> link_;  // with process 0
  Address address_;                      // process 0
  std::string missing_text_;             // what process 0 has said of other processes
};

}  // namespace farandole::tcp::rendezvous
