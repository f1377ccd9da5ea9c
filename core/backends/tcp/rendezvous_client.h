// SPDX-License-Identifier: Apache-2.0
// Rendezvous, in processes other than 0.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "farandole/internal/deadline.h"
#include "sockets/inbox.h"
#include "sockets/link.h"
#include "tcp/connector.h"
#include "tcp/rendezvous.h"
#include "tcp/rendezvous_messages.h"

struct pollfd;

namespace farandole::tcp::rendezvous {

/// Connects to process 0. Tries all addresses and ports at which process 0 may listen, in parallel, each with a
/// Connector of its own. The first handshake that succeeds is with process 0, and ends the other attempts. Then sends
/// the request and waits for the answer. Process 0 uses this class, too, to find another process 0. Non-blocking,
/// except for the name service. Not thread-safe.
class Client {
 public:
  /// Returns the addresses at which process 0 may listen, as known now. @param problem  set if there is none
  using AddressSource = std::function<std::vector<Address>(std::string& problem)>;

  Client(const Slot& slot, TcpNetwork& network, const Request& request, AddressSource find_addresses);

  /// Makes progress. Returns true once process 0 has sent the addresses of the neighbours, and the network has them.
  /// @throws PeerLost  process 0 has ended   @throws Error  the error that process 0 has sent   @throws TransportError
  bool advance();
  /// Describes the wait, for messages: "process 0 does not answer at 10.0.0.1:29500: Connection refused", "processes 3,
  /// 7 have not come".
  std::string describe_wait() const;
  /// Adds the sockets and events to wait for with poll(2).
  void add_to(std::vector<pollfd>& sockets) const;

 private:
  void look_up_addresses(Clock::time_point now);
  void send_request(Connector& connector);
  bool receive_answer();

  const Slot slot_;
  TcpNetwork& network_;
  const Request request_;
  const AddressSource find_addresses_;
  std::vector<Connector> connectors_;  // one per address
  std::string problem_;                // why `find_addresses_` has returned no address
  Clock::time_point next_lookup_{};
  sockets::KeptBytes kept_{4 * kMaxMessageBytes};
  std::unique_ptr<sockets::Link> link_;  // to process 0, once connected
  Address address_;                      // address of process 0, once connected
  std::string missing_text_;             // last report of process 0 about missing processes
};

}  // namespace farandole::tcp::rendezvous
