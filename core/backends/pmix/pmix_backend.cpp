// SPDX-License-Identifier: Apache-2.0
#include "pmix/pmix_backend.h"

#include <fmt/format.h>

#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "farandole/core/error.h"
#include "pmix/pmix_client.h"
#include "tcp/job_key.h"
#include "tcp/rendezvous.h"
#include "tcp/tcp_process_group.h"

namespace farandole::pmix {
namespace {

/// Returns the secret of the job in every process: process 0 makes the secret, and PMIx distributes the secret.
tcp::JobSecret share_secret(PmixClient& client) {
  tcp::JobSecret secret;
  std::string text;
  if (client.process() == 0) {
    secret = tcp::make_job_secret();
    text.assign(reinterpret_cast<const char*>(&secret), sizeof secret);
  }
  text = client.share(text);
  if (text.size() != sizeof secret) {
    throw TransportError(
        fmt::format("{} brings {} bytes of the job's secret, which has {}: process 0 runs another build",
                    client.describe(), text.size(), sizeof secret));
  }
  std::memcpy(&secret, text.data(), sizeof secret);
  return secret;
}

class PmixBackend final : public Backend {
 public:
  std::string_view name() const override { return "pmix"; }
  std::string version() const override { return version_; }
  std::unique_ptr<ProcessGroup> join(const Settings& settings, const JoinOptions& /*options*/) override {
    const std::unique_ptr<PmixClient> client = PmixClient::join(settings);
    version_ = "TCP connections, by " + client->describe();
    const tcp::JobSecret secret = share_secret(*client);
    tcp::Slot slot = tcp::make_slot(settings);
    slot.process = client->process();
    slot.processes = client->processes();
    slot.key = secret.key;
    slot.job = secret.job;
    // Process 0 shares its address by PMIx, and continues only after all processes have connected to this address. So
    // when process 0 continues, all processes have received the shared texts.
    slot.share = [&client](std::string_view of_process_0) { return client->share(of_process_0); };
    return std::make_unique<tcp::TcpProcessGroup>(slot);
  }

 private:
  std::string version_ = "TCP connections, by PMIx";  // written by `join`, which runs once at a time
};

}  // namespace

Backend& pmix_backend() {
  static PmixBackend backend;
  return backend;
}

}  // namespace farandole::pmix
