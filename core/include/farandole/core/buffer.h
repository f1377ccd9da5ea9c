// SPDX-License-Identifier: Apache-2.0
// Memory: owners (Buffer) and views (BufferView, ConstBufferView) are different types.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <ranges>
#include <string>
#include <type_traits>
#include <utility>

#include "farandole/core/dtype.h"
#include "farandole/core/export.h"

namespace farandole FARANDOLE_API {

enum class MemoryKind : std::uint8_t { kHost, kCuda };

/// Where memory is: that of the processors, or of a device. Aligned so that views end without padding: a copy of whole
/// words costs a third of a copy that has to leave the padding alone.
struct alignas(4) MemorySpace {
  MemoryKind kind = MemoryKind::kHost;
  std::uint16_t ordinal = 0;  ///< of the device, among those that the process sees

  bool is_host() const { return kind == MemoryKind::kHost; }
  bool operator==(const MemorySpace&) const = default;
};
/// "host memory", "memory of CUDA device 1"
std::string describe(MemorySpace space);

/// Bytes of `count` elements that are to be allocated. @throws InvalidArgument  they do not fit in the address space
std::size_t allocated_bytes(std::size_t count, DType dtype);

/// `count` contiguous elements that the view does not own, to be read only.
struct ConstBufferView {
  const void* data = nullptr;
  std::size_t count = 0;
  DType dtype = DType::kU8;
  MemorySpace space;

  ConstBufferView() = default;
  ConstBufferView(const void* elements, std::size_t element_count, DType element_type, MemorySpace where = {})
      : data(elements), count(element_count), dtype(element_type), space(where) {}
  /// From a std::span, std::vector, std::array, or any other contiguous range of a type with a DType.
  template <class Range>
  requires(std::ranges::contiguous_range<Range>&& std::ranges::sized_range<Range>)
      ConstBufferView(const Range& range)  // NOLINT: implicit, so that spans and vectors can be passed as they are
      : data(std::ranges::data(range)),
        count(std::ranges::size(range)),
        dtype(dtype_of<std::ranges::range_value_t<Range>>) {}

  std::size_t size_in_bytes() const { return count * farandole::size_in_bytes(dtype); }
};

/// `count` contiguous elements that the view does not own, to be read and written.
struct BufferView {
  void* data = nullptr;
  std::size_t count = 0;
  DType dtype = DType::kU8;
  MemorySpace space;

  BufferView() = default;
  BufferView(void* elements, std::size_t element_count, DType element_type, MemorySpace where = {})
      : data(elements), count(element_count), dtype(element_type), space(where) {}
  template <class Range>
  requires(std::ranges::contiguous_range<Range>&& std::ranges::sized_range<Range> &&
           !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<Range>>> &&
           !std::same_as<std::remove_cvref_t<Range>, BufferView>)
      BufferView(Range&& range)  // NOLINT: implicit, see above
      : data(std::ranges::data(range)),
        count(std::ranges::size(range)),
        dtype(dtype_of<std::ranges::range_value_t<Range>>) {}

  operator ConstBufferView() const { return {data, count, dtype, space}; }  // NOLINT: a reader of writable memory
  std::size_t size_in_bytes() const { return count * farandole::size_in_bytes(dtype); }
  /// Elements [first, first + length).
  BufferView part(std::size_t first, std::size_t length) const {
    return {static_cast<std::byte*>(data) + first * farandole::size_in_bytes(dtype), length, dtype, space};
  }
};

/// Owns `count` zeroed elements, aligned to 64 bytes. Movable. Throws std::bad_alloc.
class Buffer {
 public:
  Buffer() = default;
  Buffer(std::size_t count, DType dtype);
  /// Takes over memory that `release` gives back.
  Buffer(void* memory, std::size_t count, DType dtype, std::function<void(void*)> release, MemorySpace space = {})
      : memory_(memory, {std::move(release)}), count_(count), dtype_(dtype), space_(space) {}

  BufferView view() { return {memory_.get(), count_, dtype_, space_}; }
  ConstBufferView view() const { return {memory_.get(), count_, dtype_, space_}; }
  std::size_t count() const { return count_; }
  DType dtype() const { return dtype_; }
  MemorySpace space() const { return space_; }
  /// The elements as `T`, which must be the C++ type of the buffer's DType. Only host memory can be read through it.
  template <class T>
  T* as() {
    return static_cast<T*>(memory_.get());
  }

 private:
  struct Free {
    std::function<void(void*)> release;  // empty: ordinary memory
    void operator()(void* memory) const;
  };
  std::unique_ptr<void, Free> memory_;
  std::size_t count_ = 0;
  DType dtype_ = DType::kU8;
  MemorySpace space_;
};

}  // namespace FARANDOLE_API
