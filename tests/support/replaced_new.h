// SPDX-License-Identifier: Apache-2.0
// Allocation functions for a test program that replaces `operator new` and `operator delete`. Such a program links
// farandole_replaced_new, and defines both functions.
#pragma once

#include <cstddef>

namespace farandole::test {

/// Returns memory for `operator new`, from malloc.
/// @throws std::bad_alloc  no memory is left; a nothrow form returns nullptr then
void* allocate(std::size_t bytes);
/// Releases memory of `allocate`; no-op for nullptr.
void release(void* memory) noexcept;

}  // namespace farandole::test
