/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators in plain C: groups of ranks that make the same collectives in the same order, and messages between two
 * ranks. C++ programs use farandole/collectives/communicator.h, whose classes these functions call.
 *
 * Example: the sum of four floats over all ranks (examples/c/communicator_allreduce.c is a whole program).
 *
 *     farandole_comm* ranks = NULL;
 *     farandole_error* error = NULL;
 *     if (farandole_comm_join(NULL, &ranks, &error) != 0) return report(error);
 *     float values[4] = {1, 2, 3, 4};
 *     if (farandole_allreduce(ranks, values, values, 4, FARANDOLE_F32, FARANDOLE_SUM, NULL, NULL, &error) != 0) {
 *       return report(error);
 *     }
 *     farandole_comm_free(ranks);
 *
 * Blocking and asynchronous. Every collective and message has a parameter `work`. NULL: the call blocks until the
 * result is there. Otherwise the call returns at once with a handle in `*work`, which the caller waits for and frees;
 * the buffers belong to the call until it is done. Arrays of counts, options and texts are copied.
 *
 * Order. All ranks of a communicator make the same collectives in the same order. The ranks compare their calls first
 * (unless FARANDOLE_CHECK=off): if they differ, all ranks fail with MISMATCH before data is touched, and the
 * communicator stays usable. Messages are independent of that order.
 *
 * Threads. Only one thread at a time may make calls on a communicator. Different threads may use different
 * communicators and different work handles at the same time.
 *
 * Devices. Buffers may lie in the memory of the rank's CUDA device, see farandole_call_options.
 *
 * Errors and versions of structures: the rules of farandole/base.h. In a forked child every function but the *_free
 * functions fails with INVALID_ARGUMENT. On the collectives themselves, docs/algorithms.md has algorithms and costs.
 */
#ifndef FARANDOLE_COLLECTIVES_H
#define FARANDOLE_COLLECTIVES_H

#include "farandole/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* C has no namespaces. NOLINTBEGIN(readability-identifier-naming) */

/* ---- Communicators ------------------------------------------------------------------------------------------- */

/* A communicator. The caller owns the handle and frees it with farandole_comm_free. */
typedef struct farandole_comm farandole_comm;

/* Order in which calls on device memory are enqueued; docs/gpu.md says which to choose. */
typedef enum farandole_device_order {
  FARANDOLE_AGREED_ORDER = 0, /* ranks agree on the place of each call among all device operations */
  FARANDOLE_CALLER_ORDER = 1  /* the calling thread enqueues a call with a stream in that stream, as NCCL does */
} farandole_device_order;

/* Options of a new communicator. NULL, or all fields 0: the defaults. */
typedef struct farandole_comm_options {
  size_t struct_bytes;
  const char* name;       /* for warnings and errors; NULL: a number. May differ from rank to rank */
  int32_t device_order;   /* a farandole_device_order; the same on all ranks */
  int32_t compare;        /* 1: ranks compare their calls even with FARANDOLE_CHECK=off; the same on all ranks */
  double timeout_seconds; /* a call that takes longer fails with TIMEOUT on every rank. 0: FARANDOLE_TIMEOUT */
} farandole_comm_options;

/* Describes how a process joins its job. NULL, or all fields 0: the job that the environment describes. */
typedef struct farandole_join_options {
  size_t struct_bytes;
  /* Rank and size that the program expects; checked if `size` is not 0. INVALID_ARGUMENT if the job has others. */
  int32_t rank, size;
  /* Broadcasts a text from rank 0 to all ranks, by means of the program's own, such as a key-value store: rank 0 passes
   * the text in `text`, and other ranks receive it there; `capacity` is 4096 bytes, with the terminating 0. Returns 0,
   * or another number for a failure, which fails the join with TRANSPORT_ERROR. Called at most twice by each rank, on
   * the joining thread, and only if no launcher's job exists. May block. Whoever can read these texts can join the job.
   * NULL: the environment must describe the job, otherwise the job is this process alone. */
  int (*share)(void* context, char* text, size_t capacity);
  void* share_context;
  /* For a join by `share`. Maximum time for which each of its steps waits for other processes, then TIMEOUT; 0:
   * FARANDOLE_TIMEOUT. If both are set, the shorter one counts. `share` limits its own wait. */
  double timeout_seconds;
  const char* timeout_name; /* what sets that time in the program, for the error's text; NULL: "timeout_seconds" */
  const char* advice;       /* what the user must do so that all join, for texts about missing processes; NULL: none */
} farandole_join_options;

