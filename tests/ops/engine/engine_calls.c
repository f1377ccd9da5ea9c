/* SPDX-License-Identifier: Apache-2.0 */
/* usage: engine_calls   Calls every function of engine.h, on any number of ranks. */
#include "engine_client.h"

static float sum_of_ranks(void) {
  return (float)(place.size * (place.size + 1)) / 2.0f;
}

static void check_collectives(void) {
  static struct client_request r;
  for (int step = 0; step < 20; ++step) {
    prepare(&r, FARANDOLE_ALLREDUCE, "sum", 5, (float)(place.rank + 1));
    submit_and_wait(&r);
    CHECK(r.kind == -1 && r.output[4] == sum_of_ranks(), "%s %g", r.text, (double)r.output[4]);
  }
  prepare(&r, FARANDOLE_ALLGATHER, "rows", place.rank + 1, (float)place.rank);
  submit_and_wait(&r);
  CHECK(r.rows == place.size * (place.size + 1) / 2, "%ld rows", (long)r.rows);
  CHECK(r.output[r.rows - 1] == (float)(place.size - 1), "%g", (double)r.output[r.rows - 1]);

  prepare(&r, FARANDOLE_BROADCAST, "from last", 3, (float)place.rank);
  r.request.root = place.size - 1;
  submit_and_wait(&r);
  CHECK(r.output[2] == (float)(place.size - 1), "%g", (double)r.output[2]);

  prepare(&r, FARANDOLE_ALLTOALL, "exchange", 2 * place.size, (float)place.rank);
  submit_and_wait(&r);
  for (int from = 0; from < place.size; ++from) CHECK(r.output[2 * from + 1] == (float)from, "from %d", from);

  prepare(&r, FARANDOLE_REDUCE_SCATTER, "scatter", place.size + 1, 1.0f);
  submit_and_wait(&r);
  CHECK(r.rows == (place.rank == 0 ? 2 : 1) && r.output[0] == (float)place.size, "%ld rows", (long)r.rows);

  prepare(&r, FARANDOLE_BARRIER, "barrier", 0, 0.0f);
  submit_and_wait(&r);
  CHECK(r.kind == -1, "%s", r.text);
}

/* A factor that is left out is none; one that is meant makes zeros, alike on all ranks. */
static void check_factors(void) {
  static struct client_request r;
  for (int has_factors = 0; has_factors < 2; ++has_factors) {
    for (int is_postscale = 0; is_postscale < 2; ++is_postscale) {
      prepare(&r, FARANDOLE_ALLREDUCE, "factors", 3, (float)(place.rank + 1));
      *(is_postscale ? &r.request.postscale : &r.request.prescale) = 0.0;
      r.request.has_factors = has_factors;
      submit_and_wait(&r);
      const float wanted = has_factors ? 0.0f : sum_of_ranks();
      CHECK(r.kind == -1 && r.output[2] == wanted, "%s %g, expected %g", r.text, (double)r.output[2], (double)wanted);
    }
  }
}

static const farandole_dtype kBitTypes[] = {FARANDOLE_U32, FARANDOLE_I32};

static uint32_t combined_bits(farandole_reduce_op op, uint32_t left, uint32_t right) {
  if (op == FARANDOLE_BIT_AND) return left & right;
  return op == FARANDOLE_BIT_OR ? left | right : left ^ right;
}

static void refuse_bitwise(struct client_request* r, const char* text) {
  farandole_error* error = NULL;
  CHECK(farandole_submit(&r->request, &error) == 1, "%s was taken", text);
  CHECK(farandole_error_get_kind(error) == FARANDOLE_INVALID_ARGUMENT, "%s", farandole_error_text(error));
  CHECK(strstr(farandole_error_text(error), text) != NULL, "%s", farandole_error_text(error));
  farandole_error_free(error);
}

