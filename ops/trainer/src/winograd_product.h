// SPDX-License-Identifier: Apache-2.0
// Matrix products for Winograd's algorithm, with AVX2 and FMA. Matrices are stored in blocks of eight columns, in which
// rows follow each other: {columns / 8, rows, 8}. So a factor needs no packing, and all of it is read in order.
//
// Summands of an element are added in an order that does not depend on how the product is cut into pieces: its bits
// depend on the values of its row and its column only.
#pragma once

#include <algorithm>
#include <cstddef>

#include "winograd_transforms.h"

namespace farandole::trainer {

/// Rows of the pieces of a result, and blocks of eight columns in them: as many as there are registers for.
inline constexpr int kPieceRows = 4, kPieceBlocks = 3;

/// A matrix in blocks of eight columns.
template <class Value>
struct BlockMatrix {
  Value* values;
  std::int64_t block;  ///< elements from a block of columns to the next
};

/// sums[i][j] += left[i * kLeftRow + k * kLeftStep] * right[k * 8 + j * right_block], for each k < count
template <int kRows, int kBlocks, std::int64_t kLeftRow, std::int64_t kLeftStep>
FARANDOLE_FMA_INLINED inline void add_products(Lanes (&sums)[kRows][kBlocks], const float* left, const float* right,
                                               std::int64_t right_block, std::int64_t count) {
  for (std::int64_t k = 0; k < count; ++k) {
    Lanes row[kBlocks];
#pragma GCC unroll 3
    for (int j = 0; j < kBlocks; ++j) row[j] = lanes_at(right + k * kLanes + j * right_block);
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
      const Lanes factor = _mm256_broadcast_ss(left + i * kLeftRow + k * kLeftStep);
#pragma GCC unroll 3
      for (int j = 0; j < kBlocks; ++j) sums[i][j] = _mm256_fmadd_ps(factor, row[j], sums[i][j]);
    }
  }
}

template <int kRows, int kBlocks>
FARANDOLE_FMA_INLINED inline void load_sums(bool add, const BlockMatrix<float>& result, Lanes (&sums)[kRows][kBlocks]) {
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 3
    for (int j = 0; j < kBlocks; ++j) {
      sums[i][j] = add ? lanes_at(result.values + i * kLanes + j * result.block) : lanes_of(0);
    }
  }
}

template <int kRows, int kBlocks>
FARANDOLE_FMA_INLINED inline void store_sums(const Lanes (&sums)[kRows][kBlocks], const BlockMatrix<float>& result) {
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 3
    for (int j = 0; j < kBlocks; ++j) _mm256_storeu_ps(result.values + i * kLanes + j * result.block, sums[i][j]);
  }
}

/// A piece of left * right; `inner` columns of `left`, a multiple of 8.
template <int kRows, int kBlocks>
FARANDOLE_FMA void multiply_piece(const BlockMatrix<const float>& left, const BlockMatrix<const float>& right,
                                  std::int64_t inner, bool add, const BlockMatrix<float>& result) {
  Lanes sums[kRows][kBlocks];
  load_sums<kRows, kBlocks>(add, result, sums);
  for (std::int64_t k = 0; k < inner / kLanes; ++k) {
    add_products<kRows, kBlocks, kLanes, 1>(sums, left.values + k * left.block, right.values + k * kLanes * kLanes,
                                            right.block, kLanes);
  }
  store_sums<kRows, kBlocks>(sums, result);
}

/// Rows whose products are added to each other before they are added to the result: a batch has thousands of tiles, and
/// rounding errors grow with the length of a chain of additions.
inline constexpr std::int64_t kSummedRows = 32;

