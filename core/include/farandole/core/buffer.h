// SPDX-License-Identifier: Apache-2.0
// Memory that collectives read and write.
//
// Buffer owns memory. BufferView and ConstBufferView refer to memory of the caller: {data, count, dtype, space}. Spans,
// vectors, arrays and matrices of Eigen convert to views, so most programs never name these types:
//
//   std::vector<float> gradient(n);
//   ranks.allreduce(gradient, ReduceOp::kSum);                             // a BufferView of n f32 elements
//   ranks.allreduce(BufferView(pointer, n, DType::kF32), ReduceOp::kSum);  // memory without a container
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <ranges>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "farandole/core/dtype.h"
#include "farandole/core/export.h"

namespace farandole FARANDOLE_API {

enum class MemoryKind : std::uint8_t { kHost, kCuda };

/// Location of memory: the host, or one device. Aligned to 4 bytes, so that views have no padding at their end and are
/// copied as whole words, at a third of the cost of a copy that must skip padding.
struct alignas(4) MemorySpace {
  MemoryKind kind = MemoryKind::kHost;
  std::uint16_t ordinal = 0;  ///< device number among the devices that the process sees; 0 for host memory

  bool is_host() const { return kind == MemoryKind::kHost; }
  bool operator==(const MemorySpace&) const = default;
};
/// "host memory", "memory of CUDA device 1"
std::string describe(MemorySpace space);

/// Returns the bytes to allocate for `count` elements. @throws InvalidArgument  the size exceeds the address space
std::size_t allocated_bytes(std::size_t count, DType dtype);

/// True if the C++ type `T` has a DType: collectives reduce such elements, and move them without byte_view().
template <class T>
inline constexpr bool kIsElement = (std::is_integral_v<T> && sizeof(T) <= 8) || std::same_as<T, Half> ||
                                   std::same_as<T, BFloat16> || std::same_as<T, float> || std::same_as<T, double>;

/// The DType of a range's elements.
template <class Range>
constexpr DType element_dtype() {
  using T = std::remove_cv_t<std::ranges::range_value_t<Range>>;
  if constexpr (kIsElement<T>) {
    return dtype_of<T>;
  } else {
    static_assert(kIsElement<T>,
                  "no DType for this C++ type: elements are bool, integers of 8 to 64 bits, farandole::Half, "
                  "farandole::BFloat16, float or double; farandole::byte_view(values) moves other trivially copyable "
                  "types, such as structures and complex numbers, as bytes");
  }
}

/// A range whose elements outlive the expression that names the range: an lvalue, or a view such as std::span. A view
/// type declares itself by `template <> inline constexpr bool std::ranges::enable_borrowed_range<MyView> = true;`.
template <class Range>
concept LastingRange =
    std::ranges::contiguous_range<Range> && std::ranges::sized_range<Range> && std::ranges::borrowed_range<Range>;
/// A container that is destroyed, with its elements, at the end of the expression: `std::vector<float>(3)`,
/// `std::move(values)`.
template <class Range>
concept TemporaryContainer =
    std::ranges::contiguous_range<Range> && std::ranges::sized_range<Range> && !std::ranges::borrowed_range<Range>;

/// A matrix, vector or array of Eigen that owns its elements, which are then contiguous, in the matrix's own order.
/// Blocks, maps and references of Eigen may have gaps; they are views of something that can be passed itself.
template <class Matrix>
concept OwningMatrix = !std::ranges::contiguous_range<Matrix> && requires(std::remove_cvref_t<Matrix> & matrix) {
  matrix.data();
  matrix.size();
  matrix.conservativeResize(matrix.rows(), matrix.cols());  // which only owners have
};
/// The DType of a matrix's elements.
template <OwningMatrix Matrix>
constexpr DType matrix_dtype() {
  return element_dtype<std::span<std::remove_pointer_t<decltype(std::declval<Matrix&>().data())>>>();
}

/// Read-only view of `count` contiguous elements. The caller owns the memory.
struct ConstBufferView {
  const void* data = nullptr;
  std::size_t count = 0;
  DType dtype = DType::kU8;
  MemorySpace space;

  ConstBufferView() = default;
  ConstBufferView(const void* elements, std::size_t element_count, DType element_type, MemorySpace where = {})
      : data(elements), count(element_count), dtype(element_type), space(where) {}
  /// Views a std::span, std::vector, std::array, or any other contiguous range whose element type has a DType.
  template <class Range>
  requires(std::ranges::contiguous_range<Range>&& std::ranges::sized_range<Range>)
      ConstBufferView(const Range& range)  // NOLINT: implicit, so that spans and vectors can be passed as they are
      : data(std::ranges::data(range)), count(std::ranges::size(range)), dtype(element_dtype<Range>()) {}
  template <OwningMatrix Matrix>
  ConstBufferView(const Matrix& matrix)  // NOLINT: implicit, as above
      : data(matrix.data()), count(static_cast<std::size_t>(matrix.size())), dtype(matrix_dtype<Matrix>()) {}

  std::size_t size_in_bytes() const { return count * farandole::size_in_bytes(dtype); }
};

/// Writable view of `count` contiguous elements. The caller owns the memory.
struct BufferView {
  void* data = nullptr;
  std::size_t count = 0;
  DType dtype = DType::kU8;
  MemorySpace space;

