/* SPDX-License-Identifier: Apache-2.0 */
/* usage: comm_fuzz [SEED [CALLS]]   Tests what collectives.h says about bad input, in a job of one rank: makes valid calls
 * and changes one argument or a field of the options at random. A call that the header calls invalid fails with
 * INVALID_ARGUMENT or UNSUPPORTED and a text; a valid call succeeds. All memory is exactly as large as the call says, so
 * that the address sanitizer detects each access beyond its end. */
#include <stdint.h>

#include "comm_client.h"
#include "fuzz_numbers.h"

enum { kMostElements = 40, kTail = 24 };
static const int32_t kOdd[] = {INT32_MIN, -1, 99, 1 << 20, INT32_MAX};
static const size_t kSizes[] = {0, 1, 7, 4097, SIZE_MAX, (size_t)1 << 40};

static const size_t kElementBytes[] = {1, 1, 1, 2, 2, 4, 8, 2, 2, 4, 8, 4, 8};

/* Arguments of any call. */
struct trial {
  int function;
  farandole_dtype dtype;
  farandole_reduce_op op;
  int32_t root;
  size_t count;
  void *input, *output;
  size_t counts[1];
  const size_t* all_counts;
  struct {
    farandole_call_options known;
    char tail[kTail];
  } options;
  int has_options, is_async, must_fail;
};

static void make_valid(struct trial* trial) {
  memset(trial, 0, sizeof *trial);
  trial->function = below(9);
  trial->dtype = (farandole_dtype)below(FARANDOLE_U64 + 1);
  trial->op = (farandole_reduce_op)below(FARANDOLE_MAX + 1) /* defined for every type */;
  trial->count = (size_t)below(kMostElements);
  const size_t bytes = trial->count * kElementBytes[trial->dtype];
  trial->input = bytes == 0 ? NULL : calloc(1, bytes);
  trial->output = bytes == 0 ? NULL : calloc(1, bytes);
  trial->counts[0] = trial->count;
  if (below(2) == 0) trial->all_counts = trial->counts;
  trial->options.known.struct_bytes = sizeof trial->options.known;
  trial->has_options = below(2);
  trial->is_async = below(2);
}

/* Makes one argument wrong, or of another version of the header. */
static void change(struct trial* trial) {
  farandole_call_options* options = &trial->options.known;
  const int is_reduction = trial->function == 0 || trial->function == 2 || trial->function == 4;
  const int has_root = trial->function == 1 || trial->function == 2 || trial->function == 5 || trial->function == 6;
  const int is_barrier = trial->function == 8;
  if (is_barrier) return;
  switch (below(9)) {
    case 0:
      trial->dtype = (farandole_dtype)ONE_OF(kOdd);
      trial->must_fail = 1;
      return;
    case 1:
      if (!is_reduction) return;
      trial->op = (farandole_reduce_op)ONE_OF(kOdd);
      trial->must_fail = 1;
      return;
    case 2:
      if (!has_root) return;
      trial->root = ONE_OF(kOdd);
      trial->must_fail = 1;
      return;
    case 3:
      if (trial->input == NULL || trial->function == 1) return;
      free(trial->input);
      trial->input = NULL;
      trial->must_fail = 1;
      return;
    case 4: /* newer, older, or none */
      trial->has_options = 1;
      options->struct_bytes = below(2) == 0 ? sizeof trial->options : offsetof(farandole_call_options, device);
      return;
    case 5:
      trial->has_options = 1;
      options->struct_bytes = ONE_OF(kSizes);
      trial->must_fail = 1;
      return;
    case 6:
      trial->has_options = 1;
      options->memory = ONE_OF(kOdd);
      trial->must_fail = 1;
      return;
    case 7:
      trial->has_options = 1;
      options->algorithm = "none of this name";
      trial->must_fail = 1;
      return;
    default:
      trial->has_options = 1;
      options->has_stream = 1; /* on host memory */
      trial->must_fail = 1;
  }
}

static int call(const struct trial* t, farandole_work** work) {
  const farandole_call_options* const options = t->has_options ? &t->options.known : NULL;
  switch (t->function) {
    case 0:
      return farandole_allreduce(all, t->input, t->output, t->count, t->dtype, t->op, options, work, &error);
    case 1:
      return farandole_broadcast(all, t->output, t->count, t->dtype, t->root, options, work, &error);
    case 2:
      return farandole_reduce(all, t->input, t->output, t->count, t->dtype, t->op, t->root, options, work, &error);
    case 3:
      return farandole_allgather(all, t->input, t->count, t->output, t->all_counts, t->dtype, options, work, &error);
    case 4:
      return farandole_reduce_scatter(all, t->input, t->output, t->count, t->all_counts, t->dtype, t->op, options, work,
                                      &error);
    case 5:
      return farandole_gather(all, t->input, t->count, t->output, t->all_counts, t->dtype, t->root, options, work,
                              &error);
    case 6:
      return farandole_scatter(all, t->input, t->output, t->count, t->all_counts, t->dtype, t->root, options, work,
                               &error);
    case 7:
      return farandole_alltoall(all, t->input, t->output, t->count, t->all_counts, t->all_counts, t->dtype, options,
                                work, &error);
    default:
      return farandole_barrier(all, work, &error);
  }
}

int main(int argument_count, char** arguments) {
  const uint64_t seed = argument_count > 1 ? strtoull(arguments[1], NULL, 0) : (uint64_t)time(NULL);
  const int calls = argument_count > 2 ? atoi(arguments[2]) : 20000;
  printf("seed %llu\n", (unsigned long long)seed);
  state = seed;
  join(1, arguments);
  int refused = 0;
  for (int i = 0; i < calls; ++i) {
    struct trial trial;
    make_valid(&trial);
    if (below(2) == 0) change(&trial);
    farandole_work* work = NULL;
    int failed = call(&trial, trial.is_async ? &work : NULL);
    if (failed == 0 && work != NULL) failed = farandole_work_wait(work, &error);
    CHECK(failed == trial.must_fail, "call %d, function %d: %s", i, trial.function, farandole_error_text(error));
    CHECK((failed != 0) == (error != NULL), "call %d: an error object without an error, or none", i);
    if (failed != 0) {
      const farandole_error_kind kind = farandole_error_get_kind(error);
      CHECK(kind == FARANDOLE_INVALID_ARGUMENT || kind == FARANDOLE_UNSUPPORTED, "%s", farandole_error_text(error));
      CHECK(*farandole_error_text(error) != 0, "an error without a text");
      ++refused;
    }
    farandole_error_free(error);
    error = NULL;
    farandole_work_free(work);
    free(trial.input);
    free(trial.output);
  }
  CHECK(refused > calls / 20, "only %d of %d calls were refused", refused, calls);
  farandole_comm_free(all);
  return 0;
}