static void check_bitwise(void) {
  static struct client_request r;
  static const farandole_reduce_op kOps[] = {FARANDOLE_BIT_AND, FARANDOLE_BIT_OR, FARANDOLE_BIT_XOR};
  const uint32_t pattern = 0x9e3779b9U;
  for (int i = 0; i < 6; ++i) {
    const farandole_reduce_op op = kOps[i % 3];
    const int scatters = i % 2;
    prepare(&r, scatters ? FARANDOLE_REDUCE_SCATTER : FARANDOLE_ALLREDUCE, "bits", place.size, 0.0f);
    r.request.op = op;
    r.tensor.dtype = kBitTypes[i / 3];
    const uint32_t mine = pattern * (uint32_t)(place.rank + 1);
    for (int element = 0; element < place.size; ++element) memcpy(&r.input[element], &mine, sizeof mine);
    submit_and_wait(&r);
    uint32_t wanted = pattern, seen;
    for (int rank = 1; rank < place.size; ++rank) wanted = combined_bits(op, wanted, pattern * (uint32_t)(rank + 1));
    memcpy(&seen, &r.output[scatters ? 0 : place.size - 1], sizeof seen);
    CHECK(r.kind == -1 && seen == wanted, "operation %d: %x, expected %x %s", (int)op, seen, wanted, r.text);
  }
  prepare(&r, FARANDOLE_ALLREDUCE, "bits of floats", 1, 1.0f);
  r.request.op = FARANDOLE_BIT_AND;
  refuse_bitwise(&r, "no bit_and of f32");
  r.tensor.dtype = FARANDOLE_I32;
  r.request.postscale = 0.5;
  refuse_bitwise(&r, "bit_and takes no factors");
}

/* Tensors of callers of other versions: in an array that is stepped by the caller's own size. */
static void check_other_versions(void) {
  enum { kTensors = 3 };
  static const size_t kBytes[] = {offsetof(farandole_tensor, memory), sizeof(farandole_tensor) + 16};
  static struct client_request r[kTensors];
  for (int version = 0; version < 2; ++version) {
    const size_t bytes = kBytes[version];
    /* what the caller has behind its structures is not the library's to read, nor what it does not know */
    unsigned char* tensors = (unsigned char*)malloc(kTensors * bytes);
    memset(tensors, 0xa5, kTensors * bytes);
    for (int i = 0; i < kTensors; ++i) {
      prepare(&r[i], FARANDOLE_ALLREDUCE, "of another version", 2 + i, (float)(i * (place.rank + 1)));
      r[i].tensor.struct_bytes = bytes;
      memcpy(tensors + i * bytes, &r[i].tensor, bytes < sizeof r[i].tensor ? bytes : sizeof r[i].tensor);
    }
    r[0].request.tensors = (const farandole_tensor*)(void*)tensors;
    r[0].request.tensor_count = kTensors;
    submit(&r[0]);
    free(tensors);
    for (int i = 0; i < kTensors; ++i) {
      farandole_wait_until(&r[i].done);
      CHECK(r[i].kind == -1 && r[i].output[1 + i] == (float)i * sum_of_ranks(), "tensor %d: %s", i, r[i].text);
    }
  }
}

/* Many names at once, in another order on each rank. */
static void check_order(void) {
  enum { kNames = 64 };
  static struct client_request r[kNames];
  static char names[kNames][8];
  for (int step = 0; step < 5; ++step) {
    for (int i = 0; i < kNames; ++i) {
      const int k = (i * 5 + place.rank * 7 + step) % kNames;
      snprintf(names[k], sizeof names[k], "n%d", k);
      prepare(&r[k], FARANDOLE_ALLREDUCE, names[k], 1 + k % 9, (float)(k * (place.rank + 1)));
      submit(&r[k]);
    }
    for (int k = 0; k < kNames; ++k) {
      farandole_wait_until(&r[k].done);
      CHECK(r[k].kind == -1 && r[k].output[k % 9] == (float)k * sum_of_ranks(), "name %d: %s", k, r[k].text);
    }
  }
}

static void check_errors(void) {
  static struct client_request r;
  farandole_error* error = NULL;
  prepare(&r, FARANDOLE_ALLREDUCE, "", 1, 1.0f);
  CHECK(farandole_submit(&r.request, &error) == 1, "an empty name was taken");
  CHECK(farandole_error_get_kind(error) == FARANDOLE_INVALID_ARGUMENT, "%s", farandole_error_text(error));
  farandole_error_free(error);
  if (place.size > 1) {
    prepare(&r, FARANDOLE_ALLREDUCE, "odd", place.rank == 1 ? 2 : 1, 1.0f);
    submit_and_wait(&r);
    CHECK(r.kind == FARANDOLE_MISMATCH && strstr(r.text, "f32[2]") != NULL, "%s", r.text);
  }
  prepare(&r, FARANDOLE_ALLREDUCE, "sum", 5, 1.0f);
  submit_and_wait(&r);
  CHECK(r.output[0] == (float)place.size, "the job does not go on: %s", r.text);
}

