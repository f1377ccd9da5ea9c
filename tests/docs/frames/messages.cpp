// SPDX-License-Identifier: Apache-2.0
// Messages between two ranks.
#include <cstdio>
#include <vector>

#include "farandole/collectives/communicator.h"

using namespace farandole;

int main() {
  World world;
  Communicator ranks = Communicator::of_world(world);
  // BLOCK
}