/* Joins the job, and returns a communicator of all its ranks in `*comm`. If this process is in the job already, by
 * farandole_init (engine.h, Python) or by an earlier farandole_comm_join, makes a further communicator of its ranks.
 *
 * The job: what mpirun, Slurm or the variables FARANDOLE_RANK and FARANDOLE_SIZE describe; else, with `share`, the
 * `size` processes that call with ranks 0 to size - 1, on one host or several, connected by TCP and shared memory with
 * a fresh secret key; else what RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT describe; else this process alone.
 *
 * The process leaves the job when its last communicator is freed and farandole_shutdown has been called or
 * farandole_init has not. With MPI the process joins once: after leaving, a later join is UNSUPPORTED, unless the
 * program has initialised MPI itself.
 *
 * Collective over all processes of the job, in the same order as farandole_init; blocks.
 * Errors: INVALID_ARGUMENT, UNSUPPORTED, or a fault of the job, as farandole_init; `comm_options` as
 * farandole_comm_split. */
FARANDOLE_C_API int farandole_comm_join(const farandole_join_options* options,
                                        const farandole_comm_options* comm_options, farandole_comm** comm,
                                        farandole_error** error);
/* Waits until all calls of this communicator on this rank are done, and frees it; leaves the job if it is the last,
 * which blocks until all ranks do so. After a fault of the job, returns without waiting. No-op for NULL. */
FARANDOLE_C_API void farandole_comm_free(farandole_comm* comm);

/* Rank and size; -1 for NULL. Non-blocking. */
FARANDOLE_C_API int32_t farandole_comm_rank(const farandole_comm* comm);
FARANDOLE_C_API int32_t farandole_comm_size(const farandole_comm* comm);
/* Writes a text for people about a rank, "rank 3 (host node7, pid 4711)", with its terminating 0 and cut to `capacity`
 * bytes. Non-blocking. */
FARANDOLE_C_API int farandole_comm_describe(const farandole_comm* comm, int32_t rank, char* text, size_t capacity,
                                            farandole_error** error);

/* Makes a communicator of the ranks that pass the same `color`, ordered by `key`, then by rank. A rank that passes a
 * negative color gets NULL in `*new_comm`. Collective over `comm`; blocks. Threads may make communicators of different
 * `comm` at the same time. `options` may be NULL. Errors: INVALID_ARGUMENT (an option, or too many communicators),
 * MISMATCH (options that differ), a fault of the job. */
FARANDOLE_C_API int farandole_comm_split(farandole_comm* comm, int32_t color, int32_t key,
                                         const farandole_comm_options* options, farandole_comm** new_comm,
                                         farandole_error** error);
/* Makes a communicator of the `count` given ranks of `comm`, in their order. Collective over these ranks only; the
 * others need not call. Blocks. Errors: as farandole_comm_split, and INVALID_ARGUMENT: this rank is not among `ranks`,
 * a rank is there twice or is not in `comm`. */
FARANDOLE_C_API int farandole_comm_of_members(farandole_comm* comm, const int32_t* ranks, int32_t count,
                                              const farandole_comm_options* options, farandole_comm** new_comm,
                                              farandole_error** error);
/* Ends the job with a fault: every rank's pending and later calls fail with PEER_LOST, which quotes `text` (may be
 * NULL). Non-blocking; no-op for NULL and after a fault. Any thread may call it. */
FARANDOLE_C_API void farandole_comm_abort(farandole_comm* comm, const char* text);

/* ---- Calls --------------------------------------------------------------------------------------------------- */

/* Handle of an asynchronous call. The caller owns it and frees it with farandole_work_free. */
typedef struct farandole_work farandole_work;