/* Requests that rank 1 cannot make, by its own word and by the engine's, fail on the ranks that make them. */
static void check_refusals(void) {
  static struct client_request r;
  static const struct {
    int32_t root;
    farandole_memory memory;
    farandole_error_kind kind;
    const char* text;
  } kRefusals[] = {{0, FARANDOLE_HOST_MEMORY, FARANDOLE_INTERNAL, "no room"}, /* its own word */
                   {99, FARANDOLE_HOST_MEMORY, FARANDOLE_INVALID_ARGUMENT, "root 99"},
                   {0, FARANDOLE_CUDA_MEMORY, FARANDOLE_INVALID_ARGUMENT, "in device memory"}};
  if (place.size == 1) return;
  for (int i = 0; i < 3; ++i) {
    prepare(&r, FARANDOLE_BROADCAST, "refused", 1, 1.0f);
    if (place.rank != 1) {
      submit_and_wait(&r);
      CHECK(r.kind == FARANDOLE_MISMATCH && strstr(r.text, kRefusals[i].text) != NULL, "%s", r.text);
    } else if (i > 0) {
      farandole_error* error = NULL;
      r.request.root = kRefusals[i].root;
      r.tensor.memory = kRefusals[i].memory;
      CHECK(farandole_submit(&r.request, &error) == 1, "%s was taken", kRefusals[i].text);
      CHECK(farandole_error_get_kind(error) == kRefusals[i].kind, "%s", farandole_error_text(error));
      CHECK(strstr(farandole_error_text(error), kRefusals[i].text) != NULL, "%s", farandole_error_text(error));
      farandole_error_free(error);
    } else {
      farandole_refuse(&r.request, kRefusals[i].text);
    }
  }
  prepare(&r, FARANDOLE_BROADCAST, "refused", 1, (float)place.rank);
  submit_and_wait(&r);
  CHECK(r.kind == -1 && r.output[0] == 0.0f, "the name is not free again: %s", r.text);
}

static void* allocate_in_input(void* context, const int64_t* shape, int32_t dimensions) {
  struct client_request* self = (struct client_request*)context;
  return dimensions == 1 && shape[0] > 0 ? self->input + 1 : NULL;
}

/* The last rank passes memory that overlaps: partly its own input, another tensor's output, and what it allocates. */
static void check_overlaps(void) {
  static struct client_request r;
  enum { kCount = 20 };
  const int is_odd = place.rank == place.size - 1;
  for (int group = 0; group < 3; ++group) {
    prepare(&r, FARANDOLE_ALLREDUCE, "overlapping", kCount, 1.0f);
    farandole_tensor tensors[2] = {r.tensor, r.tensor};
    tensors[1].input = r.input + kCount;
    /* In groups of two: the same output twice, and an output that is the other's input. */
    tensors[1].output = is_odd ? (group == 1 ? r.output : r.input + 1) : r.output + kCount;
    if (group > 0) {
      r.request.tensors = tensors;
      r.request.tensor_count = 2;
    } else if (is_odd) {
      r.tensor.output = r.input + 1;
    }
    farandole_error* error = NULL;
    if (is_odd) {
      CHECK(farandole_submit(&r.request, &error) == 1, "overlapping memory was taken");
      CHECK(farandole_error_get_kind(error) == FARANDOLE_INVALID_ARGUMENT, "%s", farandole_error_text(error));
      CHECK(strstr(farandole_error_text(error), "overlaps the") != NULL, "%s", farandole_error_text(error));
      farandole_error_free(error);
    } else {
      submit_and_wait(&r);
      CHECK(r.kind == FARANDOLE_MISMATCH && strstr(r.text, "overlaps the") != NULL, "%s", r.text);
    }
    CHECK(r.input[0] == 1.0f && r.input[1] == 1.0f && r.output[0] == 0.0f, "data was touched");
  }
  prepare(&r, FARANDOLE_ALLGATHER, "overlapping output", 2, 1.0f);
  if (is_odd) r.tensor.allocate = allocate_in_input;
  submit_and_wait(&r);
  if (is_odd) {
    CHECK(r.kind == FARANDOLE_INVALID_ARGUMENT && strstr(r.text, "overlaps the input") != NULL, "%s", r.text);
    CHECK(r.input[1] == 1.0f, "the input was overwritten");
  } else {
    CHECK(r.kind == -1 && r.output[2 * place.size - 1] == 1.0f, "%s", r.text);
  }
  prepare(&r, FARANDOLE_ALLREDUCE, "in place", kCount, 1.0f);
  r.tensor.output = r.input;
  submit_and_wait(&r);
  CHECK(r.kind == -1 && r.input[kCount - 1] == (float)place.size, "%s", r.text);
  /* A variable that is given twice to a broadcast. */
  prepare(&r, FARANDOLE_BROADCAST, "twice", kCount, (float)(place.rank + 1));
  r.tensor.output = r.input;
  farandole_tensor twice[2] = {r.tensor, r.tensor};
  r.request.tensors = twice;
  r.request.tensor_count = 2;
  submit_and_wait(&r);
  CHECK(r.kind == -1 && r.input[kCount - 1] == 1.0f, "%s", r.text);
}

