// SPDX-License-Identifier: Apache-2.0
// What the parts of the double of cuDNN share: handles, numbers of 16 bits, and why a call was refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "cudnn_api.h"
#include "fake_devices.h"
#include "fake_faults.h"
#include "fake_streams.h"
#include "farandole/internal/float16.h"

namespace farandole::fake::cudnn {

// NOLINTBEGIN(google-build-using-namespace): cuDNN's names
using namespace trainer::cuda;
// NOLINTEND(google-build-using-namespace)

// Objects behind handles are never freed, so that uses of destroyed ones are recognised.

struct CudnnHandle : Handle {
  static constexpr Kind kKind = Kind::kCudnn;
  explicit CudnnHandle(Device& owner) : Handle(kKind), device(owner) {}
  Device& device;
  void* stream = nullptr;
};

/// Returns the object of a descriptor or handle; reports a misuse and returns null if it is none, or was destroyed.
template <class Object, class Pointer>
Object* object_of(const char* call, Pointer pointer) {
  auto* const object = reinterpret_cast<Object*>(pointer);
  if (object != nullptr && object->is(Object::kKind)) return object;
  misuse("{}: a handle or descriptor of another kind, or one that was destroyed", call);
  return nullptr;
}
/// As `object_of`; reports another current device, too.
CudnnHandle* handle_of(const char* call, cudnnHandle_t handle);

/// A random number, of the double's seed.
std::uint64_t random_number();

/// The element `index` of values of a type: f32, f16 or bf16.
float read(const void* values, std::size_t index, cudnnDataType_t type);
void write(float value, void* values, std::size_t index, cudnnDataType_t type);
inline std::size_t bytes_of(cudnnDataType_t type) {
  return type == CUDNN_DATA_FLOAT ? sizeof(float) : sizeof(Half);
}

/// What cudnnGetLastErrorString tells this thread.
std::string& last_error();

}  // namespace farandole::fake::cudnn

namespace farandole::fake {

// NOLINTBEGIN(readability-identifier-naming,bugprone-macro-parentheses): cuDNN's names
#define FARANDOLE_DECLARE_CUDNN(result, name, parameters) result name parameters;
#define FARANDOLE_CUDNN_CALL           \
  static CallSite call_site(__func__); \
  if (const int failed = call_site.begin_call(); failed != 0) return failed
// NOLINTBEGIN(google-build-using-namespace): cuDNN's names
using namespace trainer::cuda;
// NOLINTEND(google-build-using-namespace)
extern "C" {
FARANDOLE_CUDNN_FUNCTIONS(FARANDOLE_DECLARE_CUDNN)
}
// NOLINTEND(readability-identifier-naming,bugprone-macro-parentheses)

}  // namespace farandole::fake
