// SPDX-License-Identifier: Apache-2.0
// What the library exports. Everything else in it is hidden: it binds to no other library's symbols, and none of them
// bind to it.
#pragma once

#if __cplusplus < 202002L
#error \
    "Farandole's headers need C++20 or newer: compile with -std=c++20; in CMake, target_link_libraries(... farandole::farandole) does it"
#endif

/// Stands behind the name of a namespace in public headers: what is declared there is exported. Function templates that
/// a source instantiates need it themselves.
#define FARANDOLE_API __attribute__((visibility("default")))
