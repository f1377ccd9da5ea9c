/* SPDX-License-Identifier: Apache-2.0 */
/* usage: comm_calls [DIRECTORY RANK SIZE]   Calls every function of farandole/collectives.h on every rank, with counts
 * that differ from rank to rank, blocking and asynchronous, and checks results and errors. */
#include "comm_client.h"

enum { kCount = 1000, kMostRanks = 8 };

static float input[kMostRanks * kCount], output[kMostRanks * kCount];

/* Element i of rank r. */
static float value(int r, int i) {
  return (float)(r * 10000 + i);
}
static void fill(int count) {
  for (int i = 0; i < count; ++i) input[i] = value(rank, i);
  memset(output, 0, sizeof output);
}
static float sum_of_ranks(int i) {
  float sum = 0;
  for (int r = 0; r < size; ++r) sum += value(r, i);
  return sum;
}
/* Rank r contributes or gets r + 1 elements. */
static size_t counts[kMostRanks];
static int first_of(int r) {
  return r * (r + 1) / 2;
}

/* Waits, tests and frees. `work` is NULL if the call was blocking. */
static void finish(farandole_work* work) {
  if (work == NULL) return;
  OK(farandole_work_wait(work, &error));
  CHECK(farandole_work_test(work) == 1, "done, and not done");
  CHECK(farandole_work_source(work) == -1, "not a receive");
  farandole_work_free(work);
}

static void test_reductions(farandole_work** work) {
  const int last = size - 1;
  fill(kCount);
  OK(farandole_allreduce(all, input, output, kCount, FARANDOLE_F32, FARANDOLE_SUM, NULL, work, &error));
  finish(work ? *work : NULL);
  for (int i = 0; i < kCount; ++i) CHECK(output[i] == sum_of_ranks(i), "%d: %g", i, output[i]);

  const farandole_call_options half = {.struct_bytes = sizeof half, .prescale = 1, .postscale = .5, .has_factors = 1};
  OK(farandole_allreduce(all, input, input, kCount, FARANDOLE_F32, FARANDOLE_MAX, &half, work, &error));
  finish(work ? *work : NULL);
  for (int i = 0; i < kCount; ++i) CHECK(input[i] == value(last, i) / 2, "%d: %g", i, input[i]);

  fill(kCount);
  OK(farandole_reduce(all, input, rank == last ? output : NULL, kCount, FARANDOLE_F32, FARANDOLE_SUM, last, NULL, work,
                      &error));
  finish(work ? *work : NULL);
  for (int i = 0; i < kCount; ++i) CHECK(output[i] == (rank == last ? sum_of_ranks(i) : 0), "%d: %g", i, output[i]);

  fill(kCount * size);
  OK(farandole_reduce_scatter(all, input, output, kCount, NULL, FARANDOLE_F32, FARANDOLE_SUM, NULL, work, &error));
  finish(work ? *work : NULL);
  for (int i = 0; i < kCount; ++i) CHECK(output[i] == sum_of_ranks(rank * kCount + i), "%d: %g", i, output[i]);

  fill(first_of(size));
  OK(farandole_reduce_scatter(all, input, output, counts[rank], counts, FARANDOLE_F32, FARANDOLE_SUM, NULL, work,
                              &error));
  finish(work ? *work : NULL);
  for (int i = 0; i <= rank; ++i) CHECK(output[i] == sum_of_ranks(first_of(rank) + i), "%d: %g", i, output[i]);
}

static void check_gathered(int is_uneven) {
  for (int r = 0; r < size; ++r) {
    const int first = is_uneven ? first_of(r) : r * kCount;
    const int count = is_uneven ? r + 1 : kCount;
    for (int i = 0; i < count; ++i) CHECK(output[first + i] == value(r, i), "rank %d, %d: %g", r, i, output[first + i]);
  }
}

