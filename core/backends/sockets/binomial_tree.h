// SPDX-License-Identifier: Apache-2.0
// The binomial tree over the processes of a job: each process connects with its neighbours in it first.
#pragma once

#include <algorithm>
#include <vector>

namespace farandole::sockets {

/// The place of one process in the tree with root 0. A process and all below it have consecutive numbers.
/// Depth: ceil(log2(processes)); a process has as many children at most.
class BinomialTree {
 public:
  BinomialTree(int process, int processes) : process_(process), processes_(processes) {}

  bool is_root() const { return process_ == 0; }
  /// Not of the root.
  int parent() const { return process_ & (process_ - 1); }
  std::vector<int> children() const {
    std::vector<int> all;
    // 64 bits, because the distance may outgrow the largest number of processes.
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
  /// One after the last number of the process and those below it.
  int end() const {
    const int lowest_bit = process_ & -process_;
    return is_root() ? processes_ : std::min(processes_, process_ + lowest_bit);
  }

 private:
  int process_;
  int processes_;
};

}  // namespace farandole::sockets