/// A piece of left^T * right, whose rows are columns of one block of `left`; `inner` rows of `left`.
template <int kRows, int kBlocks>
FARANDOLE_FMA void multiply_transposed_piece(const BlockMatrix<const float>& left,
                                             const BlockMatrix<const float>& right, std::int64_t inner, bool add,
                                             const BlockMatrix<float>& result) {
  for (std::int64_t k = 0; k < inner; k += kSummedRows) {
    Lanes sums[kRows][kBlocks], former[kRows][kBlocks];
    load_sums<kRows, kBlocks>(false, result, sums);
    add_products<kRows, kBlocks, 1, kLanes>(sums, left.values + k * kLanes, right.values + k * kLanes, right.block,
                                            std::min(kSummedRows, inner - k));
    load_sums<kRows, kBlocks>(add || k > 0, result, former);
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 3
      for (int j = 0; j < kBlocks; ++j) sums[i][j] = _mm256_add_ps(former[i][j], sums[i][j]);
    }
    store_sums<kRows, kBlocks>(sums, result);
  }
}

/// Calls visit(first block, integral constant of the number of blocks) for pieces of `blocks` blocks. Four blocks are
/// two pieces of two, because a piece of one block is slow.
template <class Visit>
void for_each_piece(std::int64_t blocks, const Visit& visit) {
  for (std::int64_t first = 0; first < blocks;) {
    const std::int64_t left = blocks - first;
    if (left >= kPieceBlocks && left != 4) {
      visit(first, std::integral_constant<int, kPieceBlocks>{});
      first += kPieceBlocks;
    } else if (left >= 2) {
      visit(first, std::integral_constant<int, 2>{});
      first += 2;
    } else {
      visit(first, std::integral_constant<int, 1>{});
      first += 1;
    }
  }
}

/// Extents of a product.
struct ProductExtents {
  std::int64_t rows, inner, columns;
};

/// result = left * right; inner extent and columns are multiples of 8.
inline void multiply_blocks(const ProductExtents& extents, const BlockMatrix<const float>& left,
                            const BlockMatrix<const float>& right, const BlockMatrix<float>& result) {
  // A panel of the right factor with so many rows stays in the first cache.
  constexpr std::int64_t kMaxInner = 256;
  for (std::int64_t k = 0; k < extents.inner; k += kMaxInner) {
    const std::int64_t inner = std::min(kMaxInner, extents.inner - k);
    for_each_piece(extents.columns / kLanes, [&](std::int64_t first, auto blocks) {
      constexpr int kBlocks = decltype(blocks)::value;
      const BlockMatrix<const float> panel{right.values + first * right.block + k * kLanes, right.block};
      for (std::int64_t row = 0; row < extents.rows; row += kPieceRows) {
        const BlockMatrix<const float> rows{left.values + k / kLanes * left.block + row * kLanes, left.block};
        const BlockMatrix<float> to{result.values + first * result.block + row * kLanes, result.block};
        switch (std::min<std::int64_t>(extents.rows - row, kPieceRows)) {
          case 1:
            multiply_piece<1, kBlocks>(rows, panel, inner, k > 0, to);
            break;
          case 2:
            multiply_piece<2, kBlocks>(rows, panel, inner, k > 0, to);
            break;
          case 3:
            multiply_piece<3, kBlocks>(rows, panel, inner, k > 0, to);
            break;
          default:
            multiply_piece<kPieceRows, kBlocks>(rows, panel, inner, k > 0, to);
        }
      }
    });
  }
}

/// result = left^T * right, or adds the product to `result`; rows and columns of the result are multiples of 8. A
/// product that is added in parts has the same bits if all parts but the last have a multiple of kSummedRows rows.
inline void multiply_transposed_blocks(const ProductExtents& extents, const BlockMatrix<const float>& left,
                                       const BlockMatrix<const float>& right, bool add,
                                       const BlockMatrix<float>& result) {
  for_each_piece(extents.columns / kLanes, [&](std::int64_t first, auto blocks) {
    constexpr int kBlocks = decltype(blocks)::value;
    const BlockMatrix<const float> panel{right.values + first * right.block, right.block};
    for (std::int64_t row = 0; row < extents.rows; row += kPieceRows) {
      const BlockMatrix<const float> columns{left.values + row / kLanes * left.block + row % kLanes, left.block};
      const BlockMatrix<float> to{result.values + first * result.block + row * kLanes, result.block};
      multiply_transposed_piece<kPieceRows, kBlocks>(columns, panel, extents.inner, add, to);
    }
  });
}

}  // namespace farandole::trainer
