// SPDX-License-Identifier: Apache-2.0
// A metric of the program. Only compiled.
#include <cmath>
#include <cstdio>
#include <memory>
#include <utility>

#include "farandole/trainer/trainer.h"

using namespace farandole::trainer;

// BLOCK
