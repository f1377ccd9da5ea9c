// SPDX-License-Identifier: Apache-2.0
#include "mpi_vendor.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <climits>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "farandole/core/error.h"
#include "farandole/core/reduce.h"
#include "farandole/internal/log.h"
#include "mpi_control_messages.h"
#include "mpi_runtime.h"

namespace farandole::mpi {

namespace {

/// Reduction function of an MPI_Op for 16-bit floating-point types, which MPI does not have. MPI defines inout = in op
/// inout.
template <DType kDType, ReduceOp kOp>
void combine(void* in, void* inout, int* count, MPI_Datatype*) {
  reduce(inout, in, inout, static_cast<std::size_t>(*count), kDType, kOp);
}

/// @param op  not bitwise, as the type is floating-point
template <DType kDType>
MPI_User_function* combiner(ReduceOp op) {
  const std::array<MPI_User_function*, 5> of_ops{combine<kDType, ReduceOp::kSum>, combine<kDType, ReduceOp::kProduct>,
                                                 combine<kDType, ReduceOp::kMin>, combine<kDType, ReduceOp::kMax>,
                                                 combine<kDType, ReduceOp::kSum>};
  return of_ops.at(index_of(op));
}

bool needs_own_type(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16;
}

MPI_Datatype native_type(DType dtype) {
  const std::array<MPI_Datatype, kDTypeCount> types{
      MPI_C_BOOL,        MPI_UINT8_T,       MPI_INT8_T, MPI_UINT16_T, MPI_INT16_T,  MPI_INT32_T, MPI_INT64_T,
      MPI_DATATYPE_NULL, MPI_DATATYPE_NULL, MPI_FLOAT,  MPI_DOUBLE,   MPI_UINT32_T, MPI_UINT64_T};
  return types[static_cast<std::size_t>(dtype)];
}

MPI_Op native_op(DType dtype, ReduceOp op) {
  const std::array<MPI_Op, kAllReduceOps.size()> of_numbers{MPI_SUM, MPI_PROD, MPI_MIN, MPI_MAX,
                                                            MPI_SUM, MPI_BAND, MPI_BOR, MPI_BXOR};
  const std::array<MPI_Op, kAllReduceOps.size()> of_bools{MPI_LOR, MPI_LAND, MPI_LAND, MPI_LOR,
                                                          MPI_LOR, MPI_LAND, MPI_LOR,  MPI_LXOR};
  return (dtype == DType::kBool ? of_bools : of_numbers)[index_of(op)];
}

/// Non-blocking collectives of MPI, one for each part of the vector, tested in order.
class VendorTransfer final : public Transfer {
 public:
  VendorTransfer(MpiSession& session, std::vector<MPI_Request> requests)
      : session_(session), requests_(std::move(requests)) {}
  ~VendorTransfer() override { give_up(); }
  BufferHazard withdraw() override { return give_up(); }
  bool test() override {
    if (done_ == requests_.size()) return true;
    const auto guard = session_.enter("MPI_Test of an allreduce of MPI");
    for (; done_ < requests_.size(); ++done_) {
      int complete = 0;
      check(MPI_Test(&requests_[done_], &complete, MPI_STATUS_IGNORE), "MPI_Iallreduce");
      if (complete == 0) return false;
    }
    return true;
  }

 private:
  /// MPI can neither cancel nor free a non-blocking collective, so wait briefly for each incomplete collective.
  BufferHazard give_up() {
    for (; done_ < requests_.size() && session_.is_usable(); ++done_) {
      if (session_.settle(requests_[done_])) continue;
      log(LogLevel::kError, "an allreduce of MPI was given up before it was complete; MPI may still use its memory");
      return BufferHazard::kWritten;
    }
    return BufferHazard::kNone;
  }

