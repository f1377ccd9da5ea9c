// SPDX-License-Identifier: Apache-2.0
// Schedules: one rank's part of a collective, as data.
//
// An algorithm is a pure function (rank, size, root, segments) → Schedule. A schedule is independent of memory,
// transport and number of elements: it serves every vector, and the same schedule is verified, printed, predicted and
// run. The vector is cut into *chunks*, and each chunk into *segments*. A *piece* is one segment of one chunk: the unit
// that all steps work on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/core/export.h"

namespace farandole FARANDOLE_API {

/// Rank, number of ranks and root for which an algorithm makes a schedule.
struct Place {
  int rank = 0;
  int size = 1;
  int root = 0;  ///< root of the collective; 0 if the collective has none

  int next() const { return (rank + 1) % size; }
  int previous() const { return (rank + size - 1) % size; }
  /// Rank `rank` + `distance`, modulo size. `distance` may be negative.
  int at(int distance) const { return ((rank + distance) % size + size) % size; }
  /// Chunk `rank` + `distance`, modulo size, for algorithms with one chunk per rank. `distance` may be negative.
  int chunk(int distance) const { return at(distance); }
  bool operator==(const Place&) const = default;
};

/// Segment `segment` of chunk `chunk`.
struct Piece {
  int chunk = 0;
  int segment = 0;
};

/// Memory in which a region lies.
enum class Space : std::uint8_t {
  kInput,    ///< the caller's input, read only
  kData,     ///< the result; a piece that no step has written yet has the value of the input
  kScratch,  ///< temporary memory of the operation: numbered slots, each as large as the vector
};

/// `count` contiguous pieces. Pieces are numbered chunk by chunk: `first` is chunk * segments + segment.
struct Region {
  Space space = Space::kData;
  int slot = 0;  ///< only for kScratch
  int first = 0;
  int count = 0;  ///< 0: the step does not use the region
};

enum class StepKind : std::uint8_t {
  kSend,        ///< send `operand` to `peer`
  kRecv,        ///< receive `target` from `peer`
  kRecvReduce,  ///< target = operand op message from `peer`
  kReduce,      ///< target = operand op other
  kCopy,        ///< target = operand
  kFinish,      ///< `target` is fully reduced: apply the final scale, such as an average's division
};
/// "send", "recv_reduce", …
std::string_view name(StepKind kind);

/// One entry of a schedule. A step may start as soon as all steps in `after` are complete and the step `posted_after`
/// has started.
struct Step {
  StepKind kind = StepKind::kSend;
  int peer = -1;                  ///< rank at the other end of a message; -1 for local steps
  int round = 0;                  ///< sender and receiver of a message have the same round
  Region target, operand, other;  ///< StepKind says which of them a step uses
  std::vector<int> after;         ///< indices of steps, all smaller than this step's
  int posted_after = -1;          ///< previous message in the same direction with the same peer; -1: none
  /// True for sends and receives, false for local steps.
  bool is_message() const {
    return kind == StepKind::kSend || kind == StepKind::kRecv || kind == StepKind::kRecvReduce;
  }
};

/// One rank's part of a collective. Made by ScheduleBuilder or by `Algorithm::make`; not changed afterwards.
struct Schedule {
  Place place;
  int chunks = 1;
  int segments = 1;
  int rounds = 0;         ///< number of rounds: highest round of a step + 1
  int scratch_slots = 0;  ///< number of scratch slots, each as large as the vector
  /// In program order: a step comes after all steps on which it depends.
  std::vector<Step> steps;
  /// A flag per piece: true if no step writes the piece, so that its result is its input.
  std::vector<bool> untouched;

