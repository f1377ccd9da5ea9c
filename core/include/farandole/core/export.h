// SPDX-License-Identifier: Apache-2.0
// Marks the symbols that the library exports. All other symbols are hidden, so they neither override nor are overridden
// by symbols of other libraries in the process.
#pragma once

#if __cplusplus < 202002L
#error \
    "Farandole's headers need C++20 or newer: compile with -std=c++20; in CMake, target_link_libraries(... farandole::farandole) does it"
// A missing header is a fatal error. It ends the compilation here, so that errors of later lines do not hide the
// message.
#include <farandole/needs_cxx20_or_newer>
#endif

/// Exports the declarations of a namespace. Written after the namespace's name, in public headers. Function templates
/// that are instantiated in a source file need the attribute themselves.
#define FARANDOLE_API __attribute__((visibility("default")))
