// SPDX-License-Identifier: Apache-2.0
#include "farandole/trainer/loss.h"

#include "kernels/transfer.h"

namespace farandole::trainer {

template <class Scalar>
double loss_sum(const Loss<Scalar>& loss, const Execution& execution, const Tensor<Scalar>& outputs,
                const std::type_identity_t<BatchView<Scalar>>& batch, double scale,
                std::type_identity_t<Tensor<Scalar>>* gradient) {
  Workspace::Scope scope(execution.workspace());
  const VectorView<double> sum = scope.take<double>(1);
  clear(execution, sum);
  loss.evaluate(execution, outputs, batch, scale, gradient, sum);
  return to_host<double>(execution, sum).front();
}
template double loss_sum(const Loss<float>&, const Execution&, const Tensor<float>&,
                         const std::type_identity_t<BatchView<float>>&, double, std::type_identity_t<Tensor<float>>*);
template double loss_sum(const Loss<double>&, const Execution&, const Tensor<double>&,
                         const std::type_identity_t<BatchView<double>>&, double, std::type_identity_t<Tensor<double>>*);

}  // namespace farandole::trainer