  MpiSession& session_;
  std::vector<MPI_Request> requests_;
  std::size_t done_ = 0;
};

/// Arguments of a blocking function of MPI, resolved in advance, so that the timed call does no other work.
struct BlockingCall {
  const void* from;
  void* to;
  int count;
  MPI_Datatype type;
  MPI_Op op;
  int root;
  MPI_Comm communicator;
};

std::function<void()> bind(Collective collective, const BlockingCall& c) {
  switch (collective) {
    case Collective::kAllreduce:
      return [c] { check(MPI_Allreduce(c.from, c.to, c.count, c.type, c.op, c.communicator), "MPI_Allreduce"); };
    case Collective::kBroadcast:
      return [c] { check(MPI_Bcast(c.to, c.count, c.type, c.root, c.communicator), "MPI_Bcast"); };
    case Collective::kReduce:
      return [c] { check(MPI_Reduce(c.from, c.to, c.count, c.type, c.op, c.root, c.communicator), "MPI_Reduce"); };
    case Collective::kAllgather:
      return [c] {
        check(MPI_Allgather(c.from, c.count, c.type, c.to, c.count, c.type, c.communicator), "MPI_Allgather");
      };
    case Collective::kReduceScatter:
      return [c] {
        check(MPI_Reduce_scatter_block(c.from, c.to, c.count, c.type, c.op, c.communicator),
              "MPI_Reduce_scatter_block");
      };
    case Collective::kGather:
      return [c] {
        check(MPI_Gather(c.from, c.count, c.type, c.to, c.count, c.type, c.root, c.communicator), "MPI_Gather");
      };
    case Collective::kScatter:
      return [c] {
        check(MPI_Scatter(c.from, c.count, c.type, c.to, c.count, c.type, c.root, c.communicator), "MPI_Scatter");
      };
    case Collective::kAlltoall:
      return
          [c] { check(MPI_Alltoall(c.from, c.count, c.type, c.to, c.count, c.type, c.communicator), "MPI_Alltoall"); };
    case Collective::kBarrier:
      break;
  }
  return [c] { check(MPI_Barrier(c.communicator), "MPI_Barrier"); };
}

/// If the call is in place, replaces `from` (in scatter: `to`) by MPI_IN_PLACE. In rooted collectives only the root
/// does so.
void mark_in_place(Collective collective, std::size_t slice_bytes, int rank, BlockingCall& c) {
  const std::size_t place = slice_bytes * static_cast<std::size_t>(rank);
  const auto is_inside = [place](const void* part, const void* whole) {
    return part == static_cast<const std::byte*>(whole) + place;
  };
  if (is_rooted(collective) && rank != c.root) return;
  if (collective == Collective::kScatter) {
    if (is_inside(c.to, c.from)) c.to = MPI_IN_PLACE;
  } else if (collective == Collective::kAllgather || collective == Collective::kGather) {
    if (is_inside(c.from, c.to)) c.from = MPI_IN_PLACE;
  } else if (collective != Collective::kBroadcast && collective != Collective::kBarrier && c.from == c.to) {
    c.from = MPI_IN_PLACE;
  }
}

/// MPI's collectives, on a separate MPI communicator. Used by one thread at a time, as all collectives of a
/// communicator are.
class MpiVendorCollectives final : public VendorCollectives {
 public:
  MpiVendorCollectives(MpiSession& session, CommunicatorKey key, MPI_Comm communicator, std::size_t part_count)
      : session_(session),
        key_(std::move(key)),
        communicator_(communicator),
        part_count_(std::min<std::size_t>(part_count, INT_MAX)) {}

  ~MpiVendorCollectives() override {
    if (!session_.is_usable()) return;
    const auto guard = session_.lock();
    for (auto& [key, op] : own_ops_) MPI_Op_free(&op);
    if (half_type_ != MPI_DATATYPE_NULL) MPI_Type_free(&half_type_);
    session_.pool().put(std::move(key_), communicator_);
  }

  bool supports(DType dtype, ReduceOp op) const override { return is_defined(op, dtype); }

  std::unique_ptr<Transfer> allreduce(const void* input, void* output, std::size_t count, DType dtype,
                                      ReduceOp op) override {
    const auto guard = session_.enter("MPI_Iallreduce");
    const MPI_Datatype type = type_of(dtype);
    const MPI_Op operation = operation_of(dtype, op);
    const std::size_t element_bytes = size_in_bytes(dtype);
    std::vector<MPI_Request> requests;
    requests.reserve(count / part_count_ + 1);
    for (std::size_t first = 0; first < count; first += part_count_) {
      const int length = static_cast<int>(std::min(part_count_, count - first));
      const void* from = input == output ? MPI_IN_PLACE : static_cast<const std::byte*>(input) + first * element_bytes;
      void* to = static_cast<std::byte*>(output) + first * element_bytes;
      MPI_Request request = MPI_REQUEST_NULL;
      const int code = MPI_Iallreduce(from, to, length, type, operation, communicator_, &request);
      if (code != MPI_SUCCESS) {
        throw_mpi_error(code, fmt::format("MPI_Iallreduce of {} elements of {}, {}", count, farandole::name(dtype),
                                          farandole::name(op)));
      }
      requests.push_back(request);
    }
    return std::make_unique<VendorTransfer>(session_, std::move(requests));
  }

  std::function<void()> blocking(const VendorCall& call) override {
    const auto guard = session_.enter("preparing a blocking collective of MPI");
    if (call.count > INT_MAX) {
      throw InvalidArgument(
          fmt::format("a blocking collective of MPI takes at most {} elements per rank, and the call has {}; use "
                      "fewer, or a larger type",
                      INT_MAX, call.count));
    }
    int rank = 0;
    check(MPI_Comm_rank(communicator_, &rank), "MPI_Comm_rank");
    BlockingCall bound{
        call.input, call.output,  static_cast<int>(call.count), type_of(call.dtype), operation_of(call.dtype, call.op),
        call.root,  communicator_};
    mark_in_place(call.collective, call.count * size_in_bytes(call.dtype), rank, bound);
    return bind(call.collective, bound);
  }

