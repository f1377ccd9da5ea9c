/* SPDX-License-Identifier: Apache-2.0 */
/* usage: engine_fuzz [SEED [REQUESTS]]   Tests what engine.h says about bad input: makes valid requests in a job of one
 * rank, and changes fields, sizes of structures and pointers at random. The engine must refuse a request with
 * INVALID_ARGUMENT if the header says so, and otherwise complete it. All memory is exactly as large as the request
 * says, so that the address sanitizer detects each access beyond its end. */
#include <math.h>
#include <stdint.h>

#include "engine_client.h"
#include "fuzz_numbers.h"

enum { kMostTensors = 4, kMostDimensions = 3, kTail = 24 };

/* One request with everything that it points to. */
struct trial {
  farandole_request request;
  farandole_tensor tensors[kMostTensors];
  int64_t shapes[kMostTensors][kMostDimensions];
  int64_t splits[1];
  size_t request_bytes, tensor_bytes; /* of the caller's version; 0: `struct_bytes` is that of none */
  size_t odd_tensor_bytes;            /* of the last tensor, if it is another */
  int has_no_tensors;
  void* memory[2 * kMostTensors]; /* inputs and outputs */
  int done[kMostTensors];
  int failed;
};

struct slot {
  struct trial* trial;
  int index;
};
static struct slot slots[kMostTensors];

static void count_done(void* context, const farandole_result* result) {
  const struct slot* slot = (const struct slot*)context;
  CHECK(result->struct_bytes == sizeof *result, "%zu", result->struct_bytes);
  if (result->error != NULL) {
    __atomic_store_n(&slot->trial->failed, 1, __ATOMIC_RELAXED);
    CHECK(*farandole_error_text(result->error) != '\0', "an error without a text");
  }
  __atomic_add_fetch(&slot->trial->done[slot->index], 1, __ATOMIC_RELEASE);
}

static void* allocate_exactly(void* context, const int64_t* shape, int32_t dimensions) {
  const struct slot* slot = (const struct slot*)context;
  size_t bytes = 8;
  for (int i = 0; i < dimensions; ++i) bytes *= (size_t)shape[i];
  void** memory = &slot->trial->memory[2 * slot->index + 1];
  CHECK(*memory == NULL, "allocate was called twice");
  return *memory = malloc(bytes == 0 ? 1 : bytes);
}

static int is_floating_point(farandole_dtype dtype) {
  return dtype >= FARANDOLE_F16 && dtype <= FARANDOLE_F64;
}

/* A request that works. */
static void make_valid(struct trial* trial) {
  memset(trial, 0, sizeof *trial);
  farandole_request* request = &trial->request;
  request->collective = (farandole_collective)below(FARANDOLE_BARRIER + 1);
  request->name = below(8) == 0 ? "\xff\xfe no UTF-8" : "fuzz";
  request->op = (farandole_reduce_op)below(FARANDOLE_AVERAGE + 1);
  if (below(4) == 0) request->op = (farandole_reduce_op)(FARANDOLE_BIT_AND + below(3));
  request->tensor_count = 1 + below(kMostTensors);
  request->caller_waits = below(3);
  request->by_order = below(2);
  request->about = below(2) == 0 ? NULL : "for people";
  trial->request_bytes = sizeof *request;
  trial->tensor_bytes = sizeof trial->tensors[0];
  for (int i = 0; i < request->tensor_count; ++i) {
    farandole_tensor* tensor = &trial->tensors[i];
    slots[i] = (struct slot){trial, i};
    tensor->context = &slots[i];
    tensor->done = count_done;
    tensor->allocate = allocate_exactly;
    if (request->collective == FARANDOLE_BARRIER) continue;
    tensor->dtype = (farandole_dtype)(FARANDOLE_U8 + below(FARANDOLE_U64));
    if (request->op >= FARANDOLE_BIT_AND && is_floating_point(tensor->dtype)) tensor->dtype = FARANDOLE_U32;
    tensor->dimensions = 1 + below(kMostDimensions);
    tensor->shape = trial->shapes[i];
    size_t bytes = 8; /* of an element, at most */
    for (int d = 0; d < tensor->dimensions; ++d) bytes *= (size_t)(trial->shapes[i][d] = below(4));
    tensor->input = bytes == 0 ? NULL : (trial->memory[2 * i] = calloc(1, bytes));
    const int keeps_shape = request->collective == FARANDOLE_ALLREDUCE || request->collective == FARANDOLE_BROADCAST;
    if (keeps_shape && bytes > 0) tensor->output = trial->memory[2 * i + 1] = malloc(bytes);
  }
}

