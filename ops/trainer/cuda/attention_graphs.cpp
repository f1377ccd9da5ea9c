// SPDX-License-Identifier: Apache-2.0
#include "attention_graphs.h"

namespace farandole::trainer::cuda {
namespace {

/// What both graphs have.
class Builder {
 public:
  Builder(const CudnnApi& api, const AttentionForm& form, cudnnDataType_t type_of_operands)
      : graph(api),
        f(form),
        type(type_of_operands),
        of_scores(GraphLayout::packed({f.samples, f.heads, f.length, f.length})),
        of_rows(GraphLayout::packed({f.samples, f.heads, f.length, 1})) {}

  /// A part of the rows of Q, K and V, or of their gradients.
  GraphLayout of_qkv() const {
    const std::int64_t row = 3 * f.heads * f.head_units;
    return {{f.samples, f.heads, f.length, f.head_units}, {f.length * row, f.head_units, row, 1}};
  }
  GraphLayout of_context() const {
    const std::int64_t row = f.heads * f.head_units;
    return {{f.samples, f.heads, f.length, f.head_units}, {f.length * row, f.head_units, row, 1}};
  }
  GraphTensor operand(AttentionTensor id, const GraphLayout& layout) { return graph.tensor(id, layout, type); }
  GraphTensor scores() { return graph.inner(of_scores); }
  GraphTensor rows() { return graph.inner(of_rows); }
  GraphTensor pointwise(cudnnPointwiseMode_t mode, std::initializer_list<GraphTensor> operands) {
    const GraphTensor result = scores();
    graph.pointwise(mode, operands, result);
    return result;
  }
  /// The scores with -infinity where a row does not attend.
  GraphTensor masked(GraphTensor values) {
    if (!f.causal) return values;
    constexpr std::int64_t kRows = 2, kColumns = 3;
    const GraphTensor row = graph.inner(of_scores, CUDNN_DATA_INT32), column = graph.inner(of_scores, CUDNN_DATA_INT32);
    const GraphTensor attends = graph.inner(of_scores, CUDNN_DATA_BOOLEAN), result = scores();
    graph.index(values, kRows, row);
    graph.index(values, kColumns, column);
    graph.pointwise(CUDNN_POINTWISE_CMP_GE, {row, column}, attends, CUDNN_DATA_BOOLEAN);
    graph.pointwise(CUDNN_POINTWISE_BINARY_SELECT, {values, graph.number(kAttentionMask), attends}, result);
    return result;
  }
  GraphTensor product(GraphTensor left, GraphTensor right) {
    const GraphTensor result = scores();
    graph.multiply(left, right, result);
    return result;
  }

