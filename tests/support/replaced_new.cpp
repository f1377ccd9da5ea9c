// SPDX-License-Identifier: Apache-2.0
// Replaces all forms of `operator new` and `operator delete` without alignment. All must be replaced: the standard
// library's other forms would call the replaced ones, but a sanitizer's forms do not, and the address sanitizer ends a
// program that gets memory from the sanitizer's form (std::stable_sort uses the nothrow form) and releases it by the
// program's form.
#include "replaced_new.h"

#include <new>

namespace {

void* allocate_or_null(std::size_t bytes) noexcept {
  try {
    return farandole::test::allocate(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

}  // namespace

void* operator new(std::size_t bytes) {
  return farandole::test::allocate(bytes);
}
void* operator new[](std::size_t bytes) {
  return farandole::test::allocate(bytes);
}
void* operator new(std::size_t bytes, const std::nothrow_t& /*nothrow*/) noexcept {
  return allocate_or_null(bytes);
}
void* operator new[](std::size_t bytes, const std::nothrow_t& /*nothrow*/) noexcept {
  return allocate_or_null(bytes);
}
void operator delete(void* memory) noexcept {
  farandole::test::release(memory);
}
void operator delete[](void* memory) noexcept {
  farandole::test::release(memory);
}
void operator delete(void* memory, std::size_t /*bytes*/) noexcept {
  farandole::test::release(memory);
}
void operator delete[](void* memory, std::size_t /*bytes*/) noexcept {
  farandole::test::release(memory);
}
void operator delete(void* memory, const std::nothrow_t& /*nothrow*/) noexcept {
  farandole::test::release(memory);
}
void operator delete[](void* memory, const std::nothrow_t& /*nothrow*/) noexcept {
  farandole::test::release(memory);
}