static const int64_t kHuge[] = {INT64_MAX, INT64_MIN, (int64_t)1 << 62, (int64_t)1 << 48, -1};
static const int32_t kOdd[] = {INT32_MIN, -1, 256, 1 << 20, INT32_MAX};
static const size_t kSizes[] = {0, 1, 7, 4097, SIZE_MAX, (size_t)1 << 40};
/* A tensor of the first version. */
static const size_t kOldestTensor = offsetof(farandole_tensor, memory);

static char long_text[(1 << 20) + 2];

static void change_size(struct trial* trial, farandole_tensor* tensor) {
  farandole_request* request = &trial->request;
  switch (below(7)) {
    case 0: /* a caller that was made before there were steps */
      trial->request_bytes = offsetof(farandole_request, generation);
      request->generation = UINT64_MAX;
      request->about = long_text;
      break;
    case 1: /* a newer caller */
      trial->request_bytes = sizeof *request + kTail;
      break;
    case 2:
      trial->tensor_bytes = sizeof *tensor + kTail;
      break;
    case 3: /* an older one, or none: without a field that every version has */
      trial->tensor_bytes =
          below(3) == 0 ? kOldestTensor : 8 + (size_t)below((int)offsetof(farandole_tensor, done) - 8);
      break;
    case 4:
      trial->request_bytes = 8 + (size_t)below((int)offsetof(farandole_request, tensors) - 8);
      break;
    case 5:
      request->struct_bytes = ONE_OF(kSizes);
      trial->request_bytes = 0;
      break;
    default:
      tensor->struct_bytes = trial->tensors[0].struct_bytes = ONE_OF(kSizes);
      trial->tensor_bytes = 0;
  }
}

static void change_request(struct trial* trial) {
  farandole_request* request = &trial->request;
  switch (below(12)) {
    case 0:
      request->name = below(2) == 0 ? NULL : "";
      break;
    case 1:
      *(below(2) == 0 ? &request->name : &request->about) = long_text;
      break;
    case 2:
      trial->has_no_tensors = 1;
      break;
    case 3:
      request->tensor_count = below(2) == 0 ? 0 : INT32_MIN + below(1000);
      break;
    case 4:
      *(int32_t*)&request->collective = below(2) == 0 ? 6 : ONE_OF(kOdd);
      break;
    case 5:
      *(int32_t*)&request->op = below(2) == 0 ? 9 : ONE_OF(kOdd);
      break;
    case 6:
      request->root = below(2) == 0 ? 1 : ONE_OF(kOdd);
      break;
    case 7:
      request->process_set = below(2) == 0 ? 1 : ONE_OF(kOdd);
      break;
    case 8:
      request->caller_waits = below(2) == 0 ? 3 : ONE_OF(kOdd);
      break;
    case 9:
      *(below(2) == 0 ? &request->prescale : &request->postscale) = NAN;
      break;
    case 10:
      request->has_factors = below(2) == 0 ? 1 : ONE_OF(kOdd);
      request->prescale = below(2) == 0 ? 0.0 : 0.5;
      break;
    default:
      request->by_order = ONE_OF(kOdd);
  }
}

static void change_tensor(struct trial* trial, int number) {
  farandole_tensor* tensor = &trial->tensors[number];
  switch (below(9)) {
    case 0:
      tensor->done = NULL;
      break;
    case 1:
      *(int32_t*)&tensor->dtype = below(2) == 0 ? 13 : ONE_OF(kOdd);
      break;
    case 2:
      tensor->dimensions = ONE_OF(kOdd);
      break;
    case 3:
      tensor->shape = NULL;
      break;
    case 4:
      trial->shapes[number][below(kMostDimensions)] = ONE_OF(kHuge);
      break;
    case 5:
      tensor->input = NULL;
      break;
    case 6:
      trial->odd_tensor_bytes = sizeof *tensor + 8;
      break;
    case 7:
      *(int32_t*)&tensor->memory = below(2) == 0 ? FARANDOLE_CUDA_MEMORY : ONE_OF(kOdd);
      break;
    default:
      trial->splits[0] = below(2) == 0 ? ONE_OF(kHuge) : trial->shapes[number][0] + below(2);
      tensor->splits = below(3) == 0 ? NULL : trial->splits;
      tensor->splits_count = below(2) == 0 ? 1 : ONE_OF(kOdd);
  }
}