static void test_movements(farandole_work** work) {
  const int last = size - 1;
  fill(kCount);
  OK(farandole_broadcast(all, input, kCount, FARANDOLE_F32, last, NULL, work, &error));
  finish(work ? *work : NULL);
  for (int i = 0; i < kCount; ++i) CHECK(input[i] == value(last, i), "%d: %g", i, input[i]);

  for (int is_uneven = 0; is_uneven < 2; ++is_uneven) {
    const size_t count = is_uneven ? counts[rank] : kCount;
    const size_t* const all_counts = is_uneven ? counts : NULL;
    fill(kCount);
    OK(farandole_allgather(all, input, count, output, all_counts, FARANDOLE_F32, NULL, work, &error));
    finish(work ? *work : NULL);
    check_gathered(is_uneven);

    fill(kCount);
    OK(farandole_gather(all, input, count, rank == last ? output : NULL, all_counts, FARANDOLE_F32, last, NULL, work,
                        &error));
    finish(work ? *work : NULL);
    if (rank == last) check_gathered(is_uneven);

    fill(kCount * size);
    OK(farandole_scatter(all, rank == last ? input : NULL, output, count, all_counts, FARANDOLE_F32, last, NULL, work,
                         &error));
    finish(work ? *work : NULL);
    const int first = is_uneven ? first_of(rank) : rank * kCount;
    for (int i = 0; i < (int)count; ++i) CHECK(output[i] == value(last, first + i), "%d: %g", i, output[i]);
  }

  fill(kCount * size);
  OK(farandole_alltoall(all, input, output, kCount, NULL, NULL, FARANDOLE_F32, NULL, work, &error));
  finish(work ? *work : NULL);
  for (int r = 0; r < size; ++r) {
    for (int i = 0; i < kCount; ++i) CHECK(output[r * kCount + i] == value(r, rank * kCount + i), "%d, %d", r, i);
  }
  /* Rank r sends q + 1 elements to rank q. */
  size_t received[kMostRanks];
  for (int r = 0; r < size; ++r) received[r] = (size_t)rank + 1;
  fill(first_of(size));
  OK(farandole_alltoall(all, input, output, 0, counts, received, FARANDOLE_F32, NULL, work, &error));
  finish(work ? *work : NULL);
  for (int r = 0; r < size; ++r) {
    for (int i = 0; i <= rank; ++i) CHECK(output[r * (rank + 1) + i] == value(r, first_of(rank) + i), "%d, %d", r, i);
  }
  OK(farandole_barrier(all, work, &error));
  finish(work ? *work : NULL);
}

static void test_communicators(void) {
  char text[80];
  OK(farandole_comm_describe(all, size - 1, text, sizeof text, &error));
  CHECK(strncmp(text, "rank ", 5) == 0, "%s", text);
  OK(farandole_comm_describe(all, 0, text, 5, &error));
  CHECK(strcmp(text, "rank") == 0, "%s", text);

  farandole_comm* half = NULL;
  OK(farandole_comm_split(all, rank % 2, -rank, NULL, &half, &error));
  const int32_t half_size = (size + 1 - rank % 2) / 2;
  CHECK(farandole_comm_size(half) == half_size, "%d", (int)farandole_comm_size(half));
  CHECK(farandole_comm_rank(half) == half_size - 1 - rank / 2, "%d", (int)farandole_comm_rank(half));
  int64_t sum = rank;
  OK(farandole_allreduce(half, &sum, &sum, 1, FARANDOLE_I64, FARANDOLE_SUM, NULL, NULL, &error));
  CHECK(sum == (int64_t)half_size * (rank % 2 + half_size - 1), "%d", (int)sum);
  farandole_comm_free(half);

  farandole_comm* none = all;
  OK(farandole_comm_split(all, rank == 0 ? 0 : -1, 0, NULL, &none, &error));
  CHECK((none == NULL) == (rank != 0), "a communicator without this rank");
  farandole_comm_free(none);

  farandole_comm* again = NULL;
  OK(farandole_comm_join(NULL, NULL, &again, &error));
  CHECK(farandole_comm_size(again) == size && farandole_comm_rank(again) == rank, "another job");
  OK(farandole_barrier(again, NULL, &error));
  farandole_comm_free(again);
  const farandole_join_options other = {.struct_bytes = sizeof other, .rank = 0, .size = size + 1};
  FAILS(FARANDOLE_INVALID_ARGUMENT, "already", farandole_comm_join(&other, NULL, &again, &error));
  const farandole_join_options late = {.struct_bytes = sizeof late, .size = size, .timeout_seconds = -1};
  FAILS(FARANDOLE_INVALID_ARGUMENT, "timeout_seconds", farandole_comm_join(&late, NULL, &again, &error));
}

