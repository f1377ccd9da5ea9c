// SPDX-License-Identifier: Apache-2.0
// A plug-in for fake devices, built twice: once with the headers of this library and once with changed headers.
// FAKE_DEVICES selects the devices: if unset, there is no device and no reason; `none`: no device; otherwise the
// device's name.
#include <cstdlib>
#include <string>
#include <vector>

#include "farandole/core/error.h"
#include "farandole/sdk/device.h"
#include "farandole/sdk/plugin_build.h"

namespace {

class FakeDevices final : public farandole::DeviceRuntime {
 public:
  explicit FakeDevices(std::string version) : version_(std::move(version)) {}
  std::string_view name() const override { return "FAKE"; }
  std::string version() const override { return version_; }
  std::string collectives_version() const override { return version_; }
  std::string collectives_missing() const override { return {}; }
  bool shares_devices() const override { return false; }
  std::vector<std::string> warnings() const override { return {}; }
  std::vector<farandole::DeviceInfo> devices() const override { return {}; }
  farandole::Device& open(int) override { throw farandole::InvalidArgument("there is none"); }
  farandole::MemorySpace space_of(const void*) const override { return {}; }

 private:
  const std::string version_;
};

}  // namespace

extern "C" {
extern const char farandole_device_build_id[];
const char farandole_device_build_id[] = FARANDOLE_PLUGIN_BUILD_ID;

farandole::DeviceRuntime* farandole_device_v1(const farandole::DeviceHostApi* host, std::string* reason);
farandole::DeviceRuntime* farandole_device_v1(const farandole::DeviceHostApi* host, std::string* reason) {
  const char* const found = std::getenv("FAKE_DEVICES");
  if (found == nullptr) return nullptr;
  if (std::string_view(found) == "none") {
    *reason = "the fake has found none";
    return nullptr;
  }
  static FakeDevices devices(std::string(found) + ", libraries '" + host->cuda_library + "' and '" +
                             host->nccl_library + "'");
  return &devices;
}
}