/* What the header says of a tensor. */
static int is_bad_tensor(const farandole_tensor* tensor, farandole_collective collective) {
  int is_empty = 0;
  if (tensor->done == NULL || (int)tensor->dtype < 0 || (int)tensor->dtype > FARANDOLE_U64) return 1;
  if (tensor->dimensions < 0 || tensor->dimensions > 255) return 1;
  if (tensor->dimensions > 0 && tensor->shape == NULL) return 1;
  for (int d = 0; d < tensor->dimensions; ++d) {
    if (tensor->shape[d] < 0 || tensor->shape[d] > (int64_t)1 << 47) return 1;
    is_empty |= tensor->shape[d] == 0;
  }
  if (collective != FARANDOLE_BARRIER && !is_empty && tensor->input == NULL) return 1;
  if (collective != FARANDOLE_ALLTOALL) return 0;
  if (tensor->splits == NULL) return tensor->splits_count != 0;
  return tensor->splits_count != 1 || tensor->splits[0] != tensor->shape[0];
}

static int has_factor(double factor, const farandole_request* request) {
  return factor != 1.0 && (factor != 0.0 || request->has_factors != 0);
}

/* What the header says of a request of one rank; `count` tensors are there. */
static int is_bad(const struct trial* trial, int count) {
  farandole_request seen = {0}; /* what the caller's version has not is 0 */
  if (trial->request_bytes == 0 || trial->request_bytes % 8 != 0 || trial->tensor_bytes < kOldestTensor) return 1;
  memcpy(&seen, &trial->request, trial->request_bytes < sizeof seen ? trial->request_bytes : sizeof seen);
  const int reduces = seen.collective == FARANDOLE_ALLREDUCE || seen.collective == FARANDOLE_REDUCE_SCATTER;
  if (seen.name == NULL || *seen.name == '\0' || seen.name == long_text || seen.about == long_text) return 1;
  if ((int)seen.collective < 0 || (int)seen.collective > FARANDOLE_BARRIER) return 1;
  if (reduces && ((int)seen.op < 0 || (int)seen.op > FARANDOLE_BIT_XOR)) return 1;
  if (reduces && (isnan(seen.prescale) || isnan(seen.postscale))) return 1;
  if (reduces && seen.op >= FARANDOLE_BIT_AND &&
      (has_factor(seen.prescale, &seen) || has_factor(seen.postscale, &seen)))
    return 1;
  if (seen.collective == FARANDOLE_BROADCAST && seen.root != 0) return 1;
  if (seen.process_set != FARANDOLE_GLOBAL_SET || seen.generation > farandole_generation(0)) return 1;
  if (seen.caller_waits < 0 || seen.caller_waits > FARANDOLE_PROGRAM_WAITS) return 1;
  if (seen.tensors == NULL || seen.tensor_count < 1) return 1;
  if (count > 1 && trial->odd_tensor_bytes != 0) return 1;
  for (int i = 0; i < count; ++i) {
    if (is_bad_tensor(&trial->tensors[i], seen.collective)) return 1;
    if (trial->tensor_bytes > kOldestTensor && trial->tensors[i].memory != FARANDOLE_HOST_MEMORY) return 1;
  }
  return 0;
}

/* The structures as the caller's version has them, in memory of just that size, with what this version does not know.
 */
static farandole_request* callers_request(const struct trial* trial) {
  const size_t known = sizeof trial->request, bytes = trial->request_bytes == 0 ? known : trial->request_bytes;
  unsigned char* copy = (unsigned char*)malloc(bytes);
  memset(copy, 0xa5, bytes);
  memcpy(copy, &trial->request, bytes < known ? bytes : known);
  return (farandole_request*)(void*)copy;
}