static void test_members(void) {
  if (size < 2) return;
  const int32_t ranks[] = {size - 1, 0}; /* the others do not call */
  if (rank == 0 || rank == size - 1) {
    farandole_comm* two = NULL;
    OK(farandole_comm_of_members(all, ranks, 2, NULL, &two, &error));
    CHECK(farandole_comm_size(two) == 2 && farandole_comm_rank(two) == (rank == 0), "%d", farandole_comm_rank(two));
    uint64_t bits = rank == 0 ? 0xf0f0 : 0xff00;
    OK(farandole_allreduce(two, &bits, &bits, 1, FARANDOLE_U64, FARANDOLE_BIT_XOR, NULL, NULL, &error));
    CHECK(bits == 0x0ff0, "%llx", (unsigned long long)bits);
    farandole_comm_free(two);
  }
  farandole_comm* none = NULL;
  const int32_t twice[] = {rank, rank};
  FAILS(FARANDOLE_INVALID_ARGUMENT, "twice", farandole_comm_of_members(all, twice, 2, NULL, &none, &error));
  const int32_t other[] = {(rank + 1) % size};
  FAILS(FARANDOLE_INVALID_ARGUMENT, "not in the list", farandole_comm_of_members(all, other, 1, NULL, &none, &error));
  FAILS(FARANDOLE_INVALID_ARGUMENT, "count is 0", farandole_comm_of_members(all, ranks, 0, NULL, &none, &error));
}

static void test_messages(void) {
  enum { kTag = 7, kLong = 5000 };
  const int next = (rank + 1) % size;
  const int previous = (rank + size - 1) % size;
  for (int count = 10; count <= kLong; count += kLong - 10) { /* buffered, and not */
    fill(count);
    farandole_work* sent = NULL;
    OK(farandole_send(all, input, (size_t)count, FARANDOLE_F32, next, kTag, NULL, &sent, &error));
    int32_t sender = -1;
    OK(farandole_recv(all, output, (size_t)count, FARANDOLE_F32, FARANDOLE_ANY_SOURCE, kTag, &sender, NULL, NULL, &error));
    CHECK(sender == previous, "from %d", (int)sender);
    for (int i = 0; i < count; ++i) CHECK(output[i] == value(previous, i), "%d: %g", i, output[i]);
    finish(sent);

    farandole_work* received = NULL;
    memset(output, 0, sizeof output);
    OK(farandole_recv(all, output, (size_t)count, FARANDOLE_F32, previous, kTag + 1, NULL, NULL, &received, &error));
    OK(farandole_send(all, input, (size_t)count, FARANDOLE_F32, next, kTag + 1, NULL, &sent, &error));
    OK(farandole_work_wait(received, &error));
    CHECK(farandole_work_source(received) == previous, "from %d", (int)farandole_work_source(received));
    for (int i = 0; i < count; ++i) CHECK(output[i] == value(previous, i), "%d: %g", i, output[i]);
    farandole_work_free(received);
    finish(sent);
  }
  farandole_work* sent = NULL;
  OK(farandole_send(all, input, 3, FARANDOLE_F32, next, kTag, NULL, &sent, &error));
  FAILS(FARANDOLE_MISMATCH, "3 f32", farandole_recv(all, output, 2, FARANDOLE_F32, previous, kTag, NULL, NULL, NULL, &error));
  finish(sent);
  FAILS(FARANDOLE_INVALID_ARGUMENT, "tag", farandole_send(all, input, 1, FARANDOLE_F32, next, -1, NULL, NULL, &error));
  FAILS(FARANDOLE_INVALID_ARGUMENT, "rank", farandole_send(all, input, 1, FARANDOLE_F32, size, 0, NULL, NULL, &error));
  const farandole_call_options in_segments = {.struct_bytes = sizeof in_segments, .segments = 2};
  FAILS(FARANDOLE_INVALID_ARGUMENT, "memory, device and stream only",
        farandole_send(all, input, 1, FARANDOLE_F32, next, 0, &in_segments, NULL, &error));
}

