/* SPDX-License-Identifier: Apache-2.0 */
/* Each rank submits two named tensors, in an order that differs between ranks, and waits for their sums. */
#include <stdio.h>
#include <stdlib.h>

#include "farandole/engine.h"

enum { kCount = 4 };

struct gradient {
  const char* name;
  float values[kCount]; /* replaced by the sums */
  int failed;
  volatile int32_t done;
};

static void fail(const char* what, farandole_error* error) {
  fprintf(stderr, "%s: %s: %s\n", what, farandole_error_kind_name(farandole_error_get_kind(error)),
          farandole_error_text(error));
  farandole_error_free(error);
  farandole_abort(what); /* otherwise the other ranks would wait for this rank */
  exit(EXIT_FAILURE);
}

/* May run on any thread. `result` and its error are valid until this function returns. */
static void on_done(void* context, const farandole_result* result) {
  struct gradient* gradient = context;
  if (result->error != NULL) {
    fprintf(stderr, "%s: %s\n", gradient->name, farandole_error_text(result->error));
    gradient->failed = 1;
  }
  __atomic_store_n(&gradient->done, 1, __ATOMIC_RELEASE);
}

static void submit(struct gradient* gradient) {
  const int64_t shape[] = {kCount};
  const farandole_tensor tensor = {
      .struct_bytes = sizeof tensor,
      .dtype = FARANDOLE_F32,
      .dimensions = 1,
      .shape = shape,
      .input = gradient->values,
      .output = gradient->values,
      .context = gradient,
      .done = on_done,
  };
  const farandole_request request = {
      .struct_bytes = sizeof request,
      .name = gradient->name,
      .collective = FARANDOLE_ALLREDUCE,
      .op = FARANDOLE_SUM,
      .tensors = &tensor,
      .tensor_count = 1,
  };
  farandole_error* error = NULL;
  if (farandole_submit(&request, &error) != 0) fail("farandole_submit", error);
}

int main(void) {
  farandole_error* error = NULL;
  if (farandole_init(NULL, &error) != 0) fail("farandole_init", error);
  farandole_place place = {.struct_bytes = sizeof place};
  farandole_get_place(&place);

  struct gradient gradients[] = {{.name = "weights"}, {.name = "bias"}};
  for (int i = 0; i < kCount; ++i) {
    gradients[0].values[i] = (float)(place.rank + 1);
    gradients[1].values[i] = (float)i;
  }
  const int first = place.rank % 2; /* the engine agrees on one order */
  submit(&gradients[first]);
  submit(&gradients[1 - first]);
  for (int i = 0; i < 2; ++i) {
    farandole_wait_until(&gradients[i].done);
    if (gradients[i].failed) return EXIT_FAILURE; /* on_done has printed the error */
  }

  printf("rank %d of %d: weights %g, bias %g\n", (int)place.rank, (int)place.size, gradients[0].values[0],
         gradients[1].values[kCount - 1]);
  const float expected = (float)(place.size * (place.size + 1)) / 2.0f;
  const int right = gradients[0].values[0] == expected && gradients[1].values[1] == (float)place.size;
  if (farandole_shutdown(&error) != 0) fail("farandole_shutdown", error);
  return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
