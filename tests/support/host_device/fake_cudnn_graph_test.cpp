// SPDX-License-Identifier: Apache-2.0
// Tests of the double of cuDNN's graph API: a product, and what is refused.
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fake_cudnn.h"
#include "fake_tables.h"

namespace farandole::fake {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kLeft = 1, kRight = 2, kProduct = 3;

std::string last_error() {
  std::array<char, 200> text{};
  cudnnGetLastErrorString(text.data(), text.size());
  return text.data();
}

/// The product of {1, 1, 2, 8} and {1, 1, 8, 1} numbers of f16.
class CudnnGraphMisuse : public FakeDeviceTest {
 protected:
  void SetUp() override {
    FakeDeviceTest::SetUp();
    stream_ = make_stream();
    EXPECT_EQ(cudnnCreate(&handle_), CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(cudnnSetStream(handle_, stream_), CUDNN_STATUS_SUCCESS);
    const Half two = narrow_to_half(2), three = narrow_to_half(3);
    left_.emplace(std::vector<Half>(16, two));
    right_.emplace(std::vector<Half>(8, three));
    product_.emplace(2);
    workspace_.emplace(std::size_t{1} << 20);
  }

  static cudnnBackendDescriptor_t make(cudnnBackendDescriptorType_t type) {
    cudnnBackendDescriptor_t descriptor = nullptr;
    EXPECT_EQ(cudnnBackendCreateDescriptor(type, &descriptor), CUDNN_STATUS_SUCCESS);
    return descriptor;
  }
  template <class T>
  static cudnnStatus_t set(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                           cudnnBackendAttributeType_t type, const std::vector<T>& values) {
    return cudnnBackendSetAttribute(descriptor, name, type, static_cast<std::int64_t>(values.size()), values.data());
  }
  static cudnnBackendDescriptor_t tensor(std::int64_t id, const std::vector<std::int64_t>& extents) {
    cudnnBackendDescriptor_t const made = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set<std::int64_t>(made, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, {id});
    set<int>(made, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, {CUDNN_DATA_HALF});
    set(made, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, extents);
    set<std::int64_t>(made, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64,
                      {extents[2] * extents[3], extents[2] * extents[3], extents[3], 1});
    set<std::int64_t>(made, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, {16});
    EXPECT_EQ(cudnnBackendFinalize(made), CUDNN_STATUS_SUCCESS);
    return made;
  }
  /// A graph that is not finalized.
  cudnnBackendDescriptor_t graph(const std::vector<std::int64_t>& extents_of_product) {
    cudnnBackendDescriptor_t const kind = make(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    set<int>(kind, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, {CUDNN_DATA_FLOAT});
    EXPECT_EQ(cudnnBackendFinalize(kind), CUDNN_STATUS_SUCCESS);
    cudnnBackendDescriptor_t const operation = make(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set<void*>(operation, CUDNN_ATTR_OPERATION_MATMUL_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, {kind});
    set<void*>(operation, CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_TYPE_BACKEND_DESCRIPTOR,
               {tensor(kLeft, {1, 1, 2, 8})});
    set<void*>(operation, CUDNN_ATTR_OPERATION_MATMUL_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR,
               {tensor(kRight, {1, 1, 8, 1})});
    set<void*>(operation, CUDNN_ATTR_OPERATION_MATMUL_CDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR,
               {tensor(kProduct, extents_of_product)});
    EXPECT_EQ(cudnnBackendFinalize(operation), CUDNN_STATUS_SUCCESS);
    cudnnBackendDescriptor_t const made = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set<void*>(made, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, {handle_});
    set<void*>(made, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, {operation});
    return made;
  }
  /// Returns a plan by the engine of this number in the list of the heuristics, and its finalization.
  cudnnBackendDescriptor_t plan(std::size_t engine, cudnnStatus_t& status) {
    cudnnBackendDescriptor_t const whole = graph({1, 1, 2, 1});
    EXPECT_EQ(cudnnBackendFinalize(whole), CUDNN_STATUS_SUCCESS) << last_error();
    cudnnBackendDescriptor_t const heuristics = make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set<void*>(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, {whole});
    set<int>(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, {CUDNN_HEUR_MODE_A});
    EXPECT_EQ(cudnnBackendFinalize(heuristics), CUDNN_STATUS_SUCCESS);
    std::array<cudnnBackendDescriptor_t, 2> configurations{make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR),
                                                           make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)};
    std::int64_t count = 0;
    EXPECT_EQ(cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 2,
                                       &count, configurations.data()),
              CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(count, 2);
    cudnnBackendDescriptor_t const made = make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    set<void*>(made, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, {handle_});
    set<void*>(made, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR,
               {configurations.at(engine)});
    status = cudnnBackendFinalize(made);
    return made;
  }
  cudnnStatus_t execute(const std::vector<std::int64_t>& ids, const std::vector<void*>& addresses) {
    cudnnStatus_t finalized = CUDNN_STATUS_BAD_PARAM;
    cudnnBackendDescriptor_t const good = plan(1, finalized);
    EXPECT_EQ(finalized, CUDNN_STATUS_SUCCESS);
    cudnnBackendDescriptor_t const pack = make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, ids);
    set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, addresses);
    set<void*>(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, {workspace_->data()});
    EXPECT_EQ(cudnnBackendFinalize(pack), CUDNN_STATUS_SUCCESS);
    const cudnnStatus_t status = cudnnBackendExecute(handle_, good, pack);
    EXPECT_EQ(cuda_api().cuStreamSynchronize(stream_), CUDA_SUCCESS);
    return status;
  }