static farandole_message message_of(float* values, size_t count, int32_t is_receive, int32_t peer, int32_t tag) {
  const farandole_message message = {sizeof message, values, count, FARANDOLE_F32, is_receive, peer, tag};
  return message;
}

static void test_exchange(void) {
  enum { kLongest = 5000 };
  const int next = (rank + 1) % size;
  const int previous = (rank + size - 1) % size;
  fill(kLongest);
  float three[3] = {0};
  const farandole_message messages[] = {message_of(input, kLongest, 0, next, 1), message_of(input, 3, 0, next, 2),
                                        message_of(three, 3, 1, previous, 2),
                                        message_of(output, kLongest, 1, previous, 1)};
  OK(farandole_exchange(all, messages, 4, NULL, &error));
  for (int i = 0; i < kLongest; ++i) CHECK(output[i] == value(previous, i), "%d: %g", i, output[i]);
  for (int i = 0; i < 3; ++i) CHECK(three[i] == value(previous, i), "%d: %g", i, three[i]);
  OK(farandole_exchange(all, NULL, 0, NULL, &error));
  FAILS(FARANDOLE_INVALID_ARGUMENT, "messages", farandole_exchange(all, NULL, 1, NULL, &error));
  farandole_message different[2] = {messages[0], messages[1]};
  different[1].struct_bytes = sizeof(farandole_message) + sizeof(size_t);
  FAILS(FARANDOLE_INVALID_ARGUMENT, "struct_bytes of message 1", farandole_exchange(all, different, 2, NULL, &error));
  different[0].struct_bytes = 0;
  FAILS(FARANDOLE_INVALID_ARGUMENT, "farandole_message", farandole_exchange(all, different, 2, NULL, &error));
  farandole_message elsewhere = messages[0];
  elsewhere.peer = size;
  FAILS(FARANDOLE_INVALID_ARGUMENT, "exchange: rank", farandole_exchange(all, &elsewhere, 1, NULL, &error));
}

struct counted {
  int calls;
  int has_error;
};
static void count(void* context, const farandole_error* failure) {
  struct counted* counted = (struct counted*)context;
  counted->has_error = failure != NULL && *farandole_error_text(failure) != 0;
  __atomic_add_fetch(&counted->calls, 1, __ATOMIC_RELEASE);
}
static void await(struct counted* counted) {
  const struct timespec pause = {0, 1000000};
  while (__atomic_load_n(&counted->calls, __ATOMIC_ACQUIRE) == 0) nanosleep(&pause, NULL);
}

static void test_work(void) {
  fill(kCount);
  farandole_work* work = NULL;
  struct counted counted = {0};
  OK(farandole_allreduce(all, input, output, kCount, FARANDOLE_F32, FARANDOLE_SUM, NULL, &work, &error));
  OK(farandole_work_on_done(work, &counted, count, &error));
  FAILS(FARANDOLE_INVALID_ARGUMENT, "already", farandole_work_on_done(work, &counted, count, &error));
  farandole_work_free(work); /* the collective goes on */
  await(&counted);
  CHECK(counted.calls == 1 && !counted.has_error, "%d calls", counted.calls);
  for (int i = 0; i < kCount; ++i) CHECK(output[i] == sum_of_ranks(i), "%d: %g", i, output[i]);

  counted = (struct counted){0};
  OK(farandole_barrier(all, &work, &error));
  OK(farandole_work_wait(work, &error));
  OK(farandole_work_on_done(work, &counted, count, &error)); /* done already */
  CHECK(counted.calls == 1 && !counted.has_error, "%d calls", counted.calls);
  farandole_work_free(work);
}

