// SPDX-License-Identifier: Apache-2.0
// Must not compile: the trainer computes in float and double.
#include "farandole/core/dtype.h"
#include "farandole/trainer/layers.h"

int main() {
  const auto layer = farandole::trainer::dense<farandole::Half>(8);
  return layer == nullptr;
}