  CudnnGraph graph;
  const AttentionForm f;
  const cudnnDataType_t type;
  const GraphLayout of_scores, of_rows;
};

}  // namespace

CudnnGraph attention_graph(const CudnnApi& api, const AttentionForm& form, cudnnDataType_t type) {
  Builder b(api, form, type);
  const GraphTensor query = b.operand(kAttentionQuery, b.of_qkv());
  const GraphTensor key = b.operand(kAttentionKey, b.of_qkv().transposed());
  const GraphTensor value = b.operand(kAttentionValue, b.of_qkv());
  const GraphTensor context = b.operand(kAttentionContext, b.of_context());
  const GraphTensor statistics = b.graph.tensor(kAttentionStatistics, b.of_rows, CUDNN_DATA_FLOAT);
  const GraphTensor scale = b.graph.number(kAttentionScale);

  const GraphTensor scores = b.masked(b.pointwise(CUDNN_POINTWISE_MUL, {b.product(query, key), scale}));
  const GraphTensor largest = b.rows(), sum = b.rows(), logarithm = b.rows();
  b.graph.reduce(CUDNN_REDUCE_TENSOR_MAX, scores, largest);
  const GraphTensor powers = b.pointwise(CUDNN_POINTWISE_EXP, {b.pointwise(CUDNN_POINTWISE_SUB, {scores, largest})});
  b.graph.reduce(CUDNN_REDUCE_TENSOR_ADD, powers, sum);
  b.graph.pointwise(CUDNN_POINTWISE_LOG, {sum}, logarithm);
  b.graph.pointwise(CUDNN_POINTWISE_ADD, {largest, logarithm}, statistics);
  const GraphTensor probabilities = b.graph.inner(b.of_scores, type);
  b.graph.pointwise(CUDNN_POINTWISE_DIV, {powers, sum}, probabilities);
  b.graph.multiply(probabilities, value, context);
  return std::move(b.graph);
}

CudnnGraph attention_gradient_graph(const CudnnApi& api, const AttentionForm& form, cudnnDataType_t type,
                                    QuerySums sums) {
  Builder b(api, form, type);
  const GraphTensor query = b.operand(kAttentionQuery, b.of_qkv());
  const GraphTensor key = b.operand(kAttentionKey, b.of_qkv().transposed());
  const GraphTensor value = b.operand(kAttentionValue, b.of_qkv().transposed());
  const GraphTensor context = b.operand(kAttentionContext, b.of_context());
  const GraphTensor context_gradient = b.operand(kAttentionContextGradient, b.of_context());
  const GraphTensor statistics = b.graph.tensor(kAttentionStatistics, b.of_rows, CUDNN_DATA_FLOAT);
  const GraphTensor scale = b.graph.number(kAttentionScale);

  // D. cuDNN wants the sums multiplied by a number, and in memory.
  const GraphTensor products = b.graph.inner(b.of_context()), row_sums = b.rows();
  const GraphTensor row_products = b.graph.tensor(kAttentionProducts, b.of_rows, CUDNN_DATA_FLOAT);
  b.graph.pointwise(CUDNN_POINTWISE_MUL, {context_gradient, context}, products);
  b.graph.reduce(CUDNN_REDUCE_TENSOR_ADD, products, row_sums);
  b.graph.pointwise(CUDNN_POINTWISE_MUL, {row_sums, b.graph.number(kAttentionOne)}, row_products);

  // P, and dV.
  const GraphTensor scores = b.pointwise(CUDNN_POINTWISE_MUL, {b.product(query, key), scale});
  const GraphTensor probabilities =
      b.pointwise(CUDNN_POINTWISE_EXP, {b.masked(b.pointwise(CUDNN_POINTWISE_SUB, {scores, statistics}))});
  const GraphTensor turned_probabilities = b.graph.inner(b.of_scores.transposed(), type);
  b.graph.reshape(probabilities, turned_probabilities);
  b.graph.multiply(turned_probabilities, context_gradient, b.operand(kAttentionValueGradient, b.of_qkv()));

  // dS, and dK.
  const GraphTensor differences = b.pointwise(CUDNN_POINTWISE_SUB, {b.product(context_gradient, value), row_products});
  const GraphTensor score_gradient =
      b.pointwise(CUDNN_POINTWISE_MUL, {b.pointwise(CUDNN_POINTWISE_MUL, {differences, probabilities}), scale});
  const GraphTensor turned_gradient = b.graph.inner(b.of_scores.transposed(), type);
  b.graph.reshape(score_gradient, turned_gradient);
  b.graph.multiply(turned_gradient, query, b.operand(kAttentionKeyGradient, b.of_qkv()));

  // dQ.
  const GraphTensor turned_key = b.graph.inner(b.of_qkv(), type);
  const GraphTensor query_gradient = b.operand(kAttentionQueryGradient, b.of_qkv());
  b.graph.reshape(key, turned_key);
  if (sums == QuerySums::kOrdered) {
    b.graph.multiply(score_gradient, turned_key, query_gradient);
  } else {
    const GraphTensor query_sums =
        b.graph.tensor(kAttentionQuerySums,
                       GraphLayout::packed({form.samples, form.heads, form.length, form.head_units}), CUDNN_DATA_FLOAT);
    b.graph.multiply(score_gradient, turned_key, query_sums);
    b.graph.pointwise(CUDNN_POINTWISE_IDENTITY, {query_sums}, query_gradient);
  }
  return std::move(b.graph);
}

}  // namespace farandole::trainer::cuda
