// SPDX-License-Identifier: Apache-2.0
// Binomial tree over the processes of a job. Each process connects to its neighbours in the tree first.
#pragma once

#include <algorithm>
#include <vector>

namespace farandole::sockets {

/// Position of a process in the binomial tree with root 0. The parent of a process is the process number with the
/// lowest set bit cleared. A process and all processes below it have consecutive numbers. Depth and number of children
/// are at most ceil(log2(processes)).
class BinomialTree {
 public:
  BinomialTree(int process, int processes) : process_(process), processes_(processes) {}

  bool is_root() const { return process_ == 0; }
  /// Requires a process other than the root.
  int parent() const { return process_ & (process_ - 1); }
  std::vector<int> children() const {
    std::vector<int> all;
    // 64 bits: `distance` may exceed the range of int.
    for (long distance = 1; process_ + distance < processes_; distance *= 2) {
      if ((process_ & distance) != 0) break;
      all.push_back(static_cast<int>(process_ + distance));
    }
    return all;
  }
  std::vector<int> neighbours() const {
    std::vector<int> all = children();
    if (!is_root()) all.push_back(parent());
    return all;
  }
  /// One past the largest process number in this process's subtree.
  int end() const {
    const int lowest_bit = process_ & -process_;
    return is_root() ? processes_ : std::min(processes_, process_ + lowest_bit);
  }

 private:
  int process_;
  int processes_;
};

}  // namespace farandole::sockets
