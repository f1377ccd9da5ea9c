#include "values.h"

#include <algorithm>
#include <cstdint>

namespace farandole::test {
namespace {

template <class Visitor>
auto visit(DType dtype, void* data, const Visitor& visitor) {
  switch (dtype) {
    case DType::kBool:
    case DType::kU8:
      return visitor(static_cast<std::uint8_t*>(data));
    case DType::kI8:
      return visitor(static_cast<std::int8_t*>(data));
    case DType::kU16:
      return visitor(static_cast<std::uint16_t*>(data));
    case DType::kI16:
      return visitor(static_cast<std::int16_t*>(data));
    case DType::kI32:
      return visitor(static_cast<std::int32_t*>(data));
    case DType::kI64:
      return visitor(static_cast<std::int64_t*>(data));
    case DType::kF16:
      return visitor(static_cast<Half*>(data));
    case DType::kBF16:
      return visitor(static_cast<BFloat16*>(data));
    case DType::kF32:
      return visitor(static_cast<float*>(data));
    case DType::kF64:
      break;
  }
  return visitor(static_cast<double*>(data));
}

double to_double(Half number) {
  return to_float(number);
}
double to_double(BFloat16 number) {
  return to_float(number);
}
template <class T>
double to_double(T number) {
  return static_cast<double>(number);
}

}  // namespace

double value(int rank, std::size_t index, DType dtype, ReduceOp op) {
  const std::size_t mixed = (index * 7 + static_cast<std::size_t>(rank) * 13 + index / 11) % 97;
  if (dtype == DType::kBool) return mixed % 3 == 0 ? 1 : 0;
  if (op == ReduceOp::kProduct) return mixed % 4 == 0 ? 2 : 1;
  return static_cast<double>(mixed % 5);
}

double load(ConstBufferView view, std::size_t index) {
  return visit(view.dtype, const_cast<void*>(view.data), [&](auto* data) { return to_double(data[index]); });
}

void store(BufferView view, std::size_t index, double number) {
  visit(view.dtype, view.data, [&](auto* data) {
    using T = std::remove_reference_t<decltype(data[0])>;
    if constexpr (std::is_same_v<T, Half>) {
      data[index] = to_half(static_cast<float>(number));
    } else if constexpr (std::is_same_v<T, BFloat16>) {
      data[index] = to_bfloat16(static_cast<float>(number));
    } else {
      data[index] = static_cast<T>(number);
    }
  });
}

Buffer values(int rank, std::size_t first, std::size_t count, DType dtype, ReduceOp op) {
  Buffer buffer(count, dtype);
  for (std::size_t i = 0; i < count; ++i) store(buffer.view(), i, value(rank, first + i, dtype, op));
  return buffer;
}

double reduced(int size, std::size_t index, DType dtype, ReduceOp op) {
  double result = value(0, index, dtype, op);
  for (int rank = 1; rank < size; ++rank) {
    const double next = value(rank, index, dtype, op);
    const bool is_or = dtype == DType::kBool && op != ReduceOp::kProduct && op != ReduceOp::kMin;
    if (is_or || op == ReduceOp::kMax) {
      result = std::max(result, next);
    } else if (op == ReduceOp::kMin || dtype == DType::kBool) {
      result = std::min(result, next);
    } else if (op == ReduceOp::kProduct) {
      result *= next;
    } else {
      result += next;
    }
  }
  return result;
}

}  // namespace farandole::test
