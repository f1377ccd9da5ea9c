// SPDX-License-Identifier: Apache-2.0
// Registration of the ops: names, attributes and shape functions.
//
// All ops but the digest are stateful, so that TensorFlow does not merge equal calls, prune unused calls, or fold calls
// with constant inputs.
//
// Attributes of several ops:
//   tensor_name        name of the request for the engine; empty: the node's name
//   ignore_name_scope  use only the part of the node's name after the last slash
//   process_set        id of the process set
//   caller_waits       the op runs eagerly: the calling thread does nothing else until the op is done
//   about              further property on which the ranks must agree, as a text
//   prescale_factor, postscale_factor   numbers as text, because attributes of type float have only 32 bits
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace farandole_tensorflow {
namespace {

using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

#define FARANDOLE_TYPES \
  "{bool, uint8, int8, uint16, int16, int32, uint32, int64, uint64, half, bfloat16, float, double}"
#define FARANDOLE_REQUEST_ATTRIBUTES           \
  Attr("tensor_name: string = ''")             \
      .Attr("ignore_name_scope: bool = false") \
      .Attr("process_set: int = 0")            \
      .Attr("caller_waits: bool = false")      \
      .Attr("about: string = ''")              \
      .SetIsStateful()
#define FARANDOLE_REDUCTION_ATTRIBUTES \
  Attr("reduce_op: int = 0").Attr("prescale_factor: string = '1'").Attr("postscale_factor: string = '1'")

absl::Status same_shapes(InferenceContext* context) {
  for (int i = 0; i < context->num_inputs(); ++i) context->set_output(i, context->input(i));
  return absl::OkStatus();
}

// Output i has the shape of input i, except for an unknown first dimension.
absl::Status set_variable_rows(InferenceContext* context, int i) {
  ShapeHandle shape;
  TF_RETURN_IF_ERROR(context->WithRankAtLeast(context->input(i), 1, &shape));
  if (context->RankKnown(shape)) {
    TF_RETURN_IF_ERROR(context->ReplaceDim(shape, 0, context->UnknownDim(), &shape));
  }
  context->set_output(i, shape);
  return absl::OkStatus();
}

absl::Status variable_rows(InferenceContext* context) {
  for (int i = 0; i < context->num_inputs(); ++i) TF_RETURN_IF_ERROR(set_variable_rows(context, i));
  return absl::OkStatus();
}

absl::Status alltoall_shapes(InferenceContext* context) {
  TF_RETURN_IF_ERROR(set_variable_rows(context, 0));
  ShapeHandle splits;
  TF_RETURN_IF_ERROR(context->WithRank(context->input(1), 1, &splits));
  context->set_output(1, context->Vector(InferenceContext::kUnknownDim));
  return absl::OkStatus();
}

REGISTER_OP("FarandoleAllreduce")
    .Input("tensors: T")
    .Output("reduced: T")
    .Attr("T: list(" FARANDOLE_TYPES ") >= 1")
    .FARANDOLE_REDUCTION_ATTRIBUTES.FARANDOLE_REQUEST_ATTRIBUTES.SetShapeFn(same_shapes)
    .Doc(R"doc(
Reduces each tensor over the ranks of the process set. The collective starts when all tensors are ready on all ranks.
)doc");

REGISTER_OP("FarandoleAllgather")
    .Input("tensors: T")
    .Output("gathered: T")
    .Attr("T: list(" FARANDOLE_TYPES ") >= 1")
    .FARANDOLE_REQUEST_ATTRIBUTES.SetShapeFn(variable_rows)
    .Doc(R"doc(
Concatenates each tensor of all ranks along the first dimension, which may differ from rank to rank.
)doc");

REGISTER_OP("FarandoleBroadcast")
    .Input("tensors: T")
    .Output("received: T")
    .Attr("T: list(" FARANDOLE_TYPES ") >= 1")
    .Attr("root_rank: int")
    .FARANDOLE_REQUEST_ATTRIBUTES.SetShapeFn(same_shapes)
    .Doc(R"doc(
Returns the tensors of the job's rank `root_rank` on every rank of the process set.
)doc");

REGISTER_OP("FarandoleBroadcastVariables")
    .Input("variables: N * resource")
    .Attr("N: int >= 1")
    .Attr("root_rank: int")
    .FARANDOLE_REQUEST_ATTRIBUTES.SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc(R"doc(
Overwrites the variables, in place, with their values on the job's rank `root_rank`.
)doc");

REGISTER_OP("FarandoleAlltoall")
    .Input("tensor: T")
    .Input("splits: Tsplits")
    .Output("received: T")
    .Output("received_splits: Tsplits")
    .Attr("T: " FARANDOLE_TYPES)
    .Attr("Tsplits: {int32, int64} = DT_INT32")
    .FARANDOLE_REQUEST_ATTRIBUTES.SetShapeFn(alltoall_shapes)
    .Doc(R"doc(
Sends `splits[r]` rows to rank r of the process set (an empty `splits`: equal parts), and concatenates the received rows.
)doc");

REGISTER_OP("FarandoleReducescatter")
    .Input("tensors: T")
    .Output("reduced: T")
    .Attr("T: list(" FARANDOLE_TYPES ") >= 1")
    .FARANDOLE_REDUCTION_ATTRIBUTES.FARANDOLE_REQUEST_ATTRIBUTES.SetShapeFn(variable_rows)
    .Doc(R"doc(
Reduces each tensor over the ranks, and gives each rank a block of rows of the result; if uneven, the first ranks get one
row more.
)doc");

REGISTER_OP("FarandoleBarrier")
    .FARANDOLE_REQUEST_ATTRIBUTES.SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc(R"doc(
Completes when all ranks of the process set have reached this op.
)doc");

REGISTER_OP("FarandoleJoin")
    .Output("last_rank: int32")
    .Attr("process_set: int = 0")
    .Attr("caller_waits: bool = false")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc(R"doc(
Joins: until all ranks have joined, this rank takes part in the other ranks' allreduces without changing their results.
)doc");

REGISTER_OP("FarandoleMismatch")
    .Input("text: string")
    .Output("never: bool")
    .Attr("caller_waits: bool = false")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc(R"doc(
Fails with a Mismatch of this text on all ranks, together with the rest of their steps. For ranks that have found by other
means that they do different things.
)doc");

REGISTER_OP("FarandoleProgress")
    .Input("place: resource")
    .Input("share: resource")
    .Input("batches: resource")
    .Input("kind: int64")
    .Input("digest: int64")
    .Input("samples: int64")
    .Output("rows: int64")
    .Output("is_same: bool")
    .Attr("caller_waits: bool = false")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* context) {
      context->set_output(0, context->Matrix(InferenceContext::kUnknownDim, 7));
      context->set_output(1, context->Scalar());
      return absl::OkStatus();
    })
    .Doc(R"doc(
Exchanges the next action of every rank: a row per rank, and whether all actions are the same. Variables: `place` (int64[5])
is this rank's position in the program; it is part of the row, and counts batches. `share` (a double) is set to this rank's
fraction of the samples of all ranks. `batches` (int64[4, ranks]) gets each rank's number of samples as the first row; older
rows move down by one.
)doc");

