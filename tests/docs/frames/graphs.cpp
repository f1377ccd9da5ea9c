// SPDX-License-Identifier: Apache-2.0
// A graph with several inputs and outputs, and its training. Only compiled.
#include <iostream>
#include <memory>
#include <utility>

#include "farandole/trainer/graph.h"
#include "farandole/trainer/outputs.h"
#include "farandole/trainer/trainer.h"

using namespace farandole::trainer;

// BLOCK
