// SPDX-License-Identifier: Apache-2.0
// The networks of all processes of a job, created in this process and connected over loopback.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "tcp/tcp_network.h"

namespace farandole::tcp {

/// One thread may drive all of them: nothing that a network does blocks.
class TcpJob {
 public:
  explicit TcpJob(int processes, std::string interface = "127.0.0.0/8", Seconds peer_timeout = Seconds(60))
      : interface_(std::move(interface)), peer_timeout_(peer_timeout) {
    for (int p = 0; p < processes; ++p) networks_.push_back(make(p, processes, key_));
    for (const auto& each : networks_) introduce(*each);
  }
  /// A network that knows where those of the job listen.
  std::unique_ptr<TcpNetwork> make(int process, int processes, const JobKey& key) const {
    TcpNetwork::Options options;
    options.process = process;
    options.processes = processes;
    options.key = key;
    options.job = 7;
    options.interface = interface_;
    options.peer_timeout = peer_timeout_;
    options.name = [](int p) { return "rank " + std::to_string(p) + " (host node" + std::to_string(p) + ")"; };
    return std::make_unique<TcpNetwork>(options);
  }
  void introduce(TcpNetwork& network) const {
    for (int p = 0; p < static_cast<int>(networks_.size()); ++p) {
      if (p != network.process()) network.set_addresses(p, networks_[static_cast<std::size_t>(p)]->listens_at());
    }
  }
  TcpNetwork& operator[](int process) { return *networks_[static_cast<std::size_t>(process)]; }
  int size() const { return static_cast<int>(networks_.size()); }
  const JobKey& key() const { return key_; }
  /// The process ends.
  void end(int process) { networks_[static_cast<std::size_t>(process)].reset(); }

  /// Moves all on until it is so. False: 20 s have passed.
  template <class Done>
  bool until(const Done& is_done) {
    const Deadline deadline = Deadline::after(std::chrono::seconds(20));
    while (!is_done()) {
      if (deadline.passed()) return false;
      for (const auto& each : networks_) {
        if (each) each->advance();
      }
    }
    return true;
  }
  bool connect(int one, int other) {
    (*this)[one].link(other);
    return until([&] { return (*this)[one].is_connected(other) && (*this)[other].is_connected(one); });
  }

 private:
  const std::string interface_;
  const Seconds peer_timeout_;
  const JobKey key_ = make_job_key();
  std::vector<std::unique_ptr<TcpNetwork>> networks_;
};

}  // namespace farandole::tcp