  int pieces() const { return chunks * segments; }
  int piece_of(Piece piece) const { return piece.chunk * segments + piece.segment; }
};

/// "chunk 3", "chunks 3-5"; with several segments "chunk 3.0", "chunks 3.0-5.2" (chunk.segment).
std::string describe(const Schedule& schedule, const Region& region);
/// "step 5 (recv_reduce from rank 3, round 2, chunk 1)".
std::string describe(const Schedule& schedule, int step);

/// Builds a schedule. Use this class to write an algorithm: add sends, receives and reductions in plain program order,
/// each with its round. The builder derives the dependencies between steps from the pieces that they read and write.
/// For example, a reduce to rank 0 in which every rank sends its vector to the rank below:
///
///     Schedule chain_reduce(const Place& at, int segments) {
///       ScheduleBuilder schedule(at, /*chunks=*/1, segments);
///       const Piece all{0, 0};
///       if (at.rank + 1 < at.size) {
///         schedule.round(at.size - 2 - at.rank);
///         schedule.recv_reduce(at.rank + 1, all, segments);
///       }
///       if (at.rank == 0) {
///         schedule.finish(all, segments);
///       } else {
///         schedule.round(at.size - 1 - at.rank);
///         schedule.send(at.rank - 1, all, segments);
///       }
///       return std::move(schedule).build();
///     }
///
/// Reading a piece gives the value that an earlier step has written, or else the input: the builder finds out where the
/// value lies. If earlier steps have written only a part of a range, the builder first copies the rest from the input.
///
/// Input and result may be the same memory (in-place calls). So a later write of a piece waits for all reads of the
/// piece's input.
///
/// All functions throw InvalidArgument for a rank, chunk, segment or slot that does not exist.
class ScheduleBuilder {
 public:
  /// @param chunks  number of chunks of the vector   @param segments  number of segments of each chunk
  ScheduleBuilder(const Place& place, int chunks, int segments);

  /// Sets the round of the following steps, until the next call; 0 at first. Sender and receiver of a message must set
  /// the same round. Rounds may be set in any order.
  void round(int number);

  /// Messages of a single piece. `recv_reduce` combines the received piece with this rank's piece.
  void send(int peer, Piece piece) { send(peer, piece, 1); }
  void recv(int peer, Piece piece) { recv(peer, piece, 1); }
  void recv_reduce(int peer, Piece piece) { recv_reduce(peer, piece, 1); }
  /// Messages of `count` contiguous pieces, starting with `first`.
  void send(int peer, Piece first, int count);
  void recv(int peer, Piece first, int count);
  void recv_reduce(int peer, Piece first, int count);

  /// Messages from and to scratch slot `slot`. Slots are numbered from 0 and need no declaration.
  void recv_scratch(int peer, int slot, Piece first, int count);
  void send_scratch(int peer, int slot, Piece first, int count);
  /// data = data op scratch.
  void reduce_scratch(int slot, Piece first, int count);
  /// data = scratch.
  void copy_scratch(int slot, Piece first, int count);
  /// data[to …] = data[from …]. The pieces must have the same numbers of elements.
  void copy(Piece from, Piece to, int count);
  /// Applies the final scale to pieces that are fully reduced on this rank; later sends of the pieces carry scaled
  /// values. Every result of a reduction must be finished exactly once: on the rank that holds it, or on the rank that
  /// sent it.
  void finish(Piece first, int count);

  /// Returns the schedule. The builder must not be used afterwards.
  Schedule build() &&;

 private:
  /// Steps that access a piece.
  struct PieceAccess {
    int last_write = -1;
    std::vector<int> reads;  ///< since the last write
  };
  void add(Step step);
  void add_message(StepKind kind, int peer, const Region& target, const Region& operand);
  std::vector<PieceAccess>& accesses(const Region& region);
  Region read_region(Piece first, int count);
  Region data_region(Piece first, int count) const;
  Region scratch_region(int slot, Piece first, int count);
  void depend_on_reads_and_writes(Step& step, int index);

  Schedule schedule_;
  int round_ = 0;
  std::vector<PieceAccess> data_accesses_;
  std::vector<std::vector<PieceAccess>> scratch_accesses_;
  std::vector<bool> written_;
  std::vector<int> last_send_to_, last_recv_from_;
};

}  // namespace FARANDOLE_API
