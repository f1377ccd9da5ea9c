// SPDX-License-Identifier: Apache-2.0
// A program whose main function is a block of a page.
#include <cstdio>
#include <vector>

#include "farandole/collectives/communicator.h"

int main() {
  // BLOCK
}
