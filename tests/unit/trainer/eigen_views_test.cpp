// SPDX-License-Identifier: Apache-2.0
// Matrices of Eigen as arguments of collectives.
#include <gtest/gtest.h>

#include <Eigen/Core>
#include <type_traits>

#include "farandole/collectives/communicator.h"
#include "farandole/core/buffer.h"

namespace farandole {
namespace {

static_assert(std::is_constructible_v<BufferView, Eigen::MatrixXf&>);
static_assert(std::is_constructible_v<BufferView, Eigen::VectorXd&>);
static_assert(std::is_constructible_v<ConstBufferView, const Eigen::Array3i&>);
static_assert(!std::is_constructible_v<BufferView, const Eigen::MatrixXf&>, "a result needs memory to write to");
static_assert(!std::is_constructible_v<BufferView, Eigen::MatrixXf>, "a temporary would lose the result");
static_assert(!std::is_constructible_v<BufferView, Eigen::Block<Eigen::MatrixXf>&>, "a block may have gaps");
static_assert(!std::is_constructible_v<AsyncInput, Eigen::MatrixXf>, "a temporary ends before the collective");

TEST(EigenViews, MatricesAreReduced) {
  run_replicas(3, [](Communicator& ranks) {
    Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor> matrix(2, 3);
    matrix.setConstant(ranks.rank() + 1);
    ranks.allreduce(matrix, ReduceOp::kSum);
    EXPECT_EQ(matrix, (Eigen::MatrixXd::Constant(2, 3, 6)));
    const Eigen::Vector2f mine(static_cast<float>(ranks.rank()), 7);
    Eigen::VectorXf all(6);
    ranks.allgather(mine, all);
    EXPECT_EQ(all[4], 2);
    EXPECT_EQ(all[5], 7);
  });
}

}  // namespace
}  // namespace farandole
