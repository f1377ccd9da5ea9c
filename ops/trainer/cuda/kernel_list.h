// SPDX-License-Identifier: Apache-2.0
// List of the trainer's kernels: X(name, struct with the body). Each has a form for f32 and one for f64; the names are
// "farandole_trainer_<name>_<type>". Kernels between f32 and 16-bit types have a form for bf16 and one for f16.
#pragma once

#define FARANDOLE_TRAINER_KERNELS(X)                           \
  X(add, Add)                                                  \
  X(multiply, Multiply)                                        \
  X(scale, Scale)                                              \
  X(scale_by, ScaleBy)                                         \
  X(approach, Approach)                                        \
  X(move_average, MoveAverage)                                 \
  X(activate, Activate)                                        \
  X(activate_backward, ActivateBackward)                       \
  X(draw_dropout, DrawDropout)                                 \
  X(fill_rows, FillRows)                                       \
  X(fill_ones, FillOnes)                                       \
  X(copy_columns, CopyColumns)                                 \
  X(transpose, Transpose)                                      \
  X(pool, Pool)                                                \
  X(pool_backward, PoolBackward)                               \
  X(gather_patches, GatherPatches)                             \
  X(scatter_patches, ScatterPatches)                           \
  X(strided_max_pool, StridedMaxPool)                          \
  X(strided_max_pool_backward, StridedMaxPoolBackward)         \
  X(strided_average_pool, StridedAveragePool)                  \
  X(strided_average_pool_backward, StridedAveragePoolBackward) \
  X(depthwise, Depthwise)                                      \
  X(depthwise_backward, DepthwiseBackward)                     \
  X(depthwise_weights, DepthwiseWeights)                       \
  X(upsample, Upsample)                                        \
  X(upsample_backward, UpsampleBackward)                       \
  X(average_positions, AveragePositions)                       \
  X(average_positions_backward, AveragePositionsBackward)      \
  X(channel_moments, ChannelMoments)                           \
  X(add_partials, AddPartials)                                 \
  X(store_partials, StorePartials)                             \
  X(use_batch, UseBatch)                                       \
  X(use_moving, UseMoving)                                     \
  X(normalize, Normalize)                                      \
  X(store_gradients, StoreGradients)                           \
  X(gradient_factors, GradientFactors)                         \
  X(normalize_backward, NormalizeBackward)                     \
  X(measure_sets, MeasureSets)                                 \
  X(normalize_sets, NormalizeSets)                             \
  X(set_moments, SetMoments)                                   \
  X(propagate_sets, PropagateSets)                             \
  X(look_up, LookUp)                                           \
  X(merge_runs, MergeRuns)                                     \
  X(look_up_backward, LookUpBackward)                          \
  X(add_row, AddRow)                                           \
  X(softmax, Softmax)                                          \
  X(softmax_backward, SoftmaxBackward)                         \
  X(cross_entropy, CrossEntropy)                               \
  X(soft_cross_entropy, SoftCrossEntropy)                      \
  X(target_loss, TargetLoss)                                   \
  X(right_labels, RightLabels)                                 \
  X(confusions, Confusions)                                    \
  X(count_places, CountPlaces)                                 \
  X(right_sides, RightSides)                                   \
  X(sum_squares, SumSquares)                                   \
  X(sum_doubles, SumDoubles)                                   \
  X(add_number, AddNumber)                                     \
  X(set_gradient_scale, SetGradientScale)                      \
  X(move_loss_scale, MoveLossScale)                            \
  X(sgd, Sgd)                                                  \
  X(adam, Adam)

#define FARANDOLE_TRAINER_HALF_KERNELS(X) \
  X(narrow, Narrow)                       \
  X(narrow_matrices, NarrowMatrices)      \
  X(narrow_transposed, NarrowTransposed)  \
  X(widen, Widen)                         \
  X(widen_transposed, WidenTransposed)