  BufferView() = default;
  BufferView(void* elements, std::size_t element_count, DType element_type, MemorySpace where = {})
      : data(elements), count(element_count), dtype(element_type), space(where) {}
  template <class Range>
  requires(LastingRange<Range> && !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<Range>>> &&
           !std::same_as<std::remove_cvref_t<Range>, BufferView>)
      BufferView(Range&& range)  // NOLINT: implicit, see above
      : data(std::ranges::data(range)), count(std::ranges::size(range)), dtype(element_dtype<Range>()) {}
  template <OwningMatrix Matrix>
  requires(!std::is_const_v<Matrix>) BufferView(Matrix& matrix)  // NOLINT: implicit, see above
      : data(matrix.data()), count(static_cast<std::size_t>(matrix.size())), dtype(matrix_dtype<Matrix>()) {}
  /// Deleted, because results written to a temporary container are lost. Give the container a name.
  template <TemporaryContainer Range>
  BufferView(Range&& range) = delete;  // NOLINT(bugprone-forwarding-reference-overload): a view is no container

  operator ConstBufferView() const { return {data, count, dtype, space}; }  // NOLINT: implicit, see above
  std::size_t size_in_bytes() const { return count * farandole::size_in_bytes(dtype); }
  /// View of elements [first, first + length).
  BufferView part(std::size_t first, std::size_t length) const {
    return {static_cast<std::byte*>(data) + first * farandole::size_in_bytes(dtype), length, dtype, space};
  }
};

/// Input of an asynchronous collective: a ConstBufferView that does not accept temporary containers, because the
/// collective reads the elements after the call has returned.
struct AsyncInput : ConstBufferView {
  using ConstBufferView::ConstBufferView;
  AsyncInput(const ConstBufferView& view) : ConstBufferView(view) {}  // NOLINT: implicit, as all views
  AsyncInput(const BufferView& view) : ConstBufferView(view) {}       // NOLINT
  /// Deleted, because the collective would read a destroyed container. Give the container a name, and keep it until the
  /// collective is complete.
  template <TemporaryContainer Range>
  AsyncInput(Range&& range) = delete;  // NOLINT(bugprone-forwarding-reference-overload): as above
  template <OwningMatrix Matrix>
  AsyncInput(const Matrix&& matrix) = delete;
};

/// Views a range, or a single object, of any trivially copyable type as bytes. Use it in collectives that only move
/// data (broadcast, allgather, gather, scatter, alltoall), among machines with the same data layout. The collective's
/// counts are then in bytes.
///
///   struct Particle { double position[3]; std::int32_t kind; };
///   std::vector<Particle> own(n), all(n * ranks.size());
///   ranks.allgather(byte_view(own), byte_view(all));
template <class Range>
requires(LastingRange<Range>&& std::is_trivially_copyable_v<std::ranges::range_value_t<Range>>) auto byte_view(
    Range&& range) {
  using View = std::conditional_t<std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<Range>>>,
                                  ConstBufferView, BufferView>;
  return View(std::ranges::data(range), std::ranges::size(range) * sizeof(std::ranges::range_value_t<Range>),
              DType::kU8);
}
template <TemporaryContainer Range>
void byte_view(Range&& range) = delete;
template <class T>
requires(std::is_trivially_copyable_v<T> && !std::ranges::range<T> && !std::is_pointer_v<T>) auto byte_view(T& object) {
  using View = std::conditional_t<std::is_const_v<T>, ConstBufferView, BufferView>;
  return View(std::addressof(object), sizeof(T), DType::kU8);
}
template <class T>
requires(!std::ranges::range<T>) void byte_view(const T&& object) = delete;

/// Owner of `count` elements. Movable, not copyable.
class Buffer {
 public:
  Buffer() = default;
  /// Allocates zeroed host memory, aligned to 64 bytes. @throws std::bad_alloc
  Buffer(std::size_t count, DType dtype);
  /// Takes ownership of `memory`; the destructor calls `release(memory)`.
  Buffer(void* memory, std::size_t count, DType dtype, std::function<void(void*)> release, MemorySpace space = {})
      : memory_(memory, {std::move(release)}), count_(count), dtype_(dtype), space_(space) {}

  BufferView view() { return {memory_.get(), count_, dtype_, space_}; }
  ConstBufferView view() const { return {memory_.get(), count_, dtype_, space_}; }
  std::size_t count() const { return count_; }
  DType dtype() const { return dtype_; }
  MemorySpace space() const { return space_; }
  /// Pointer to the elements. `T` must be the C++ type of the buffer's DType. Dereference the pointer only if the
  /// buffer lies in host memory.
  template <class T>
  T* as() {
    return static_cast<T*>(memory_.get());
  }

 private:
  struct Free {
    std::function<void(void*)> release;  // empty: the memory is from std::aligned_alloc
    void operator()(void* memory) const;
  };
  std::unique_ptr<void, Free> memory_;
  std::size_t count_ = 0;
  DType dtype_ = DType::kU8;
  MemorySpace space_;
};

}  // namespace FARANDOLE_API