 private:
  MPI_Datatype type_of(DType dtype) { return needs_own_type(dtype) ? half_type() : native_type(dtype); }
  /// MPI_OP_NULL if MPI has no such reduction, which a call that does not reduce may name.
  MPI_Op operation_of(DType dtype, ReduceOp op) {
    if (!supports(dtype, op)) return MPI_OP_NULL;
    return needs_own_type(dtype) ? own_op(dtype, op) : native_op(dtype, op);
  }
  MPI_Datatype half_type() {
    if (half_type_ == MPI_DATATYPE_NULL) {
      check(MPI_Type_contiguous(2, MPI_BYTE, &half_type_), "MPI_Type_contiguous for 16-bit floating-point types");
      check(MPI_Type_commit(&half_type_), "MPI_Type_commit for 16-bit floating-point types");
    }
    return half_type_;
  }
  MPI_Op own_op(DType dtype, ReduceOp op) {
    MPI_Op& own = own_ops_.try_emplace({dtype, op}, MPI_OP_NULL).first->second;
    if (own == MPI_OP_NULL) {
      MPI_User_function* function = dtype == DType::kF16 ? combiner<DType::kF16>(op) : combiner<DType::kBF16>(op);
      check(MPI_Op_create(function, /*commute=*/1, &own), "MPI_Op_create for 16-bit floating-point types");
    }
    return own;
  }

  MpiSession& session_;
  CommunicatorKey key_;
  MPI_Comm communicator_;
  const std::size_t part_count_;
  MPI_Datatype half_type_ = MPI_DATATYPE_NULL;
  std::map<std::pair<DType, ReduceOp>, MPI_Op> own_ops_;
};

/// Logical "and" of `holds` over all `processes`, by messages to and from the first process. Collective; blocks.
bool holds_for_all(MPI_Comm among, const std::vector<int>& processes, int tag, bool holds) {
  int me = 0;
  check(MPI_Comm_rank(among, &me), "MPI_Comm_rank");
  const int first = processes.front();
  int result = holds ? 1 : 0;
  if (me != first) {
    check(MPI_Send(&result, 1, MPI_INT, first, tag, among), "MPI_Send");
    check(MPI_Recv(&result, 1, MPI_INT, first, tag, among, MPI_STATUS_IGNORE), "MPI_Recv");
    return result != 0;
  }
  for (const int process : processes) {
    int theirs = 0;
    if (process == first) continue;
    check(MPI_Recv(&theirs, 1, MPI_INT, process, tag, among, MPI_STATUS_IGNORE), "MPI_Recv");
    if (theirs == 0) result = 0;
  }
  for (const int process : processes) {
    if (process != first) check(MPI_Send(&result, 1, MPI_INT, process, tag, among), "MPI_Send");
  }
  return result != 0;
}

MPI_Comm make_communicator(MPI_Comm among, const std::vector<int>& processes, int tag) {
  MPI_Group all_processes = MPI_GROUP_NULL;
  MPI_Group members = MPI_GROUP_NULL;
  MPI_Comm communicator = MPI_COMM_NULL;
  check(MPI_Comm_group(among, &all_processes), "MPI_Comm_group");
  check(MPI_Group_incl(all_processes, static_cast<int>(processes.size()), processes.data(), &members),
        "MPI_Group_incl");
  check(MPI_Comm_create_group(among, members, tag, &communicator), "MPI_Comm_create_group");
  MPI_Group_free(&members);
  MPI_Group_free(&all_processes);
  check(MPI_Comm_set_errhandler(communicator, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  return communicator;
}

}  // namespace

std::unique_ptr<VendorCollectives> make_vendor_collectives(MpiSession& session, std::span<const int> processes,
                                                           std::uint16_t id, std::size_t part_count) {
  const auto guard = session.enter("MPI_Comm_create_group");
  CommunicatorKey key{id, {processes.begin(), processes.end()}};
  // The tag separates creations that run at the same time in different threads, and creations from control messages.
  // Open MPI sends messages with this tag, so the communicator of data messages cannot be used: there every tag may be
  // a channel.
  const MPI_Comm among = session.control_messages();
  const int tag = kControlTag + 1 + id;
  MPI_Comm communicator = session.pool().take(key);
  // If another process has evicted the communicator from its pool, all processes make a new communicator.
  if (!holds_for_all(among, key.processes, tag, communicator != MPI_COMM_NULL)) {
    if (communicator != MPI_COMM_NULL) MPI_Comm_free(&communicator);
    communicator = make_communicator(among, key.processes, tag);
  }
  return std::make_unique<MpiVendorCollectives>(session, std::move(key), communicator, part_count);
}

}  // namespace farandole::mpi
