/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks add up a vector, while each of them could compute something else. */
#include <stdio.h>
#include <stdlib.h>

#include "farandole/collectives.h"

enum { kCount = 4 };

static farandole_comm* ranks;

static int fail(const char* what, farandole_error* error) {
  fprintf(stderr, "%s: %s: %s\n", what, farandole_error_kind_name(farandole_error_get_kind(error)),
          farandole_error_text(error));
  farandole_error_free(error);
  farandole_comm_abort(ranks, what); /* otherwise the other ranks would wait for this rank */
  return EXIT_FAILURE;
}

int main(void) {
  farandole_error* error = NULL;
  if (farandole_comm_join(NULL, NULL, &ranks, &error) != 0) return fail("farandole_comm_join", error);
  const int rank = (int)farandole_comm_rank(ranks);
  const int size = (int)farandole_comm_size(ranks);

  float values[kCount];
  for (int i = 0; i < kCount; ++i) values[i] = (float)(rank + i);
  farandole_work* work = NULL;
  if (farandole_allreduce(ranks, values, values, kCount, FARANDOLE_F32, FARANDOLE_SUM, NULL, &work, &error) != 0) {
    return fail("farandole_allreduce", error);
  }
  /* Compute something else here; `values` belongs to the allreduce until it is done. */
  if (farandole_work_wait(work, &error) != 0) return fail("farandole_work_wait", error);
  farandole_work_free(work);

  printf("rank %d of %d: %g, %g, %g, %g\n", rank, size, values[0], values[1], values[2], values[3]);
  farandole_comm_free(ranks);
  return values[1] == (float)(size * (size + 1)) / 2.0f ? EXIT_SUCCESS : EXIT_FAILURE;
}
