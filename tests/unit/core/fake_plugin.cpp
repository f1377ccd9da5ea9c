// SPDX-License-Identifier: Apache-2.0
// A plug-in that joins no job, built twice: once with the headers of this library and once with changed headers.
#include "farandole/core/error.h"
#include "farandole/sdk/backend.h"
#include "farandole/sdk/plugin_build.h"

namespace {

class FakeBackend final : public farandole::Backend {
 public:
  std::string_view name() const override { return "fake"; }
  std::string version() const override { return "Fake MPI 1.0"; }
  std::unique_ptr<farandole::ProcessGroup> join(const farandole::Settings&, const farandole::JoinOptions&) override {
    throw farandole::Unsupported("the fake plug-in joins nothing");
  }
};

}  // namespace

extern "C" {
extern const char farandole_backend_build_id[];
const char farandole_backend_build_id[] = FARANDOLE_PLUGIN_BUILD_ID;

farandole::Backend* farandole_backend_v1(const farandole::HostApi* host);
farandole::Backend* farandole_backend_v1(const farandole::HostApi* host) {
  static FakeBackend backend;
  return host->size_bytes == sizeof(farandole::HostApi) ? &backend : nullptr;
}
}
