// SPDX-License-Identifier: Apache-2.0
// What is said of a layer, loss, metric or update rule that cannot compute as a training on devices needs it.
#pragma once

#include <string>

#include "farandole/trainer/execution.h"

namespace farandole::trainer {

/// Returns why `what` cannot be used, and what to do; empty if `form` is at least `needed`.
inline std::string device_problem(const std::string& what, DeviceForm form, DeviceForm needed) {
  if (form >= needed) return {};
  if (form == DeviceForm::kNone) {
    return what +
           " computes in host memory only. Train on the CPU; code of your own overrides device_form, and enqueues its "
           "work in the stream of the execution";
  }
  return what +
         " cannot be captured into a graph. Train without TrainerOptions::graph; code of your own returns "
         "DeviceForm::kGraphs from device_form, and reads what changes from training step to training step on the "
         "device "
         "(StepNumbers)";
}

}  // namespace farandole::trainer
