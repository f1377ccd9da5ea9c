// SPDX-License-Identifier: Apache-2.0
// Captures of streams, and the graphs that the captures make. A graph launches its nodes in the order in which they
// were captured, which is one of the orders that the dependencies allow. The dependencies are kept only to find forks
// that were not joined.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "fake_streams.h"

namespace farandole::fake {

/// Item of a graph.
struct GraphNode {
  std::function<void(Stream&)> enqueue;   ///< appends the item to the stream in which the graph is launched
  std::function<void()> release;          ///< called once no graph has the node; may be empty
  std::vector<std::size_t> predecessors;  ///< indices of the nodes on which this node depends
};

/// Nodes of a captured graph, shared by the graph and all its executable graphs. Lives until the process ends, because
/// items of launches refer to the nodes.
struct GraphNodes : Handle {
  explicit GraphNodes(Device& owner) : Handle(Kind::kGraphNodes), device(owner) {}
  void add_owner() { owners.fetch_add(1, std::memory_order_relaxed); }
  /// Removes an owner; when the last owner is removed, releases the nodes.
  void drop_owner();
  Device& device;
  std::vector<GraphNode> nodes;  ///< constant once the capture has ended
  std::atomic<int> owners{1};
};

/// Object behind a CUgraph. Lives until the process ends.
struct Graph : Handle {
  explicit Graph(GraphNodes& captured) : Handle(Kind::kGraph), nodes(captured) {}
  GraphNodes& nodes;
};

/// Object behind a CUgraphExec. Lives until the process ends. Not thread-safe, as in CUDA.
struct ExecutableGraph : Handle {
  explicit ExecutableGraph(GraphNodes& captured) : Handle(Kind::kExecutableGraph), nodes(captured) {}
  /// Appends all nodes to the stream, ordered after the previous launch, even if that was in another stream.
  void launch(Stream& stream);
  GraphNodes& nodes;
  Position last_launch{nullptr, 0};
};

/// A capture, from cuStreamBeginCapture to cuStreamEndCapture. Lives until the process ends, because events refer to
/// it. Thread-safe. Threads of streams never use it.
class Capture : public Handle {
 public:
  /// Begins to capture the stream `origin`.
  Capture(Stream& origin, int mode);

  bool is_valid() const { return state_.load(std::memory_order_relaxed) == State::kActive; }
  bool has_ended() const { return state_.load(std::memory_order_relaxed) == State::kEnded; }
  bool is_origin(const Stream& stream) const { return &stream == &origin_; }
  /// True if only the thread that began the capture may end it, and this is another thread.
  bool is_of_another_thread() const;
  /// Makes all further calls in the captured streams fail, including the end of the capture.
  void invalidate();
  /// Adds a node after the nodes that the stream has captured so far. No-op if the capture is invalid.
  void add(Stream& stream, std::function<void(Stream&)> enqueue, std::function<void()> release);
  void add(Stream& stream, Item item);
  /// Returns the record of an event that is recorded in the stream now.
  CapturedRecord record(const Stream& stream);
  /// Orders later nodes of the stream after the record. A stream that was not captured joins the capture.
  void wait(Stream& stream, const CapturedRecord& record);
  /// Result of `end`. If the capture is invalid or not joined, `nodes` is null and the nodes have been released.
  /// `is_joined` is false if the end of the origin does not depend on all nodes.
  struct End {
    GraphNodes* nodes;
    bool is_joined;
  };
  /// Ends the capture in all its streams.
  End end();

 private:
  enum class State : std::uint8_t { kActive, kInvalid, kEnded };
  bool is_joined() const;

  Stream& origin_;
  const int mode_;
  const std::uint32_t thread_;  // number of the thread that began the capture
  std::atomic<State> state_{State::kActive};
  std::mutex mutex_;  // guards the members below
  GraphNodes& nodes_;
  std::map<const Stream*, std::vector<std::size_t>> ends_;  // nodes on which the next node of a stream depends
  std::vector<Stream*> streams_;
};

/// Number of captures that have not ended.
int active_captures();
/// True if CUDA forbids unsafe calls on this thread, such as allocations, because a stream is captured.
bool captures_forbid_unsafe_calls();

}  // namespace farandole::fake
