/* SPDX-License-Identifier: Apache-2.0 */
/* usage: engine_idle [SECONDS]   Checks that an idle job sends no message, runs no negotiation, and uses less than 0.5
 * % of a core per rank, and that the job still works afterwards. */
#include <sys/resource.h>
#include <time.h>

#include "engine_client.h"

static double cpu_seconds(void) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

static farandole_counters counters_now(void) {
  farandole_counters counters = {.struct_bytes = sizeof counters};
  farandole_get_counters(&counters);
  return counters;
}

int main(int argc, char** argv) {
  const int seconds = argc > 1 ? atoi(argv[1]) : 3;
  static struct client_request r;
  init();
  for (int step = 0; step < 10; ++step) {
    prepare(&r, FARANDOLE_ALLREDUCE, "sum", 4, 1.0f);
    submit_and_wait(&r);
  }
  /* Being idle is what is tested; the first moment is left out, in which others still finish. */
  const struct timespec settle = {.tv_nsec = 200 * 1000 * 1000}, idle = {.tv_sec = seconds};
  nanosleep(&settle, NULL);
  const farandole_counters before = counters_now();
  const double cpu_before = cpu_seconds();
  nanosleep(&idle, NULL);
  const double used = (cpu_seconds() - cpu_before) / seconds;
  const farandole_counters after = counters_now();
  CHECK(after.negotiations == before.negotiations && after.sent_bytes == before.sent_bytes,
        "%lu negotiations, %lu bytes", (unsigned long)(after.negotiations - before.negotiations),
        (unsigned long)(after.sent_bytes - before.sent_bytes));
  CHECK(used < 0.005, "%.2f %% of a core", 100 * used);
  prepare(&r, FARANDOLE_ALLREDUCE, "sum", 4, 1.0f);
  submit_and_wait(&r);
  CHECK(r.output[3] == (float)place.size, "%s", r.text);
  farandole_shutdown(NULL);
  printf("rank %d: idle for %d s with %.3f %% of a core\n", place.rank, seconds, 100 * used);
  return 0;
}
