// SPDX-License-Identifier: Apache-2.0
// Eigen's views of row-major matrices over memory that Eigen does not own.
#pragma once

// Eigen must compute on the calling thread only, so that the order of additions is fixed.
#ifndef EIGEN_DONT_PARALLELIZE
#define EIGEN_DONT_PARALLELIZE
#endif
#include <Eigen/Core>

#include <cstdint>

namespace farandole::trainer {

template <class Scalar>
using RowMatrix = Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <class Scalar>
using MatrixView = Eigen::Map<RowMatrix<Scalar>>;
template <class Scalar>
using ConstMatrixView = Eigen::Map<const RowMatrix<Scalar>>;
template <class Scalar>
using RowVector = Eigen::Matrix<Scalar, 1, Eigen::Dynamic>;
template <class Scalar>
using RowVectorView = Eigen::Map<RowVector<Scalar>>;
template <class Scalar>
using ConstRowVectorView = Eigen::Map<const RowVector<Scalar>>;

}  // namespace farandole::trainer
