/* SPDX-License-Identifier: Apache-2.0 */
/* What Farandole's C headers share: errors, types and memory. engine.h has named tensors in any order, collectives.h
 * has communicators, whose ranks make the same calls in the same order.
 *
 * Errors. A function that can fail returns 0 for success, or 1 and an error object in `*error`, which the caller frees
 * with farandole_error_free; `error` may be NULL. `*error` is NULL after success. Texts are UTF-8. No function throws.
 * Every function checks its numbers and null pointers, and reports INVALID_ARGUMENT for a null pointer where it needs
 * memory, for a number out of its range, for a text of more than 1 MiB, and for a structure without its size. The
 * library cannot check memory: a pointer that is not NULL must point to as many elements as the header says.
 *
 * Versions. Each structure begins with `struct_bytes`; set it to sizeof. Later versions of the library add fields at
 * the end only, so `struct_bytes` tells the library which fields the caller's version has.
 * - The library copies a caller's structure up to `struct_bytes`. Missing fields count as 0, and 0 keeps the behaviour
 *   from before the field existed. Fields that only a newer caller knows are ignored.
 * - The elements of an array must have equal `struct_bytes`, which is the distance from element to element.
 * - A structure that the library fills (farandole_place, farandole_counters) is written up to `struct_bytes`; fields
 *   that the library does not know stay unchanged.
 * - A structure that the library makes (farandole_result) carries the library's own size: read a field that is newer
 *   than version 0.1 only if `struct_bytes` reaches to the field's end.
 * - INVALID_ARGUMENT: `struct_bytes` is below sizeof(size_t) (for example 0), above 4096, or not a multiple of the
 *   structure's alignment.
 */
#ifndef FARANDOLE_BASE_H
#define FARANDOLE_BASE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* C has no namespaces. NOLINTBEGIN(readability-identifier-naming) */
#define FARANDOLE_C_API __attribute__((visibility("default")))

/* ---- Errors -------------------------------------------------------------------------------------------------- */

/* Kinds of errors; the numbers equal farandole::ErrorKind's. TIMEOUT to DEVICE_ERROR are faults of the job: every
 * pending and later collective of the job fails, on every rank. INTERNAL is a fault of the job, too, if it arises
 * inside the engine. After any other kind the engine and the communicators stay usable. docs/errors.md lists causes and
 * remedies. */
typedef enum farandole_error_kind {
  FARANDOLE_INVALID_ARGUMENT = 0, /* a call that cannot work, whatever the other ranks do */
  FARANDOLE_UNSUPPORTED = 1,      /* a valid call that this build, machine or MPI cannot carry out */
  FARANDOLE_MISMATCH = 2, /* ranks made different calls, or different requests under a name; no data was touched */
  FARANDOLE_DUPLICATE_NAME = 3,  /* engine: a request of this name is pending on this rank already */
  FARANDOLE_TIMEOUT = 4,         /* fault: a collective took longer than FARANDOLE_TIMEOUT */
  FARANDOLE_PEER_LOST = 5,       /* fault: a rank died, left or aborted */
  FARANDOLE_TRANSPORT_ERROR = 6, /* fault: MPI or the network failed */
  FARANDOLE_DEVICE_ERROR = 7,    /* fault: a device or its driver failed */
  FARANDOLE_DATA_ERROR = 8,      /* a file is missing, damaged or does not fit */
  FARANDOLE_INTERNAL = 9         /* a broken invariant of the library */
} farandole_error_kind;

/* An error: a kind and a text for people. The caller owns an error that a function returns in `*error`. */
typedef struct farandole_error farandole_error;
/* The error's kind; FARANDOLE_INTERNAL for NULL. */
FARANDOLE_C_API farandole_error_kind farandole_error_get_kind(const farandole_error* error);
/* The kind's name, for example "Mismatch"; "unknown" for any other number. Never NULL; lives as long as the library. */
FARANDOLE_C_API const char* farandole_error_kind_name(farandole_error_kind kind);
/* The error's text; empty for NULL. Lives as long as the error. */
FARANDOLE_C_API const char* farandole_error_text(const farandole_error* error);
/* Frees an error that a function returned; no-op for NULL. Do not free a callback's error. */
FARANDOLE_C_API void farandole_error_free(farandole_error* error);

/* ---- Types -------------------------------------------------------------------------------------------------- */

/* Types of elements. */
typedef enum farandole_dtype {
  FARANDOLE_BOOL = 0,
  FARANDOLE_U8 = 1,
  FARANDOLE_I8 = 2,
  FARANDOLE_U16 = 3,
  FARANDOLE_I16 = 4,
  FARANDOLE_I32 = 5,
  FARANDOLE_I64 = 6,
  FARANDOLE_F16 = 7,
  FARANDOLE_BF16 = 8,
  FARANDOLE_F32 = 9,
  FARANDOLE_F64 = 10,
  FARANDOLE_U32 = 11,
  FARANDOLE_U64 = 12
} farandole_dtype;

/* Reductions of allreduce and reduce_scatter. */
typedef enum farandole_reduce_op {
  FARANDOLE_SUM = 0,
  FARANDOLE_PRODUCT = 1,
  FARANDOLE_MIN = 2,
  FARANDOLE_MAX = 3,
  FARANDOLE_AVERAGE = 4, /* averages of integers are truncated toward zero; INVALID_ARGUMENT for bool */
  FARANDOLE_ADASUM = 5,  /* adaptive summation; floating-point types and allreduces of the engine only */
  FARANDOLE_BIT_AND = 6, /* bitwise operations on integers; logical operations on bool, with results 0 and 1; */
  FARANDOLE_BIT_OR = 7,  /* INVALID_ARGUMENT for floating-point types and for factors */
  FARANDOLE_BIT_XOR = 8
} farandole_reduce_op;

/* ---- Memory -------------------------------------------------------------------------------------------------- */

/* Kind of memory that holds a buffer. */
typedef enum farandole_memory { FARANDOLE_HOST_MEMORY = 0, FARANDOLE_CUDA_MEMORY = 1 } farandole_memory;

/* Allocates a window: memory that the ranks of this host share, so that collectives on it need no copies. 64-byte
 * aligned. Use it for large tensors that are reduced often. Returns NULL if this process is in no job, if there is no
 * shared memory or no room, or if `bytes` is 0: use ordinary memory then. The window stays valid after the job's end,
 * until farandole_window_free. */
FARANDOLE_C_API void* farandole_window_allocate(size_t bytes);
/* Frees a window and returns 1. For any other memory returns 0, at the cost of a table look-up. */
FARANDOLE_C_API int farandole_window_free(void* memory);

/* NOLINTEND(readability-identifier-naming) */
#ifdef __cplusplus
}
#endif

#endif /* FARANDOLE_BASE_H */
