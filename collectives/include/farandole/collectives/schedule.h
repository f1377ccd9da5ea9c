// SPDX-License-Identifier: Apache-2.0
// Schedules: one rank's part of a collective as data, built by pure functions of (rank, size, root, segments).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/core/export.h"

namespace farandole FARANDOLE_API {

/// Where an algorithm stands: which rank it plans for, among how many.
struct Place {
  int rank = 0;
  int size = 1;
  int root = 0;

  int next() const { return (rank + 1) % size; }
  int previous() const { return (rank + size - 1) % size; }
  /// The rank `distance` places further round the ring; distance may be negative.
  int at(int distance) const { return ((rank + distance) % size + size) % size; }
  /// The chunk `distance` places after this rank's own.
  int chunk(int distance) const { return at(distance); }
  bool operator==(const Place&) const = default;
};

/// The unit a schedule speaks of: segment `segment` of chunk `chunk`.
struct Piece {
  int chunk = 0;
  int segment = 0;
};

/// Which memory a region lies in. Pieces number chunk by chunk, each cut into `segments` pieces.
enum class Space : std::uint8_t {
  kInput,    ///< the caller's input, read only; what a piece holds before the schedule has written it
  kData,     ///< the result
  kScratch,  ///< the operation's own memory: slots, each with room for every piece
};

/// `count` contiguous pieces.
struct Region {
  Space space = Space::kData;
  int slot = 0;  ///< of scratch memory
  int first = 0;
  int count = 0;
};

enum class StepKind : std::uint8_t {
  kSend,        ///< send `operand` to `peer`
  kRecv,        ///< receive into `target` from `peer`
  kRecvReduce,  ///< target = operand op incoming
  kReduce,      ///< target = operand op other
  kCopy,        ///< target = operand
  kFinish,      ///< `target` is fully reduced here: apply the final scale
};
std::string_view name(StepKind kind);

/// One entry of a schedule.
struct Step {
  StepKind kind = StepKind::kSend;
  int peer = -1;  ///< of messages
  int round = 0;  ///< both ends of a message have the same one
  Region target, operand, other;
  std::vector<int> after;  ///< steps that must be complete before this one starts
  int posted_after = -1;   ///< the previous message of the same direction and peer, which must have started; -1: none
};

/// Const after construction. `steps` are in program order: a step comes after everything it waits for.
struct Schedule {
  Place place;
  int chunks = 1;
  int segments = 1;
  int rounds = 0;  ///< one more than the highest round of a step
  int scratch_slots = 0;
  std::vector<Step> steps;
  /// Pieces that are never written: the result takes them from the input. One flag per piece.
  std::vector<bool> untouched;

  int pieces() const { return chunks * segments; }
  int piece_of(Piece piece) const { return piece.chunk * segments + piece.segment; }
};

/// "chunk 3", "chunks 3-5", or with segments "chunk 3.0", "chunks 3.0-5.2" (chunk.segment).
std::string describe(const Schedule& schedule, const Region& region);
/// "step 5 (recv_reduce from rank 3, round 2, chunk 1)".
std::string describe(const Schedule& schedule, int step);

/// Records sends, receives and reductions in plain program order and derives which steps must wait for which.
///
/// Reading a piece that has not been written yet reads the input; reading a range of which a part has been written
/// first copies the rest from the input. An author therefore never says where a value lies.
///
/// The input may be the same memory as the result, so a read of a piece's input counts as a read of the piece: a later
/// write of it waits. All functions throw InvalidArgument for a rank, chunk, segment or slot that does not exist.
class ScheduleBuilder {
 public:
  /// @param chunks  parts that the vector is cut into; each is cut into `segments` pieces
  ScheduleBuilder(const Place& place, int chunks, int segments);

  /// The round of the steps that follow; both ends of a message must name the same one. Rounds may be named in any
  /// order.
  void round(int number);

  void send(int peer, Piece piece) { send(peer, piece, 1); }
  void recv(int peer, Piece piece) { recv(peer, piece, 1); }
  void recv_reduce(int peer, Piece piece) { recv_reduce(peer, piece, 1); }
  /// The same for `count` pieces that start at `first`.
  void send(int peer, Piece first, int count);
  void recv(int peer, Piece first, int count);
  void recv_reduce(int peer, Piece first, int count);

  /// Receives into a scratch slot (numbered from 0), at the place of the pieces named.
  void recv_scratch(int peer, int slot, Piece first, int count);
  void send_scratch(int peer, int slot, Piece first, int count);
  /// data = data op scratch.
  void reduce_scratch(int slot, Piece first, int count);
  /// data = scratch.
  void copy_scratch(int slot, Piece first, int count);
  /// data[to …] = data[from …]; the pieces must have the same sizes.
  void copy(Piece from, Piece to, int count);
  /// These pieces are fully reduced on this rank; what leaves it from now on carries the final scale.
  void finish(Piece first, int count);

  Schedule build() &&;

 private:
  struct Touch {
    int last_write = -1;
    std::vector<int> reads;  ///< since the last write
  };
  void add(Step step);
  void add_message(StepKind kind, int peer, const Region& target, const Region& operand);
  std::vector<Touch>& touches(const Region& region);
  Region read_region(Piece first, int count);
  Region data_region(Piece first, int count) const;
  Region scratch_region(int slot, Piece first, int count);
  void depend_on_reads_and_writes(Step& step, int index);

  Schedule schedule_;
  int round_ = 0;
  std::vector<Touch> data_touches_;
  std::vector<std::vector<Touch>> scratch_touches_;
  std::vector<bool> written_;
  std::vector<int> last_send_to_, last_recv_from_;
};

}  // namespace FARANDOLE_API
