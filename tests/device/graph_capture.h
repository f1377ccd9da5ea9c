// SPDX-License-Identifier: Apache-2.0
// Captures of streams into graphs, by the driver that the plug-in uses: a GPU's or the double's.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>

#include "driver_function.h"
#include "farandole/sdk/device.h"

namespace farandole::test {

/// A graph that can be launched again and again. Destroy it before the communicators whose calls it holds.
class DeviceGraph {
 public:
  /// @param device  outlives the result   @param graph  a CUgraph, which the result owns
  DeviceGraph(Device& device, void* graph) : device_(device) {
    device_.run_bound([&] {
      EXPECT_EQ((find_in_driver<int(void*, void**, std::size_t*)>("cuGraphGetNodes")(graph, nullptr, &nodes_)), 0);
      auto* const instantiate = find_in_driver<int(void**, void*, unsigned long long)>("cuGraphInstantiateWithFlags");
      EXPECT_EQ(instantiate(&executable_, graph, 0), 0);
      EXPECT_EQ(find_in_driver<int(void*)>("cuGraphDestroy")(graph), 0);
    });
  }
  DeviceGraph(const DeviceGraph&) = delete;
  DeviceGraph& operator=(const DeviceGraph&) = delete;
  ~DeviceGraph() {
    device_.run_bound([this] { EXPECT_EQ(find_in_driver<int(void*)>("cuGraphExecDestroy")(executable_), 0); });
  }
  /// Number of kernels, copies and other pieces of work.
  std::size_t nodes() const { return nodes_; }
  /// Enqueues all that was captured.
  void launch(StreamView stream) const {
    device_.run_bound(
        [&] { EXPECT_EQ(find_in_driver<int(void*, void*)>("cuGraphLaunch")(executable_, stream.handle), 0); });
  }

 private:
  Device& device_;
  void* executable_ = nullptr;  // a CUgraphExec
  std::size_t nodes_ = 0;
};

/// Captures what is enqueued in a stream, from construction to `end`, in CUDA's strictest mode. Both belong to one
/// thread.
class StreamCapture {
 public:
  /// @param device  outlives the capture and its graph
  StreamCapture(Device& device, StreamView stream) : device_(device), stream_(stream.handle) {
    constexpr int kGlobalMode = 0;
    device_.run_bound(
        [&] { EXPECT_EQ(find_in_driver<int(void*, int)>("cuStreamBeginCapture_v2")(stream_, kGlobalMode), 0); });
  }
  StreamCapture(const StreamCapture&) = delete;
  StreamCapture& operator=(const StreamCapture&) = delete;
  /// Ends the capture, which must be valid.
  std::unique_ptr<DeviceGraph> end() {
    void* graph = nullptr;
    device_.run_bound([&] { EXPECT_EQ(find_in_driver<int(void*, void**)>("cuStreamEndCapture")(stream_, &graph), 0); });
    return std::make_unique<DeviceGraph>(device_, graph);
  }

 private:
  Device& device_;
  void* const stream_;
};

}  // namespace farandole::test
