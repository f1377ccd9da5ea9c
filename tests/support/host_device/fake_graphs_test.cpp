// SPDX-License-Identifier: Apache-2.0
// Tests of the double's captures and graphs, and of their misuse.
#include <utility>

#include "fake_tables.h"

namespace farandole::fake {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

using Graphs = FakeDeviceTest;

void begin_capture(CUstream stream, int mode = CU_STREAM_CAPTURE_MODE_GLOBAL) {
  ASSERT_EQ(cuda_api().cuStreamBeginCapture(stream, mode), CUDA_SUCCESS);
}

// Ends a capture that makes no graph, and returns the error.
CUresult failure_of_end(CUstream stream) {
  CUgraph graph = nullptr;
  const CUresult result = cuda_api().cuStreamEndCapture(stream, &graph);
  EXPECT_EQ(graph, nullptr);
  return result;
}

// Ends a capture of `nodes` nodes, and returns the executable graph.
CUgraphExec end_capture(CUstream stream, std::size_t nodes) {
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  std::size_t count = 0;
  EXPECT_EQ(cuda_api().cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  EXPECT_EQ(cuda_api().cuGraphGetNodes(graph, nullptr, &count), CUDA_SUCCESS);
  EXPECT_EQ(count, nodes);
  EXPECT_EQ(cuda_api().cuGraphInstantiateWithFlags(&executable, graph, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuda_api().cuGraphDestroy(graph), CUDA_SUCCESS);
  return executable;
}

void launch_graph(CUgraphExec executable, CUstream stream) {
  EXPECT_EQ(cuda_api().cuGraphLaunch(executable, stream), CUDA_SUCCESS);
}

void destroy_graph(CUgraphExec executable) {
  EXPECT_EQ(cuda_api().cuGraphExecDestroy(executable), CUDA_SUCCESS);
}

// Doubles the values. @param scale  farandole_scale_f32, found before the capture, where modules must not be loaded
void double_values(CUfunction scale, const Vector<float>& values, CUstream stream) {
  EXPECT_EQ(
      launch(scale, arguments_of({{values.data(), values.data(), nullptr, values.size(), 2.0}}, sizeof(float)), stream),
      CUDA_SUCCESS);
}

void copy(const Vector<float>& target, const Vector<float>& source, CUstream stream) {
  EXPECT_EQ(cuda_api().cuMemcpyAsync(target.address(), source.address(), source.bytes(), stream), CUDA_SUCCESS);
}

// Makes `later` wait for the work that is in `earlier` now.
CUresult order(CUstream earlier, CUstream later) {
  const CUevent event = make_event();
  EXPECT_EQ(cuda_api().cuEventRecord(event, earlier), CUDA_SUCCESS);
  return cuda_api().cuStreamWaitEvent(later, event, 0);
}

int capture_status(CUstream stream) {
  int status = -1;
  EXPECT_EQ(cuda_api().cuStreamIsCapturing(stream, &status), CUDA_SUCCESS);
  return status;
}

TEST_F(Graphs, ACaptureRecordsAndEachLaunchRuns) {
  const CUstream stream = make_stream();
  const CUstream other = make_stream();
  const Vector<float> values(std::vector<float>(100, 1));
  const Vector<float> copied(std::vector<float>(100, 0));
  const CUfunction scale = find_kernel_by_name("farandole_scale_f32");
  begin_capture(stream);
  EXPECT_EQ(capture_status(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  double_values(scale, values, stream);  // whose arguments are gone when the graph is launched
  copy(copied, values, stream);
  EXPECT_EQ(cuda_api().cuMemsetD8Async(values.address(), 0, sizeof(float), stream), CUDA_SUCCESS);
  const CUgraphExec graph = end_capture(stream, 3);
  EXPECT_EQ(capture_status(stream), CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_THAT(values.values(stream), Each(1));
  EXPECT_THAT(copied.values(stream), Each(0));
  for (const float expected : {2.0F, 4.0F, 8.0F}) {
    launch_graph(graph, stream);
    EXPECT_EQ(copied.values(stream)[99], expected);
  }
  EXPECT_EQ(copied.values(stream)[0], 0) << "the first element was set to 0 by the launch before";
  launch_graph(graph, other);
  destroy_graph(graph);
  EXPECT_EQ(copied.values(other)[99], 16);
}

TEST_F(Graphs, LaunchesOfOneGraphRunOneAfterAnother) {
  const CUstream stuck = make_stream();
  const CUstream free = make_stream();
  const Vector<float> values(std::vector<float>(100, 1));
  const CUfunction scale = find_kernel_by_name("farandole_scale_f32");
  begin_capture(stuck);
  double_values(scale, values, stuck);
  const CUgraphExec graph = end_capture(stuck, 1);
  fake_device_stick(stuck, 1);
  launch_graph(graph, stuck);
  launch_graph(graph, free);
  EXPECT_EQ(cuda_api().cuStreamQuery(free), CUDA_ERROR_NOT_READY);
  fake_device_restore();
  EXPECT_THAT(values.values(free), Each(4));
  destroy_graph(graph);
}

TEST_F(Graphs, StreamsJoinTheCaptureThatTheyWaitFor) {
  const CUstream stream = make_stream();
  const CUstream side = make_stream();
  const CUstream idle = make_stream();
  const Vector<float> values(std::vector<float>(1000, 1));
  const Vector<float> copied(1000);
  const CUfunction scale = find_kernel_by_name("farandole_scale_f32");
  begin_capture(stream);
  double_values(scale, values, stream);
  EXPECT_EQ(order(stream, side), CUDA_SUCCESS);
  EXPECT_EQ(order(stream, idle), CUDA_SUCCESS);  // which adds nothing, so nobody need wait for it
  EXPECT_EQ(capture_status(side), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  copy(copied, values, side);
  EXPECT_EQ(order(side, stream), CUDA_SUCCESS);
  double_values(scale, values, stream);
  const CUgraphExec graph = end_capture(stream, 3);
  EXPECT_EQ(capture_status(side), CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_EQ(capture_status(idle), CU_STREAM_CAPTURE_STATUS_NONE);
  launch_graph(graph, stream);
  launch_graph(graph, stream);
  EXPECT_THAT(values.values(stream), Each(16));
  EXPECT_THAT(copied.values(stream), Each(8));
  destroy_graph(graph);
}

TEST_F(Graphs, AForkThatIsNotJoinedMakesNoGraph) {
  const CUstream stream = make_stream();
  const CUstream side = make_stream();
  const Vector<std::uint8_t> values(100);
  begin_capture(stream);
  EXPECT_EQ(order(stream, side), CUDA_SUCCESS);
  EXPECT_EQ(cuda_api().cuMemsetD8Async(values.address(), 1, 100, side), CUDA_SUCCESS);
  EXPECT_EQ(cuda_api().cuMemsetD8Async(values.address(), 2, 100, stream), CUDA_SUCCESS);
  EXPECT_EQ(failure_of_end(stream), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  EXPECT_THAT(reports(), HasSubstr("does not wait for all work that the capture has in other streams"));
  EXPECT_EQ(capture_status(side), CU_STREAM_CAPTURE_STATUS_NONE);
}

TEST_F(Graphs, AnEventFromOutsideInvalidatesTheCapture) {
  const CUstream stream = make_stream();
  const CUstream outside = make_stream();
  const Vector<std::uint8_t> values(100);
  begin_capture(stream);
  EXPECT_EQ(order(outside, stream), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  EXPECT_THAT(reports(), HasSubstr("recorded outside of the capture"));
  EXPECT_EQ(capture_status(stream), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  EXPECT_EQ(cuda_api().cuMemsetD8Async(values.address(), 1, 100, stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(failure_of_end(stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(cuda_api().cuMemsetD8Async(values.address(), 1, 100, stream), CUDA_SUCCESS);
  EXPECT_THAT(values.values(stream), Each(1));
}

TEST_F(Graphs, QueriesOfWhatIsCapturedInvalidateIt) {
  const CUstream stream = make_stream();
  int mode = CU_STREAM_CAPTURE_MODE_RELAXED;  // which allows other queries
  EXPECT_EQ(cuda_api().cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
  const auto invalidates = [&](CUresult error, const std::function<CUresult(CUevent)>& query) {
    const CUevent event = make_event();
    begin_capture(stream);
    EXPECT_EQ(cuda_api().cuEventRecord(event, stream), CUDA_SUCCESS);
    EXPECT_EQ(query(event), error);
    EXPECT_THAT(reports(), HasSubstr("invalidates the capture"));
    EXPECT_EQ(failure_of_end(stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  };
  invalidates(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, [&](CUevent) { return cuda_api().cuStreamQuery(stream); });
  invalidates(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, [&](CUevent) { return cuda_api().cuStreamSynchronize(stream); });
  invalidates(CUDA_ERROR_CAPTURED_EVENT, [](CUevent event) { return cuda_api().cuEventQuery(event); });
  EXPECT_EQ(cuda_api().cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
}

TEST_F(Graphs, AnEventOfAnEndedCaptureIsForNobody) {
  const CUstream stream = make_stream();
  const CUevent event = make_event();
  begin_capture(stream);
  EXPECT_EQ(cuda_api().cuEventRecord(event, stream), CUDA_SUCCESS);
  destroy_graph(end_capture(stream, 0));
  EXPECT_EQ(cuda_api().cuStreamWaitEvent(make_stream(), event, 0), CUDA_ERROR_CAPTURED_EVENT);
  EXPECT_THAT(reports(), HasSubstr("in a capture that has ended"));
  EXPECT_EQ(cuda_api().cuEventRecord(event, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuda_api().cuStreamWaitEvent(make_stream(), event, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuda_api().cuStreamSynchronize(stream), CUDA_SUCCESS);
}

TEST_F(Graphs, TwoCapturesDoNotMerge) {
  const CUstream first = make_stream();
  const CUstream second = make_stream();
  begin_capture(first);
  begin_capture(second);
  EXPECT_EQ(order(first, second), CUDA_ERROR_STREAM_CAPTURE_MERGE);
  EXPECT_THAT(reports(), HasSubstr("in another capture"));
  EXPECT_EQ(failure_of_end(first), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(failure_of_end(second), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(Graphs, ACaptureEndsWhereItBegan) {
  const CUstream stream = make_stream();
  const CUstream side = make_stream();
  EXPECT_EQ(failure_of_end(stream), CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_THAT(reports(), HasSubstr("which is not being captured"));
  begin_capture(stream);
  EXPECT_EQ(cuda_api().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_THAT(reports(), HasSubstr("of a stream that is being captured"));
  EXPECT_EQ(order(stream, side), CUDA_SUCCESS);
  EXPECT_EQ(failure_of_end(side), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  EXPECT_THAT(reports(), HasSubstr("joined the capture of another stream"));
  EXPECT_EQ(failure_of_end(stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  begin_capture(stream);
  std::thread([stream] {
    use_device(0);
    EXPECT_EQ(failure_of_end(stream), CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  }).join();
  EXPECT_THAT(reports(), HasSubstr("by another thread"));
  EXPECT_EQ(failure_of_end(stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(Graphs, TheDefaultStreamStaysOutOfCaptures) {
  const CUstream blocking = make_stream(0);
  EXPECT_EQ(cuda_api().cuStreamBeginCapture(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL),
            CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_THAT(reports(), HasSubstr("the default stream, which cannot be captured"));
  begin_capture(blocking);
  EXPECT_EQ(cuda_api().cuEventRecord(make_event(), nullptr), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  EXPECT_THAT(reports(), HasSubstr("would wait for a stream that is being captured"));
  EXPECT_EQ(failure_of_end(blocking), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(Graphs, ModesSayWhichThreadsMayAllocate) {
  const CUstream stream = make_stream();
  const auto allocates = [] {
    CUdeviceptr memory = 0;
    EXPECT_EQ(cuda_api().cuMemAlloc(&memory, 100), CUDA_SUCCESS);
    const bool is_allowed = reports().empty();
    int relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
    EXPECT_EQ(cuda_api().cuThreadExchangeStreamCaptureMode(&relaxed), CUDA_SUCCESS);
    EXPECT_EQ(cuda_api().cuMemFree(memory), CUDA_SUCCESS);
    EXPECT_EQ(cuda_api().cuThreadExchangeStreamCaptureMode(&relaxed), CUDA_SUCCESS);
    return is_allowed;
  };
  const auto allowed = [&](int mode) {
    begin_capture(stream, mode);
    const bool here = allocates();
    bool elsewhere = false;
    std::thread([&] {
      use_device(0);
      elsewhere = allocates();
    }).join();
    destroy_graph(end_capture(stream, 0));
    return std::pair(here, elsewhere);
  };
  EXPECT_EQ(allowed(CU_STREAM_CAPTURE_MODE_GLOBAL), std::pair(false, false));
  EXPECT_EQ(allowed(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), std::pair(false, true));
  EXPECT_EQ(allowed(CU_STREAM_CAPTURE_MODE_RELAXED), std::pair(true, true));
}

TEST_F(Graphs, MisuseOfGraphsIsReported) {
  const CUstream stream = make_stream();
  CUdeviceptr memory = 0;
  EXPECT_EQ(cuda_api().cuMemAlloc(&memory, 100), CUDA_SUCCESS);
  begin_capture(stream);
  EXPECT_EQ(cuda_api().cuMemsetD8Async(memory, 1, 100, stream), CUDA_SUCCESS);
  const CUgraphExec graph = end_capture(stream, 1);
  begin_capture(stream);
  EXPECT_EQ(cuda_api().cuGraphLaunch(graph, stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_THAT(reports(), HasSubstr("no graphs inside of graphs"));
  EXPECT_EQ(failure_of_end(stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  use_device(1);
  EXPECT_NE(cuda_api().cuGraphLaunch(graph, make_stream()), CUDA_SUCCESS);
  EXPECT_THAT(reports(), HasSubstr("a graph of device 0 in a stream of device 1"));
  use_device(0);
  EXPECT_EQ(cuda_api().cuMemFree(memory), CUDA_SUCCESS);
  launch_graph(graph, stream);
  EXPECT_EQ(cuda_api().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_THAT(reports(), AllOf(HasSubstr("cuMemsetD8Async, uses memory of device 0"), HasSubstr("freed meanwhile")));
  destroy_graph(graph);
  EXPECT_NE(cuda_api().cuGraphLaunch(graph, stream), CUDA_SUCCESS);
  EXPECT_THAT(reports(), HasSubstr("no graph of this kind, or was destroyed"));
}

TEST_F(Graphs, CollectivesRunWithEachLaunch) {
  const ncclUniqueId id = make_nccl_id();
  on_ranks(2, [&](int rank) {
    const ncclComm_t comm = join(id, 2, rank);
    const CUstream stream = make_stream();
    const Vector<float> values(std::vector<float>(1000, static_cast<float>(rank + 1)));
    const Vector<float> received(1000);
    const auto sum = [&] {
      EXPECT_EQ(
          nccl_api().ncclAllReduce(values.data(), values.data(), values.size(), ncclFloat32, ncclSum, comm, stream),
          ncclSuccess);
    };
    begin_capture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    sum();
    EXPECT_EQ(nccl_api().ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(nccl_api().ncclSend(values.data(), 1000, ncclFloat32, 1 - rank, comm, stream), ncclSuccess);
    EXPECT_EQ(nccl_api().ncclRecv(received.data(), 1000, ncclFloat32, 1 - rank, comm, stream), ncclSuccess);
    EXPECT_EQ(nccl_api().ncclGroupEnd(), ncclSuccess);
    const CUgraphExec graph = end_capture(stream, 2);
    EXPECT_THAT(values.values(stream), Each(rank + 1));
    for (const float expected : {3.0F, 12.0F, 48.0F}) {
      launch_graph(graph, stream);
      EXPECT_THAT(values.values(stream), Each(expected));
      EXPECT_THAT(received.values(stream), Each(expected));
      sum();  // between the launches
    }
    EXPECT_THAT(values.values(stream), Each(96));
    destroy_graph(graph);
    destroy(comm);
  });
}

TEST_F(Graphs, WordsAreWrittenByEachLaunch) {
  const CUstream stream = make_stream();
  void* pinned = nullptr;
  EXPECT_EQ(cuda_api().cuMemHostAlloc(&pinned, sizeof(std::uint32_t), 1), CUDA_SUCCESS);
  auto& word = *static_cast<std::uint32_t*>(pinned);
  word = 0;
  begin_capture(stream);
  const auto address = reinterpret_cast<CUdeviceptr>(pinned);
  EXPECT_EQ(cuda_api().cuStreamWriteValue32(stream, address, 5, CU_STREAM_WRITE_VALUE_DEFAULT), CUDA_SUCCESS);
  const CUgraphExec graph = end_capture(stream, 1);
  EXPECT_EQ(word, 0U);
  for (int launch = 0; launch < 3; ++launch) {
    launch_graph(graph, stream);
    EXPECT_EQ(cuda_api().cuStreamSynchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(word, 5U);
    word = 0;
  }
  EXPECT_EQ(cuda_api().cuMemFreeHost(pinned), CUDA_SUCCESS);
  launch_graph(graph, stream);
  EXPECT_EQ(cuda_api().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_THAT(reports(), HasSubstr("cuStreamWriteValue32"));
  destroy_graph(graph);
}

TEST_F(Graphs, OutliveNoCommunicator) {
  const ncclUniqueId id = make_nccl_id();
  on_ranks(2, [&](int rank) {
    const ncclComm_t comm = join(id, 2, rank);
    const CUstream stream = make_stream();
    const Vector<float> values(std::vector<float>(10, 1));
    begin_capture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    EXPECT_EQ(nccl_api().ncclAllReduce(values.data(), values.data(), 10, ncclFloat32, ncclSum, comm, stream),
              ncclSuccess);
    const CUgraphExec graph = end_capture(stream, 1);
    EXPECT_EQ(nccl_api().ncclCommFinalize(comm), ncclSuccess);
    destroy(comm);
    launch_graph(graph, stream);
    EXPECT_THAT(values.values(stream), Each(1));
    destroy_graph(graph);
  });
  EXPECT_THAT(reports(), AllOf(HasSubstr("waits until 1 groups in graphs are destroyed"),
                               HasSubstr("of a communicator that was destroyed or aborted")));
}

}  // namespace
}  // namespace farandole::fake
