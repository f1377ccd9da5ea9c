// SPDX-License-Identifier: Apache-2.0
// One rank of a communicator whose ranks are processes, for fake_nccl_process_test.cpp.
// usage: fake_nccl_rank sums|dies|differs RANK SIZE ID      ID: the bytes of an ncclUniqueId in hexadecimal digits
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "fake_tables.h"

namespace farandole::fake {
namespace {

struct RankHere {
  int rank;
  int size;
  ncclComm_t comm;
  CUstream stream;
};

bool has_failed = false;

void expect(bool is_so, const char* what) {
  if (is_so) return;
  std::fprintf(stderr, "fake_nccl_rank: not so: %s\n", what);
  has_failed = true;
}

void send_or_receive(const RankHere& here, const Vector<float>& data, std::size_t count) {
  const ncclResult_t result = here.rank == 0
                                  ? nccl_api().ncclRecv(data.data(), count, ncclFloat32, 1, here.comm, here.stream)
                                  : nccl_api().ncclSend(data.data(), count, ncclFloat32, 0, here.comm, here.stream);
  expect(result == ncclSuccess, "the message is enqueued");
}

void sum_often(const RankHere& here) {
  constexpr std::size_t kCount = 50000;
  float expected = 1.0F;
  const Vector<float> data(std::vector<float>(kCount, expected));
  for (int round = 0; round < 5; ++round) {
    expected *= static_cast<float>(here.size);
    expect(
        nccl_api().ncclAllReduce(data.data(), data.data(), kCount, ncclFloat32, ncclSum, here.comm, here.stream) == 0,
        "the allreduce is enqueued");
  }
  expect(data.values(here.stream) == std::vector<float>(kCount, expected), "the sum is right");
  expect(nccl_api().ncclCommDestroy(here.comm) == ncclSuccess, "the communicator is destroyed");
}

void die_on_rank_1(const RankHere& here) {
  const Vector<float> data(10);
  const Vector<float> signal(1);
  send_or_receive(here, data, 10);  // connects
  if (here.rank == 1) {
    expect(nccl_api().ncclRecv(signal.data(), 1, ncclFloat32, 0, here.comm, here.stream) == ncclSuccess, "a receive");
    cuda_api().cuStreamSynchronize(here.stream);
    _exit(has_failed ? 1 : 0);
  }
  // The peer ends when it knows that the receive waits for it.
  nccl_api().ncclGroupStart();
  nccl_api().ncclSend(signal.data(), 1, ncclFloat32, 1, here.comm, here.stream);
  nccl_api().ncclRecv(data.data(), 10, ncclFloat32, 1, here.comm, here.stream);
  expect(nccl_api().ncclGroupEnd() == ncclSuccess, "the group is enqueued");
  const CUevent event = make_event();
  cuda_api().cuEventRecord(event, here.stream);
  ncclResult_t error = ncclSuccess;
  while (error == ncclSuccess) expect(nccl_api().ncclCommGetAsyncError(here.comm, &error) == ncclSuccess, "no failure");
  expect(error == ncclRemoteError, "the error is ncclRemoteError");
  expect(std::strstr(nccl_api().ncclGetLastError(here.comm), "the process of rank 1 has ended") != nullptr, "a text");
  expect(cuda_api().cuEventQuery(event) == CUDA_ERROR_NOT_READY, "the receive goes on waiting");
  expect(nccl_api().ncclCommAbort(here.comm) == ncclSuccess, "abort works");
  expect(cuda_api().cuStreamSynchronize(here.stream) == CUDA_SUCCESS, "abort ends the receive");
}

void differ(const RankHere& here) {
  const Vector<float> data(10);
  fake_device_set("FAKE_DEVICE_FATAL", "0");
  fake_device_set("FAKE_NCCL_MISMATCH_HANGS", "0");
  send_or_receive(here, data, here.rank == 0 ? 9 : 10);
  ncclResult_t error = ncclSuccess;
  while (error == ncclSuccess) expect(nccl_api().ncclCommGetAsyncError(here.comm, &error) == ncclSuccess, "no failure");
  expect(fake_device_misuse_count() == 1, "each rank reports once");
  expect(cuda_api().cuStreamSynchronize(here.stream) == CUDA_SUCCESS, "the message ends");
  expect(nccl_api().ncclCommDestroy(here.comm) == ncclSuccess, "the communicator is destroyed");
}

ncclUniqueId id_of(const char* digits) {
  ncclUniqueId id{};
  for (char& byte : id.internal) {
    const std::string text(digits, 2);
    byte = static_cast<char>(std::strtoul(text.c_str(), nullptr, 16));
    digits += 2;
  }
  return id;
}

}  // namespace
}  // namespace farandole::fake

int main(int argc, char** argv) {
  using namespace farandole::fake;
  if (argc != 5 || std::strlen(argv[4]) != 2 * sizeof(ncclUniqueId)) return 2;
  const std::string mode = argv[1];
  const int rank = std::atoi(argv[2]);
  const int size = std::atoi(argv[3]);
  cuda_api().cuInit(0);
  use_device(rank);
  const RankHere here{rank, size, join(id_of(argv[4]), size, rank), make_stream()};
  if (here.comm == nullptr) return 1;
  if (mode == "sums") sum_often(here);
  if (mode == "dies") die_on_rank_1(here);
  if (mode == "differs") differ(here);
  return has_failed ? 1 : 0;
}
