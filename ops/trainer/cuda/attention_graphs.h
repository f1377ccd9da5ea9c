// SPDX-License-Identifier: Apache-2.0
// Attention as graphs of cuDNN, which computes each in one fused kernel or a few and keeps no scores in memory.
//
// For each sample and head, with s = AttentionForm::scale:
//   forward   S = s Q K^T, with -infinity where a row does not attend;  L = log(sum(exp(S))) of each row;
//             C = exp(S - L) V
//   backward  P = exp(S - L);  D = rowsum(dC C);  dV = P^T dC;  dS = s P (dC V^T - D);  dK = dS^T Q;  dQ = dS K
// cuDNN recognises the operations, so both graphs have the form that its developer guide has for attention. Source:
// Dao et al., FlashAttention-2, ICLR 2024.
#pragma once

#include <cstdint>

#include "cudnn_graph.h"
#include "kernels/fused_attention.h"

namespace farandole::trainer::cuda {

/// Ids of the tensors of both graphs. Q, K and V of a position lie beside each other, in a row of 3 * heads *
/// head_units elements; so do their gradients.
enum AttentionTensor : std::int64_t {
  kAttentionQuery = 1,
  kAttentionKey,
  kAttentionValue,
  kAttentionContext,          ///< {samples, length, heads, head_units}
  kAttentionStatistics,       ///< L, f32, {samples, heads, length}
  kAttentionScale,            ///< a number
  kAttentionMask,             ///< a number, -infinity; only of causal graphs
  kAttentionContextGradient,  ///< as the context
  kAttentionOne,              ///< a number, 1
  kAttentionProducts,         ///< scratch: D, f32, as the statistics
  kAttentionQuerySums,        ///< scratch: sums of dQ, f32, {samples, heads, length, head_units}
  kAttentionQueryGradient,
  kAttentionKeyGradient,
  kAttentionValueGradient,
};

/// How the backward graph adds up the gradient of Q.
enum class QuerySums : std::uint8_t {
  kAtomic,   ///< by atomic additions in f32, in an order of chance
  kOrdered,  ///< as one product, of dS in scratch memory: length * length elements for each sample and head
};

/// The forward graph. @param type  of Q, K, V and the context: CUDNN_DATA_BFLOAT16 or CUDNN_DATA_HALF
/// @throws GraphRefused
CudnnGraph attention_graph(const CudnnApi& api, const AttentionForm& form, cudnnDataType_t type);
/// The backward graph. kAttentionQuerySums is a tensor of QuerySums::kAtomic only. @throws GraphRefused
CudnnGraph attention_gradient_graph(const CudnnApi& api, const AttentionForm& form, cudnnDataType_t type,
                                    QuerySums sums);

}  // namespace farandole::trainer::cuda
