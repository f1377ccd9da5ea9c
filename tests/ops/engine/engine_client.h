// SPDX-License-Identifier: Apache-2.0
/* Shared by the engine's tests in C: requests with one f32 tensor, and checks that name the rank. */
#ifndef FARANDOLE_TESTS_ENGINE_CLIENT_H
#define FARANDOLE_TESTS_ENGINE_CLIENT_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "farandole/engine.h"

static farandole_place place;

#define CHECK(condition, ...)                                                      \
  do {                                                                             \
    if (!(condition)) {                                                            \
      fprintf(stderr, "rank %d, line %d: %s: ", place.rank, __LINE__, #condition); \
      fprintf(stderr, __VA_ARGS__);                                                \
      fputc('\n', stderr);                                                         \
      farandole_abort("a check failed");                                           \
      exit(1);                                                                     \
    }                                                                              \
  } while (0)

enum { kMaxValues = 64 };

struct client_request {
  farandole_request request;
  farandole_tensor tensor;
  int64_t shape[1];
  float input[kMaxValues], output[kMaxValues];
  int64_t rows; /* of the output */
  int kind;     /* of the error; -1: none */
  char text[512];
  volatile int32_t done;
};

static void on_done(void* context, const farandole_result* result) {
  struct client_request* self = (struct client_request*)context;
  self->kind = -1;
  if (result->error != NULL) {
    self->kind = (int)farandole_error_get_kind(result->error);
    snprintf(self->text, sizeof self->text, "%s", farandole_error_text(result->error));
  } else if (result->dimensions > 0) {
    self->rows = result->shape[0];
  }
  __atomic_store_n(&self->done, 1, __ATOMIC_RELEASE);
}

static void* on_allocate(void* context, const int64_t* shape, int32_t dimensions) {
  struct client_request* self = (struct client_request*)context;
  return dimensions == 1 && shape[0] <= kMaxValues ? self->output : NULL;
}

/* A request of `count` values, all `value`. */
static void prepare(struct client_request* self, farandole_collective collective, const char* name, int count,
                    float value) {
  memset(self, 0, sizeof *self);
  self->shape[0] = count;
  for (int i = 0; i < count; ++i) self->input[i] = value;
  self->tensor.struct_bytes = sizeof self->tensor;
  self->tensor.dtype = FARANDOLE_F32;
  self->tensor.dimensions = 1;
  self->tensor.shape = self->shape;
  self->tensor.input = self->input;
  if (collective == FARANDOLE_ALLREDUCE || collective == FARANDOLE_BROADCAST) self->tensor.output = self->output;
  self->tensor.context = self;
  self->tensor.allocate = on_allocate;
  self->tensor.done = on_done;
  self->request.struct_bytes = sizeof self->request;
  self->request.name = name;
  self->request.collective = collective;
  self->request.prescale = 1.0;
  self->request.postscale = 1.0;
  self->request.tensors = &self->tensor;
  self->request.tensor_count = 1;
}

static void submit(struct client_request* self) {
  farandole_error* error = NULL;
  if (farandole_submit(&self->request, &error) == 0) return;
  CHECK(0, "%s", farandole_error_text(error));
}

static void submit_and_wait(struct client_request* self) {
  self->request.caller_waits = 1;
  submit(self);
  farandole_wait_until(&self->done);
}

static void init(void) {
  farandole_error* error = NULL;
  if (farandole_init(NULL, &error) != 0) {
    fprintf(stderr, "farandole_init: %s\n", farandole_error_text(error));
    exit(1);
  }
  place.struct_bytes = sizeof place;
  farandole_get_place(&place);
}

#endif