static void test_errors(void) {
  farandole_work* work = NULL;
  FAILS(FARANDOLE_INVALID_ARGUMENT, "comm is NULL",
        farandole_allreduce(NULL, input, output, 1, FARANDOLE_F32, FARANDOLE_SUM, NULL, NULL, &error));
  FAILS(FARANDOLE_INVALID_ARGUMENT, "a buffer of 1 elements is NULL",
        farandole_allreduce(all, NULL, output, 1, FARANDOLE_F32, FARANDOLE_SUM, NULL, NULL, &error));
  FAILS(FARANDOLE_INVALID_ARGUMENT, "dtype is 99",
        farandole_allreduce(all, input, output, 1, (farandole_dtype)99, FARANDOLE_SUM, NULL, NULL, &error));
  FAILS(FARANDOLE_INVALID_ARGUMENT, "op is 5",
        farandole_allreduce(all, input, output, 1, FARANDOLE_F32, FARANDOLE_ADASUM, NULL, NULL, &error));
  FAILS(FARANDOLE_INVALID_ARGUMENT, "address space",
        farandole_allgather(all, input, SIZE_MAX / 2 + 1, output, NULL, FARANDOLE_F32, NULL, NULL,
                            &error));
  farandole_call_options options = {0};
  FAILS(FARANDOLE_INVALID_ARGUMENT, "struct_bytes",
        farandole_broadcast(all, input, 1, FARANDOLE_F32, 0, &options, NULL, &error));
  options = (farandole_call_options){.struct_bytes = sizeof options, .memory = 7};
  FAILS(FARANDOLE_INVALID_ARGUMENT, "memory is 7",
        farandole_broadcast(all, input, 1, FARANDOLE_F32, 0, &options, NULL, &error));
  options = (farandole_call_options){.struct_bytes = sizeof options, .has_stream = 1};
  FAILS(FARANDOLE_INVALID_ARGUMENT, "stream",
        farandole_broadcast(all, input, 1, FARANDOLE_F32, 0, &options, NULL, &error));
  FAILS(FARANDOLE_INVALID_ARGUMENT, "one of send_counts",
        farandole_alltoall(all, input, output, 1, counts, NULL, FARANDOLE_F32, NULL, NULL, &error));
  FAILS(FARANDOLE_INVALID_ARGUMENT, "work is NULL", farandole_work_wait(NULL, &error));
  char text[8];
  FAILS(FARANDOLE_INVALID_ARGUMENT, "expected 0 to", farandole_comm_describe(all, size, text, sizeof text, &error));
  CHECK(farandole_comm_rank(NULL) == -1 && farandole_comm_size(NULL) == -1, "ranks of nothing");
  CHECK(farandole_work_test(NULL) == 1 && farandole_work_source(NULL) == -1, "work of nothing");
  farandole_work_free(NULL);
  farandole_comm_free(NULL);
  farandole_comm_abort(NULL, "nothing");

  /* All ranks refuse, and can go on. */
  FAILS(FARANDOLE_INVALID_ARGUMENT, "root",
        farandole_broadcast(all, input, 1, FARANDOLE_F32, size, NULL, NULL, &error));
  if (size == 1) return;
  FAILS(FARANDOLE_MISMATCH, "rank 1",
        farandole_allreduce(all, input, output, rank == 1 ? 2 : 1, FARANDOLE_F32, FARANDOLE_SUM, NULL, NULL, &error));
  struct counted counted = {0};
  OK(farandole_allreduce(all, input, output, rank == 1 ? 2 : 1, FARANDOLE_F32, FARANDOLE_SUM, NULL, &work, &error));
  OK(farandole_work_on_done(work, &counted, count, &error));
  FAILS(FARANDOLE_MISMATCH, "rank 1", farandole_work_wait(work, &error));
  await(&counted);
  CHECK(counted.calls == 1 && counted.has_error, "no error");
  farandole_work_free(work);
  OK(farandole_barrier(all, NULL, &error));
}

int main(int argument_count, char** arguments) {
  join(argument_count, arguments);
  CHECK(size <= kMostRanks, "this test is for %d ranks at most", (int)kMostRanks);
  for (int r = 0; r < size; ++r) counts[r] = (size_t)r + 1;
  farandole_work* work = NULL;
  test_reductions(NULL);
  test_reductions(&work);
  test_movements(NULL);
  test_movements(&work);
  test_communicators();
  test_members();
  test_messages();
  test_exchange();
  test_work();
  test_errors();
  farandole_comm_free(all);
  if (argument_count != 4) return 0;
  /* Leaves the job and joins another one. */
  all = NULL;
  char* again[] = {arguments[0], arguments[1], arguments[2], arguments[3]};
  char path[512];
  snprintf(path, sizeof path, "%s/again", arguments[1]);
  again[1] = path;
  join(4, again);
  OK(farandole_barrier(all, NULL, &error));
  farandole_comm_free(all);
  return 0;
}