static farandole_tensor* callers_tensors(struct trial* trial, int count) {
  const size_t known = sizeof trial->tensors[0];
  const size_t stride = trial->tensor_bytes == 0 ? known : trial->tensor_bytes;
  unsigned char* array = (unsigned char*)malloc((size_t)count * stride);
  memset(array, 0xa5, (size_t)count * stride);
  for (int i = 0; i < count; ++i) {
    if (trial->tensor_bytes != 0) trial->tensors[i].struct_bytes = stride;
    if (i > 0 && i == count - 1 && trial->odd_tensor_bytes != 0) {
      trial->tensors[i].struct_bytes = trial->odd_tensor_bytes;
    }
    memcpy(array + (size_t)i * stride, &trial->tensors[i], stride < known ? stride : known);
  }
  return (farandole_tensor*)(void*)array;
}

static void run(int number) {
  static struct trial trial;
  make_valid(&trial);
  const int count = trial.request.tensor_count;
  const int changes = below(4);
  for (int i = 0; i < changes; ++i) {
    const int tensor = below(count), which = below(3);
    if (which == 0) change_size(&trial, &trial.tensors[tensor]);
    if (which == 1) change_request(&trial);
    if (which == 2) change_tensor(&trial, tensor);
  }
  farandole_tensor* tensors = callers_tensors(&trial, count);
  trial.request.tensors = trial.has_no_tensors ? NULL : tensors;
  if (trial.request_bytes != 0) trial.request.struct_bytes = trial.request_bytes;
  farandole_request* request = callers_request(&trial);
  const int is_refused = is_bad(&trial, count);

  farandole_error* error = NULL;
  const int failed = farandole_submit(request, below(16) == 0 ? NULL : &error);
  if (failed && error != NULL) {
    CHECK(farandole_error_get_kind(error) == FARANDOLE_INVALID_ARGUMENT, "request %d: %s", number,
          farandole_error_text(error));
    CHECK(strlen(farandole_error_text(error)) > 10, "request %d: %s", number, farandole_error_text(error));
  }
  CHECK(failed == is_refused, "request %d is %s: %s", number, is_refused ? "bad, and was taken" : "good",
        farandole_error_text(error));
  farandole_error_free(error);
  if (failed && below(2) == 0) farandole_refuse(request, below(2) == 0 ? NULL : "no \xff room");
  free(request);
  free(tensors); /* the shapes too are the caller's again */
  for (int i = 0; i < count && !failed; ++i) {
    while (__atomic_load_n(&trial.done[i], __ATOMIC_ACQUIRE) == 0) farandole_wait_until((int32_t*)&trial.done[i]);
  }
  CHECK(!trial.failed, "request %d came to nothing", number);
  for (int i = 0; i < kMostTensors; ++i) {
    CHECK(trial.done[i] == (i < count && !failed), "request %d: tensor %d was done %d times", number, i, trial.done[i]);
  }
  for (int i = 0; i < 2 * kMostTensors; ++i) free(trial.memory[i]);
}

/* By its address: the call in the arguments may come after an argument `error`. */
static void expect_refused(int failed, farandole_error** came, const char* what) {
  farandole_error* const error = *came;
  CHECK(failed == 1 && error != NULL, "%s was taken", what);
  CHECK(farandole_error_get_kind(error) == FARANDOLE_INVALID_ARGUMENT, "%s: %s", what, farandole_error_text(error));
  farandole_error_free(error);
}