/* Options of one call. NULL, or all fields 0: the defaults, buffers in host memory. */
typedef struct farandole_call_options {
  size_t struct_bytes;
  /* allreduce, reduce, reduce_scatter: factors of the inputs, before the reduction, and of the results. They count only
   * if `has_factors` is 1. `postscale` must be the same on all ranks. */
  double prescale, postscale;
  int32_t has_factors;
  int32_t memory;   /* a farandole_memory: where all buffers of the call lie; the same on all ranks */
  int32_t device;   /* CUDA memory: ordinal of the rank's device among those that the process sees */
  int32_t segments; /* pieces into which a pipelined algorithm cuts each chunk; 0: chosen from the size */
  /* CUDA memory: stream (cudaStream_t) in which the call takes its place: it waits for earlier work of the stream, and
   * later work of the stream waits for it. The call then returns when it is enqueued. NULL: see `has_stream`. */
  void* stream;
  int32_t has_stream;    /* 1: `stream` counts even if it is NULL, which is the device's default stream */
  const char* algorithm; /* for example "ring", see docs/algorithms.md; NULL: chosen. The same on all ranks */
} farandole_call_options;

/* Reduces `count` elements of all ranks' `input` to `output`, on every rank. In place: `output` is `input`.
 * Errors of this and all other calls: INVALID_ARGUMENT, MISMATCH, UNSUPPORTED (`output` is unchanged), or a fault. */
FARANDOLE_C_API int farandole_allreduce(farandole_comm* comm, const void* input, void* output, size_t count,
                                        farandole_dtype dtype, farandole_reduce_op op,
                                        const farandole_call_options* options, farandole_work** work,
                                        farandole_error** error);
/* Copies the root's `values` to the `values` of every other rank. */
FARANDOLE_C_API int farandole_broadcast(farandole_comm* comm, void* values, size_t count, farandole_dtype dtype,
                                        int32_t root, const farandole_call_options* options, farandole_work** work,
                                        farandole_error** error);
/* Reduces all ranks' `input` to `output` on the root; `output` of the other ranks is ignored and may be NULL. */
FARANDOLE_C_API int farandole_reduce(farandole_comm* comm, const void* input, void* output, size_t count,
                                     farandole_dtype dtype, farandole_reduce_op op, int32_t root,
                                     const farandole_call_options* options, farandole_work** work,
                                     farandole_error** error);
/* Concatenates all ranks' inputs in the order of ranks, in every rank's `output`. In place: `input` is this rank's part
 * of `output`. `counts` has the elements of each rank's input, the same list on all ranks; NULL: every rank has
 * `count`. `output` has room for the sum. */
FARANDOLE_C_API int farandole_allgather(farandole_comm* comm, const void* input, size_t count, void* output,
                                        const size_t* counts, farandole_dtype dtype,
                                        const farandole_call_options* options, farandole_work** work,
                                        farandole_error** error);
/* Reduces all ranks' `input`, and gives each rank its part in `output`, of `count` elements. In place: `output` is this
 * rank's part of `input`. `counts` has the elements of each rank's part; NULL: every part has `count`. */
FARANDOLE_C_API int farandole_reduce_scatter(farandole_comm* comm, const void* input, void* output, size_t count,
                                             const size_t* counts, farandole_dtype dtype, farandole_reduce_op op,
                                             const farandole_call_options* options, farandole_work** work,
                                             farandole_error** error);
/* Concatenates all ranks' inputs in the order of ranks, in the root's `output`; other ranks' `output` is ignored.
 * `counts` as for allgather. */
FARANDOLE_C_API int farandole_gather(farandole_comm* comm, const void* input, size_t count, void* output,
                                     const size_t* counts, farandole_dtype dtype, int32_t root,
                                     const farandole_call_options* options, farandole_work** work,
                                     farandole_error** error);
/* Gives each rank its part of the root's `input`, of `count` elements; other ranks' `input` is ignored. `counts` as for
 * reduce_scatter. */
FARANDOLE_C_API int farandole_scatter(farandole_comm* comm, const void* input, void* output, size_t count,
                                      const size_t* counts, farandole_dtype dtype, int32_t root,
                                      const farandole_call_options* options, farandole_work** work,
                                      farandole_error** error);
/* Sends part r of `input` to rank r; `output` gets the parts that all ranks have sent to this rank, in the order of
 * ranks. In place: `output` is `input`. `send_counts` and `recv_counts` have the elements for and from each rank; both
 * NULL: every part has `count` elements, which is ignored otherwise. */
FARANDOLE_C_API int farandole_alltoall(farandole_comm* comm, const void* input, void* output, size_t count,
                                       const size_t* send_counts, const size_t* recv_counts, farandole_dtype dtype,
                                       const farandole_call_options* options, farandole_work** work,
                                       farandole_error** error);
/* Done once every rank has called it. */
FARANDOLE_C_API int farandole_barrier(farandole_comm* comm, farandole_work** work, farandole_error** error);