/* What is not seen of the tensors, and names that come again while earlier requests are pending. */
static void check_by_order(void) {
  enum { kRequests = 5 };
  static struct client_request r[kRequests];
  for (int i = 0; i < kRequests; ++i) {
    prepare(&r[i], FARANDOLE_ALLREDUCE, "by order", 1 + i % 2, (float)i);
    r[i].request.by_order = 1;
    r[i].request.about = i == 3 && place.rank == 1 ? "the odd one" : "the same";
    submit(&r[i]);
  }
  for (int i = kRequests - 1; i >= 0; --i) {
    farandole_wait_until(&r[i].done);
    if (i == 3 && place.size > 1) {
      CHECK(r[i].kind == FARANDOLE_MISMATCH && strstr(r[i].text, "(the odd one)") != NULL, "%s", r[i].text);
    } else {
      CHECK(r[i].kind == -1 && r[i].output[0] == (float)(i * place.size), "request %d: %s", i, r[i].text);
    }
  }
}

/* What a step has pending fails with it on all ranks, and meets nothing of the next step. */
static void check_steps(void) {
  static struct client_request late, odd;
  const uint64_t generation = farandole_generation(FARANDOLE_GLOBAL_SET);
  const int is_last = place.rank == place.size - 1;
  CHECK(generation > 0 && farandole_generation(77) == 0, "generation %lu", (unsigned long)generation);
  if (place.size > 1) {
    prepare(&late, FARANDOLE_ALLREDUCE, "late", 1, -1.0f);
    late.request.generation = generation;
    if (!is_last) submit(&late);
    prepare(&odd, FARANDOLE_ALLREDUCE, "odd in a step", is_last ? 2 : 1, 1.0f);
    odd.request.generation = generation;
    submit(&odd);
    farandole_wait_until(&odd.done);
    CHECK(odd.kind == FARANDOLE_MISMATCH, "%s", odd.text);
    if (is_last) submit(&late);
    farandole_wait_until(&late.done);
    CHECK(late.kind == FARANDOLE_MISMATCH && strstr(late.text, "a step that has failed") != NULL, "%s", late.text);
    CHECK(farandole_generation(FARANDOLE_GLOBAL_SET) == generation + 1, "it is still that of the failed step");
  }
  prepare(&late, FARANDOLE_ALLREDUCE, "late", 1, 1.0f);
  late.request.generation = farandole_generation(FARANDOLE_GLOBAL_SET);
  submit_and_wait(&late);
  CHECK(late.kind == -1 && late.output[0] == (float)place.size, "%g %s", (double)late.output[0], late.text);
  /* A caller that was made before there were steps: what follows its structure is not read. */
  prepare(&late, FARANDOLE_ALLREDUCE, "late", 1, 1.0f);
  late.request.struct_bytes = offsetof(farandole_request, generation);
  late.request.generation = ~(uint64_t)0;
  submit_and_wait(&late);
  CHECK(late.kind == -1 && late.output[0] == (float)place.size, "%g %s", (double)late.output[0], late.text);
}