/* Every function with null pointers and absurd numbers, with and without an engine. */
static void check_functions(void) {
  farandole_error* error = NULL;
  int32_t set = 0, rank = 0;
  const farandole_init_options no_size = {.struct_bytes = 0, .expected_size = 1};
  const farandole_init_options negative = {.struct_bytes = sizeof negative, .expected_size = -1};
  expect_refused(farandole_init(&no_size, &error), &error, "options without their size");
  expect_refused(farandole_init(&negative, &error), &error, "a negative expected_size");
  expect_refused(farandole_submit(NULL, &error), &error, "no request");
  CHECK(farandole_submit(NULL, NULL) == 1, "no request was taken");
  expect_refused(farandole_add_process_set(NULL, 1, &set, &error), &error, "no ranks");
  expect_refused(farandole_add_process_set(&rank, 1, NULL, &error), &error, "no set");
  for (int i = 0; i < (int)(sizeof kOdd / sizeof kOdd[0]); ++i) {
    expect_refused(farandole_add_process_set(&rank, kOdd[i], &set, &error), &error, "a number of ranks");
    expect_refused(farandole_remove_process_set(kOdd[i], &error), &error, "a set that there is not");
    expect_refused(farandole_join(kOdd[i], NULL, NULL, &error), &error, "a join of a set that there is not");
    CHECK(farandole_process_set_ranks(kOdd[i], NULL, kOdd[i]) == -1, "there is a set %d", kOdd[i]);
    CHECK(farandole_process_sets(NULL, kOdd[i]) == farandole_is_initialized(), "sets");
    CHECK(farandole_generation(kOdd[i]) == 0, "generation of a set that there is not");
    CHECK(strcmp(farandole_error_kind_name((farandole_error_kind)kOdd[i]), "unknown") == 0, "kind");
    farandole_log(kOdd[i], NULL);
  }
  expect_refused(farandole_join(FARANDOLE_GLOBAL_SET, NULL, NULL, &error), &error, "a join that calls nobody");
  expect_refused(farandole_start_timeline(NULL, 0, &error), &error, "a timeline without a path");
  CHECK(farandole_error_get_kind(NULL) == FARANDOLE_INTERNAL && *farandole_error_text(NULL) == '\0', "no error");
  farandole_error_free(NULL);
  farandole_text_free(NULL);
  farandole_refuse(NULL, NULL);
  farandole_wait_until(NULL);
  farandole_get_place(NULL);
  farandole_get_counters(NULL);
  CHECK(farandole_window_allocate(0) == NULL && farandole_window_allocate(SIZE_MAX) == NULL, "a window");
  CHECK(farandole_window_free(NULL) == 0, "no window");
}

static void fill(unsigned char* filled, size_t bytes, size_t struct_bytes, int is_place) {
  memset(filled, 0xa5, bytes);
  memcpy(filled, &struct_bytes, sizeof struct_bytes);
  is_place ? farandole_get_place((farandole_place*)(void*)filled)
           : farandole_get_counters((farandole_counters*)(void*)filled);
  CHECK(memcmp(filled, &struct_bytes, sizeof struct_bytes) == 0, "the size has changed");
}

/* What the library fills, in memory of just the caller's size; nothing where the size is no caller's. */
static void check_filled(void) {
  for (size_t bytes = sizeof(size_t); bytes <= sizeof(farandole_counters) + kTail; ++bytes) {
    unsigned char* filled = (unsigned char*)malloc(bytes);
    for (int is_place = 0; is_place < 2; ++is_place) {
      const size_t known = is_place ? sizeof(farandole_place) : sizeof(farandole_counters);
      const int is_callers = bytes % (is_place ? _Alignof(farandole_place) : _Alignof(farandole_counters)) == 0;
      fill(filled, bytes, bytes, is_place);
      for (size_t at = is_callers ? known : sizeof bytes; at < bytes; ++at) {
        CHECK(filled[at] == 0xa5, "byte %zu of %zu was written", at, bytes);
      }
      if (is_place && is_callers && bytes >= offsetof(farandole_place, local_rank)) {
        CHECK(memcmp(filled + offsetof(farandole_place, size), &place.size, 4) == 0, "the size of the job");
      }
      fill(filled, bytes, SIZE_MAX - 7, is_place);
      for (size_t at = sizeof bytes; at < bytes; ++at) CHECK(filled[at] == 0xa5, "byte %zu of no size was written", at);
    }
    free(filled);
  }
  size_t none = 0;
  farandole_get_place((farandole_place*)(void*)&none);
  farandole_get_counters((farandole_counters*)(void*)&none);
  CHECK(none == 0, "a structure without a size was filled");
}

int main(int argc, char** argv) {
  const unsigned long long seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
  const int requests = argc > 2 ? atoi(argv[2]) : 8000;
  printf("engine_fuzz %llu %d\n", seed, requests);
  fflush(stdout);
  state = seed;
  memset(long_text, 'x', sizeof long_text - 1);
  check_functions();
  farandole_abort(NULL);
  init();
  CHECK(place.size == 1, "this test is for one rank, not %d", place.size);
  check_functions();
  check_filled();
  for (int i = 0; i < requests; ++i) run(i);
  static struct client_request after;
  prepare(&after, FARANDOLE_ALLREDUCE, "fuzz", 2, 3.0f);
  submit_and_wait(&after);
  CHECK(after.kind == -1 && after.output[1] == 3.0f, "the engine does not go on: %s", after.text);
  farandole_error* error = NULL;
  CHECK(farandole_shutdown(&error) == 0, "%s", farandole_error_text(error));
  check_functions();
  return 0;
}
