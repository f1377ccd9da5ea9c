/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the tests of farandole/collectives.h in C: joining, and checks that name the rank. */
#ifndef FARANDOLE_TESTS_COMM_CLIENT_H
#define FARANDOLE_TESTS_COMM_CLIENT_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "farandole/collectives.h"

static farandole_comm* all;
static int rank, size;

#define CHECK(condition, ...)                                                \
  do {                                                                       \
    if (!(condition)) {                                                      \
      fprintf(stderr, "rank %d, line %d: %s: ", rank, __LINE__, #condition); \
      fprintf(stderr, __VA_ARGS__);                                          \
      fputc('\n', stderr);                                                   \
      farandole_comm_abort(all, "a check failed");                           \
      exit(1);                                                               \
    }                                                                        \
  } while (0)

static farandole_error* error;
/* The call succeeds. */
#define OK(call) CHECK((call) == 0 && error == NULL, "%s", farandole_error_text(error))
/* The call fails with an error of this kind, whose text has this part. */
#define FAILS(expected, part, call)                                                                               \
  do {                                                                                                            \
    CHECK((call) == 1 && error != NULL, "no error");                                                              \
    CHECK(farandole_error_get_kind(error) == (expected), "%s", farandole_error_text(error));                      \
    CHECK(strstr(farandole_error_text(error), (part)) != NULL, "'%s' is not in it", farandole_error_text(error)); \
    farandole_error_free(error);                                                                                  \
    error = NULL;                                                                                                 \
  } while (0)

/* farandole_join_options.share by a file of a directory that all ranks see, a file per call. */
struct shared_directory {
  const char* path;
  int calls;
};
static int share_by_file(void* context, char* text, size_t capacity) {
  struct shared_directory* shared = (struct shared_directory*)context;
  char name[512];
  char new_name[520];
  snprintf(name, sizeof name, "%s/text%d", shared->path, shared->calls++);
  snprintf(new_name, sizeof new_name, "%s.new", name);
  if (rank == 0) {
    FILE* file = fopen(new_name, "w");
    if (file == NULL || fputs(text, file) < 0 || fclose(file) != 0) return 1;
    return rename(new_name, name) == 0 ? 0 : 2;
  }
  const struct timespec pause = {0, 1000000};
  for (int i = 0; i < 60000; ++i, nanosleep(&pause, NULL)) {
    FILE* file = fopen(name, "r");
    if (file == NULL) continue;
    const size_t count = fread(text, 1, capacity - 1, file);
    text[count] = 0;
    return fclose(file) == 0 ? 0 : 3;
  }
  return 4;
}

/* Joins the job that the environment describes, or, with arguments DIRECTORY RANK SIZE, the job of the processes that
 * share this directory. */
static void join(int count, char** arguments) {
  farandole_join_options options = {.struct_bytes = sizeof options};
  struct shared_directory shared = {0};
  if (count == 4) {
    shared.path = arguments[1];
    rank = options.rank = atoi(arguments[2]);
    options.size = atoi(arguments[3]);
    options.share = share_by_file;
    options.share_context = &shared;
  }
  const farandole_comm_options named = {.struct_bytes = sizeof named, .name = "all"};
  OK(farandole_comm_join(&options, &named, &all, &error));
  rank = farandole_comm_rank(all);
  size = farandole_comm_size(all);
}

#endif