static void check_sets(void) {
  static struct client_request r;
  const int32_t last = place.size - 1;
  int32_t set = -1, ranks[1] = {-1};
  farandole_error* error = NULL;
  CHECK(farandole_add_process_set(&last, 1, &set, &error) == 0, "%s", farandole_error_text(error));
  CHECK(farandole_process_set_ranks(set, ranks, 1) == 1 && ranks[0] == last, "rank %d", (int)ranks[0]);
  if (place.rank == last) {
    prepare(&r, FARANDOLE_ALLREDUCE, "alone", 1, 3.0f);
    r.request.process_set = set;
    submit_and_wait(&r);
    CHECK(r.output[0] == 3.0f, "%s", r.text);
  }
  if (set == FARANDOLE_GLOBAL_SET) return; /* one rank */
  CHECK(farandole_remove_process_set(set, &error) == 0, "%s", farandole_error_text(error));
  CHECK(farandole_process_set_ranks(set, ranks, 1) == -1, "the set is still there");
}

static void on_joined(void* context, const farandole_error* error, int32_t last_rank) {
  CHECK(error == NULL, "%s", farandole_error_text(error));
  CHECK(last_rank >= 0 && last_rank < place.size, "rank %d joined last", (int)last_rank);
  __atomic_store_n((volatile int32_t*)context, 1, __ATOMIC_RELEASE);
}

/* Rank r has r + 1 batches: a rank that has joined changes no result. */
static void check_join(void) {
  static struct client_request r;
  static volatile int32_t joined;
  for (int batch = 0; batch <= place.rank; ++batch) {
    for (farandole_reduce_op op = FARANDOLE_SUM; op <= FARANDOLE_MAX; ++op) {
      prepare(&r, FARANDOLE_ALLREDUCE, op == FARANDOLE_SUM ? "sum" : "another operation", 5, -2.0f);
      r.request.op = op;
      submit_and_wait(&r);
      float wanted = op == FARANDOLE_PRODUCT ? 1.0f : op == FARANDOLE_SUM ? 0.0f : -2.0f;
      for (int rank = batch; rank < place.size && op <= FARANDOLE_PRODUCT; ++rank) {
        wanted = op == FARANDOLE_PRODUCT ? wanted * -2.0f : wanted - 2.0f;
      }
      CHECK(r.output[0] == wanted, "operation %d: %g, expected %g %s", (int)op, (double)r.output[0], (double)wanted,
            r.text);
    }
  }
  CHECK(farandole_join(FARANDOLE_GLOBAL_SET, (void*)&joined, on_joined, NULL) == 0, "join failed");
  farandole_wait_until(&joined);
}

static void check_windows(void) {
  static struct client_request r;
  enum { kCount = 1 << 16 };
  float* window = (float*)farandole_window_allocate(kCount * sizeof(float));
  if (window == NULL) return; /* several hosts, or no shared memory */
  for (int i = 0; i < kCount; ++i) window[i] = 1.0f;
  prepare(&r, FARANDOLE_ALLREDUCE, "window", 1, 1.0f);
  r.shape[0] = kCount;
  r.tensor.input = window;
  r.tensor.output = window;
  submit_and_wait(&r);
  CHECK(r.kind == -1 && window[kCount - 1] == (float)place.size, "%s", r.text);
  CHECK(farandole_window_free(window) == 1, "it was a window");
  CHECK(farandole_window_free(&r) == 0, "it was not a window");
}

int main(void) {
  CHECK(farandole_is_initialized() == 0, "before farandole_init");
  init();
  check_collectives();
  check_factors();
  check_bitwise();
  check_other_versions();
  check_order();
  check_errors();
  check_refusals();
  check_overlaps();
  check_by_order();
  check_steps();
  check_sets();
  check_join();
  check_windows();
  farandole_counters counters = {.struct_bytes = sizeof counters};
  farandole_get_counters(&counters);
  CHECK(counters.requests > 100 && counters.buckets > 0, "%lu requests", (unsigned long)counters.requests);
  char* text = farandole_describe();
  CHECK(strstr(text, "\"version\"") != NULL, "%s", text);
  CHECK(strstr(text, "\"backend\":\"") != NULL, "%s", text);
  farandole_text_free(text);
  farandole_error* error = NULL;
  CHECK(farandole_shutdown(&error) == 0, "%s", farandole_error_text(error));
  CHECK(farandole_is_initialized() == 0, "after farandole_shutdown");
  return 0;
}
