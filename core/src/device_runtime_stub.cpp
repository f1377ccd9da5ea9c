#include "farandole/sdk/device.h"
namespace farandole {
const DeviceAvailability& device_runtime(const Settings&) {
  static const DeviceAvailability none{nullptr, "this build has no plug-in for devices"};
  return none;
}
}  // namespace farandole