  CUstream stream_ = nullptr;
  cudnnHandle_t handle_ = nullptr;
  std::optional<Vector<Half>> left_, right_, product_;
  std::optional<Vector<char>> workspace_;
};

TEST_F(CudnnGraphMisuse, NoneIsReportedOfARightGraph) {
  EXPECT_EQ(execute({kLeft, kRight, kProduct}, {left_->data(), right_->data(), product_->data()}),
            CUDNN_STATUS_SUCCESS);
  for (const Half value : product_->values(stream_)) EXPECT_EQ(widen(value), 48);
}

TEST_F(CudnnGraphMisuse, AnAttributeOfAnotherType) {
  cudnnBackendDescriptor_t const kind = make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  EXPECT_EQ(set<std::int64_t>(kind, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_INT64, {CUDNN_POINTWISE_ADD}),
            CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(set<int>(kind, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, {CUDNN_DATA_FLOAT}),
            CUDNN_STATUS_BAD_PARAM);
}

TEST_F(CudnnGraphMisuse, AMissingAttribute) {
  cudnnBackendDescriptor_t const kind = make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  EXPECT_EQ(set<int>(kind, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, {CUDNN_POINTWISE_ADD}),
            CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(cudnnBackendFinalize(kind), CUDNN_STATUS_BAD_PARAM);
  EXPECT_THAT(last_error(), HasSubstr("lacks attribute 1"));
}

TEST_F(CudnnGraphMisuse, ShapesThatDoNotFit) {
  EXPECT_EQ(cudnnBackendFinalize(graph({1, 1, 1, 2})), CUDNN_STATUS_BAD_PARAM);
  EXPECT_THAT(last_error(), HasSubstr("factors of a product that do not fit"));
}

TEST_F(CudnnGraphMisuse, AnEngineThatRefuses) {
  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
  plan(0, status);
  EXPECT_EQ(status, CUDNN_STATUS_NOT_SUPPORTED);
}

TEST_F(CudnnGraphMisuse, AddressesThatAreMissingOrWrong) {
  EXPECT_EQ(execute({kLeft, kProduct}, {left_->data(), product_->data()}), CUDNN_STATUS_BAD_PARAM);
  EXPECT_THAT(last_error(), HasSubstr("no address of tensor 2"));
  EXPECT_EQ(execute({kLeft, kRight, kProduct}, {left_->data(), right_->data() + 1, product_->data()}),
            CUDNN_STATUS_BAD_PARAM);
  EXPECT_THAT(last_error(), HasSubstr("tensor 2 is not aligned"));
  EXPECT_EQ(execute({kLeft, kRight, kProduct, 9}, {left_->data(), right_->data(), product_->data(), left_->data()}),
            CUDNN_STATUS_BAD_PARAM);
}

TEST_F(CudnnGraphMisuse, ADestroyedDescriptor) {
  cudnnBackendDescriptor_t const kind = make(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  EXPECT_EQ(cudnnBackendDestroyDescriptor(kind), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(cudnnBackendFinalize(kind), CUDNN_STATUS_BAD_PARAM);
  EXPECT_THAT(reports(), HasSubstr("cudnnBackendFinalize: a handle or descriptor of another kind"));
}

}  // namespace
}  // namespace farandole::fake