/* ---- Messages ------------------------------------------------------------------------------------------------ */

/* Any source, for farandole_recv. */
#define FARANDOLE_ANY_SOURCE (-1)

/* Sends `count` elements to rank `target`. Messages from one rank with one tag (0 to 2^31 - 1) arrive in the order in
 * which they were sent.
 *
 * Host memory (`options` NULL): a short message is buffered, a long one is done once the receiver has it. CUDA memory:
 * sender and receiver both name their device in `options`, with or without a stream, as for collectives; the tag is 0.
 * The first message of CUDA memory between two ranks blocks until both have made one, even if `work` is not NULL.
 * `options`: memory, device and stream only.
 * Errors: as for collectives. UNSUPPORTED: CUDA memory with a tag. */
FARANDOLE_C_API int farandole_send(farandole_comm* comm, const void* values, size_t count, farandole_dtype dtype,
                                   int32_t target, int32_t tag, const farandole_call_options* options,
                                   farandole_work** work, farandole_error** error);
/* Receives a message of `count` elements with this tag from rank `source`, or from any rank with FARANDOLE_ANY_SOURCE
 * (host memory only). MISMATCH: the message has another count or type; it is dropped. `*sender` gets the sender's rank
 * if `sender` is not NULL and `work` is NULL; else ask farandole_work_source. */
FARANDOLE_C_API int farandole_recv(farandole_comm* comm, void* values, size_t count, farandole_dtype dtype,
                                   int32_t source, int32_t tag, int32_t* sender, const farandole_call_options* options,
                                   farandole_work** work, farandole_error** error);

/* One message of farandole_exchange. */
typedef struct farandole_message {
  size_t struct_bytes; /* the same in all messages of a list */
  void* values;        /* read only if the message is sent */
  size_t count;
  farandole_dtype dtype;
  int32_t is_receive; /* 0: send to `peer`; 1: receive from `peer` */
  int32_t peer, tag;
} farandole_message;

/* Sends and receives `message_count` messages that proceed at the same time: none waits for another one of the list,
 * whatever their order. Blocks until all are done or, with a stream in `options`, until they are enqueued. `options`
 * holds for all messages, as in farandole_send. Fails with the first error in the order of the list, once all have
 * ended; INVALID_ARGUMENT and UNSUPPORTED: nothing was sent. */
FARANDOLE_C_API int farandole_exchange(farandole_comm* comm, const farandole_message* messages, size_t message_count,
                                       const farandole_call_options* options, farandole_error** error);

/* ---- Work ---------------------------------------------------------------------------------------------------- */

/* Blocks until the call is done. Fails with the call's error; every call fails again. Any thread may call it. */
FARANDOLE_C_API int farandole_work_wait(farandole_work* work, farandole_error** error);
/* Returns 1 once the call is done or has failed, else 0; 1 for NULL. Non-blocking; advances pending calls. */
FARANDOLE_C_API int farandole_work_test(farandole_work* work);
/* CUDA memory: makes later work in `stream` wait for the call. Blocks until the call is enqueued on the device. */
FARANDOLE_C_API int farandole_work_wait_on(farandole_work* work, void* stream, farandole_error** error);
/* Rank of the sender of the message, once a receive is done; -1 before, and for other calls. */
FARANDOLE_C_API int32_t farandole_work_source(const farandole_work* work);
/* Calls `done` once when the call is done: from this function if it is done already, else from any thread that advances
 * calls, with no lock held. `error` is NULL, or the call's error, owned by the library and valid until `done` returns.
 * `done` must not block, and must not call functions of the communicator, except farandole_work_free and the functions
 * that start messages, with peers with which it has exchanged a message of this kind of memory before. At most one
 * `done` per work. Fails if `work` or `done` is NULL, or has a `done`. */
FARANDOLE_C_API int farandole_work_on_done(farandole_work* work, void* context,
                                           void (*done)(void* context, const farandole_error* error),
                                           farandole_error** error);
/* Frees the handle. A call that is pending goes on: its buffers must stay valid until it is done
 * (farandole_work_on_done). Non-blocking. No-op for NULL. */
FARANDOLE_C_API void farandole_work_free(farandole_work* work);

/* NOLINTEND(readability-identifier-naming) */
#ifdef __cplusplus
}
#endif

#endif /* FARANDOLE_COLLECTIVES_H */
