// SPDX-License-Identifier: Apache-2.0
// The double of libcuda: captures of streams, and graphs.
#include "fake_calls.h"
#include "fake_devices.h"
#include "fake_exports.h"
#include "fake_faults.h"
#include "fake_graphs.h"

namespace farandole::fake {

namespace {

template <class Kept, class Opaque>
Kept* graph_of(const char* call, Opaque* handle, Handle::Kind kind) {
  auto* const graph = reinterpret_cast<Kept*>(handle);
  if (graph != nullptr && graph->is(kind)) return graph;
  misuse("{} of {}, which is no graph of this kind, or was destroyed", call, fmt::ptr(handle));
  return nullptr;
}

template <class Kept, class Opaque>
CUresult destroy(const char* call, Opaque* handle, Handle::Kind kind) {
  auto* const graph = graph_of<Kept>(call, handle, kind);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  graph->die();
  graph->nodes.drop_owner();
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuStreamBeginCapture_v2(CUstream stream, int mode) {
  FARANDOLE_FAKE_CALL(Needs::kContext);
  Stream* target = nullptr;
  if (const CUresult failed = find_target("cuStreamBeginCapture", stream, target); failed != CUDA_SUCCESS)
    return failed;
  if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  if (target == &target->device.legacy_stream()) {
    misuse("cuStreamBeginCapture of the default stream, which cannot be captured");
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  if (target->capture() != nullptr) {
    misuse("cuStreamBeginCapture of a stream that is being captured");
    return CUDA_ERROR_ILLEGAL_STATE;
  }
  make_kept<Capture>(*target, mode);
  return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  FARANDOLE_FAKE_CALL(Needs::kContext);
  *graph = nullptr;
  const Stream* const target = stream_of(stream, *current_device());
  Capture* const capture = target == nullptr ? nullptr : target->capture();
  if (capture == nullptr) {
    misuse("cuStreamEndCapture of {}, which is not being captured", fmt::ptr(stream));
    return CUDA_ERROR_ILLEGAL_STATE;
  }
  if (!capture->is_origin(*target)) {
    misuse("cuStreamEndCapture of stream {}, which joined the capture of another stream", target->serial);
    capture->invalidate();
    return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  }
  if (capture->is_of_another_thread()) {
    misuse("cuStreamEndCapture by another thread than cuStreamBeginCapture, in another mode than the relaxed one");
    capture->invalidate();
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  }
  const bool was_valid = capture->is_valid();
  const Capture::End end = capture->end();
  if (!was_valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (!end.is_joined) {
    misuse("cuStreamEndCapture of stream {}, which does not wait for all work that the capture has in other streams",
           target->serial);
    return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  }
  *graph = reinterpret_cast<CUgraph>(&make_kept<Graph>(*end.nodes));
  return CUDA_SUCCESS;
}

// Returns only the number of nodes.
CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, std::size_t* count) {
  FARANDOLE_FAKE_CALL(Needs::kDriver);
  const auto* const found = graph_of<Graph>("cuGraphGetNodes", graph, Handle::Kind::kGraph);
  if (found == nullptr || nodes != nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = found->nodes.nodes.size();
  return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* executable, CUgraph graph, unsigned long long flags) {
  FARANDOLE_FAKE_CALL(Needs::kContext);
  auto* const found = graph_of<Graph>("cuGraphInstantiateWithFlags", graph, Handle::Kind::kGraph);
  if (found == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  found->nodes.add_owner();
  *executable = reinterpret_cast<CUgraphExec>(&make_kept<ExecutableGraph>(found->nodes));
  return CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream) {
  FARANDOLE_FAKE_CALL(Needs::kContext);
  auto* const graph = graph_of<ExecutableGraph>("cuGraphLaunch", executable, Handle::Kind::kExecutableGraph);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Stream* target = nullptr;
  if (const CUresult failed = find_target("cuGraphLaunch", stream, target); failed != CUDA_SUCCESS) return failed;
  if (Capture* const capture = target->capture()) {
    misuse("cuGraphLaunch in a stream that is being captured; the double has no graphs inside of graphs");
    capture->invalidate();
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  if (&graph->nodes.device != &target->device) {
    misuse("cuGraphLaunch of a graph of device {} in a stream of device {}", graph->nodes.device.ordinal,
           target->device.ordinal);
    return kInvalidHandle;
  }
  graph->launch(*target);
  return CUDA_SUCCESS;
}

// Allowed while the graph runs: its launches continue.
CUresult cuGraphExecDestroy(CUgraphExec executable) {
  FARANDOLE_FAKE_CALL(Needs::kDriver);
  return destroy<ExecutableGraph>("cuGraphExecDestroy", executable, Handle::Kind::kExecutableGraph);
}

CUresult cuGraphDestroy(CUgraph graph) {
  FARANDOLE_FAKE_CALL(Needs::kDriver);
  return destroy<Graph>("cuGraphDestroy", graph, Handle::Kind::kGraph);
}

}  // extern "C"

}  // namespace farandole::fake
