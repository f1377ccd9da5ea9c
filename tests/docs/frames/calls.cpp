// SPDX-License-Identifier: Apache-2.0
// Calls on a communicator.
#include <vector>

#include "farandole/collectives/communicator.h"

using namespace farandole;

int main() {
  World world;
  Communicator ranks = Communicator::of_world(world);
  std::vector<float> first(4), second(4), all(4);
  // BLOCK
}