REGISTER_OP("FarandoleDigest")
    .Input("tensors: T")
    .Output("digest: int64")
    .Attr("T: list(type) >= 0")
    .Attr("whole: bool = false")
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc(R"doc(
A 64-bit digest of the types, shapes and bytes of tensors: the same for equal tensors in every process, and almost certainly
different for different tensors. Of a tensor above 1 MiB it covers only blocks that are spread over each row of the first
dimension, unless `whole` is set.
)doc");

// Ops that return this process's place at the time when the op runs; -1 if there is no job. FarandoleRank and
// FarandoleSize are also -1 if there is no such process set, FarandoleRank also on a process that is not a member.
// FarandoleLocalRank and FarandoleLocalSize ignore the process set.
#define FARANDOLE_REGISTER_TOPOLOGY_OP(name, text)          \
  REGISTER_OP(name)                                         \
      .Output("value: int32")                               \
      .Attr("process_set: int = 0")                         \
      .SetIsStateful()                                      \
      .SetShapeFn(tensorflow::shape_inference::ScalarShape) \
      .Doc(text)

FARANDOLE_REGISTER_TOPOLOGY_OP("FarandoleRank", "Position of this process in the process set.");
FARANDOLE_REGISTER_TOPOLOGY_OP("FarandoleSize", "Number of ranks of the process set.");
FARANDOLE_REGISTER_TOPOLOGY_OP("FarandoleLocalRank", "Position of this process among the ranks of its host.");
FARANDOLE_REGISTER_TOPOLOGY_OP("FarandoleLocalSize", "Number of ranks of this host.");
FARANDOLE_REGISTER_TOPOLOGY_OP("FarandoleProcessSetIncluded",
                               "1: this process is in the set, 0: not in the set, -1: no job, -2: no such set.");

}  // namespace
}  // namespace farandole_tensorflow
