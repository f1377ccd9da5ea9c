// Linked into a program, this takes the place of the library's own function: its processes are of another build.
#include "farandole/core/backend.h"

namespace farandole {

const char* layout_id() {
  return "0.0.0-000000000000-le64-00000000";
}

}  // namespace farandole
