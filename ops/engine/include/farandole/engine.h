/* SPDX-License-Identifier: Apache-2.0 */
/* Named tensors, reduced in any order: Farandole's interface for frameworks, in plain C.
 *
 * When to use it. Frameworks produce tensors in an order that differs from rank to rank, while a collective needs the
 * same order on all ranks. Submit each tensor under a name, in any order and from any thread: the engine agrees with
 * the other ranks on one order, packs small tensors together, and runs the collectives. Within a process set, requests
 * of the same name on different ranks belong together. A program whose ranks all call the same collectives in the same
 * order needs no names: farandole::Communicator (farandole/collectives/communicator.h) costs less.
 *
 * Example: the sum of four floats over all ranks (examples/c/named_allreduce.c is a whole program).
 *
 *     static void on_done(void* context, const farandole_result* result) {
 *       __atomic_store_n((int32_t*)context, result->error == NULL ? 1 : 2, __ATOMIC_RELEASE);
 *     }
 *
 *     farandole_init(NULL, &error);
 *     float values[4] = {1, 2, 3, 4};
 *     const int64_t shape[] = {4};
 *     volatile int32_t finished = 0;
 *     const farandole_tensor tensor = {.struct_bytes = sizeof tensor, .dtype = FARANDOLE_F32, .dimensions = 1,
 *         .shape = shape, .input = values, .output = values, .context = (void*)&finished, .done = on_done};
 *     const farandole_request request = {.struct_bytes = sizeof request, .name = "weights",
 *         .collective = FARANDOLE_ALLREDUCE, .op = FARANDOLE_SUM, .tensors = &tensor, .tensor_count = 1};
 *     if (farandole_submit(&request, &error) == 0) farandole_wait_until(&finished);
 *     farandole_shutdown(&error);
 *
 * Threads. A process has one engine. Every function is thread-safe and needs no lock of the caller's. Callbacks run on
 * the engine's thread or on any thread that calls the engine, with no lock held. A callback may submit. A callback must
 * not block, so it must not call farandole_init, farandole_shutdown, farandole_add_process_set,
 * farandole_remove_process_set, farandole_wait_until or farandole_stop_timeline.
 *
 * Devices. Tensors may lie in the memory of the rank's CUDA device (farandole_tensor.memory). `done` is then called as
 * soon as the collective is enqueued on the device: the tensor's stream waits for the result, the host does not. If the
 * device fails after `done`, later requests fail, and docs/gpu.md says how the failure is reported.
 *
 * Errors and versions of structures: the rules of farandole/base.h. INVALID_ARGUMENT also reports a shape of more than
 * 2^47 bytes, which no process has room for, or of more than 255 dimensions, and a function that needs the engine
 * before farandole_init, after farandole_shutdown, or in a forked child. Functions without an `error` parameter are
 * no-ops in these cases and return the empty value: NULL, an empty text, 0 or -1. farandole_abort and farandole_log
 * take the first 1 MiB of their text. Without the field `has_factors` (a caller of an older version) a factor of 0 is
 * taken literally.
 */
#ifndef FARANDOLE_ENGINE_H
#define FARANDOLE_ENGINE_H

#include "farandole/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* C has no namespaces. NOLINTBEGIN(readability-identifier-naming) */

/* ---- Collectives ---------------------------------------------------------------------------------------------- */

/* Collectives over the ranks of a process set. */
typedef enum farandole_collective {
  FARANDOLE_ALLREDUCE = 0,
  FARANDOLE_ALLGATHER = 1,      /* concatenates along the first dimension, which may differ from rank to rank */
  FARANDOLE_BROADCAST = 2,      /* copies the root's input to every rank's output; input and output may coincide */
  FARANDOLE_ALLTOALL = 3,       /* sends `splits[r]` rows of the first dimension to rank r of the set */
  FARANDOLE_REDUCE_SCATTER = 4, /* reduces, then gives each rank a block of rows; if uneven, the first ranks get one
                                   row more */
  FARANDOLE_BARRIER = 5         /* moves no data; done once all ranks have submitted it */
} farandole_collective;

/* The process set of all ranks; it always exists. */
#define FARANDOLE_GLOBAL_SET 0

/* ---- The job ------------------------------------------------------------------------------------------------- */

/* Options of farandole_init. With all fields 0, the process joins all processes that the launcher started. */
typedef struct farandole_init_options {
  size_t struct_bytes;
  int32_t expected_size;        /* required number of ranks, INVALID_ARGUMENT if there are more or fewer; 0: any */
  int32_t has_mpi_communicator; /* 1: join the ranks of `mpi_communicator` instead of all processes */
  int32_t mpi_communicator;     /* MPI_Comm_c2f of the MPI communicator */
} farandole_init_options;

/* Joins the job and starts the engine. mpirun or Slurm makes the job, or the environment describes the job: by
 * FARANDOLE_RANK, FARANDOLE_SIZE and FARANDOLE_JOB (over several hosts also FARANDOLE_RENDEZVOUS), or by torchrun's
 * variables. Without any of these, the job is this process alone.
 *
 * A program that has initialised MPI itself may go on calling MPI. With MPI_THREAD_MULTIPLE it may call MPI at any
 * time. With MPI_THREAD_SERIALIZED it may call MPI only before farandole_init and after farandole_shutdown has returned
 * (a warning says so): the engine's thread calls MPI at any time, even while no request is pending. A lower level is
 * UNSUPPORTED.
 *
 * `options` may be NULL. Collective over all processes; blocks until all have called farandole_init. No-op if the
 * engine runs already. If another thread is starting the engine, waits for that thread.
 * Errors: INVALID_ARGUMENT (options, settings, ranks of different builds, another farandole::World in this process),
 * UNSUPPORTED (no usable MPI, MPI has ended in this process, no thread can be started), or a fault of the job. */
FARANDOLE_C_API int farandole_init(const farandole_init_options* options, farandole_error** error);
/* Leaves the job by a clean shutdown. Blocks until every rank has called farandole_shutdown; after a fault of the job,
 * returns without waiting. Pending requests of this rank fail. Requests of other ranks that need this rank fail on
 * those ranks with PEER_LOST. No-op without an engine.
 *
 * Afterwards farandole_init may be called again. In a job of MPI, a second farandole_init works only if the program has
 * initialised MPI itself; otherwise it is UNSUPPORTED, because a process can start MPI only once. */
FARANDOLE_C_API int farandole_shutdown(farandole_error** error);
/* 1 while the engine runs. 0 before farandole_init, after farandole_shutdown, and in a process that was forked from a
 * process with an engine: the child is not a rank, and its copy of the engine has neither threads nor connections. In
 * the child farandole_init starts a new engine: in a job of the child alone, or in another job if the child has its own
 * FARANDOLE_RANK, FARANDOLE_SIZE and FARANDOLE_JOB. Non-blocking. */
FARANDOLE_C_API int farandole_is_initialized(void);
/* Fails in a forked child that has not started an engine of its own: INVALID_ARGUMENT, with a text that names the
 * parent's rank. Otherwise succeeds. Call it before other checks, so that the user learns of the fork first.
 * Non-blocking. */
FARANDOLE_C_API int farandole_check_not_forked(farandole_error** error);
/* Ends the job with a fault: all pending and later requests of every rank fail with PEER_LOST. The error names this
 * rank and quotes `text` (may be NULL). Call it when this rank cannot go on, so that its peers do not wait for this
 * rank. Non-blocking; no-op without an engine. */
FARANDOLE_C_API void farandole_abort(const char* text);

/* This process's place in the job. All fields are -1 while farandole_is_initialized returns 0. */
typedef struct farandole_place {
  size_t struct_bytes;
  int32_t rank, size;
  int32_t local_rank, local_size; /* among the ranks of this host */
  int32_t host_index, host_count;
  int32_t cross_rank, cross_size; /* among the ranks that have this local rank, one per host */
  int32_t is_homogeneous;         /* 1: every host has the same number of ranks */
} farandole_place;
/* Fills `*place` up to its `struct_bytes`. Non-blocking. */
FARANDOLE_C_API void farandole_get_place(farandole_place* place);

/* Version, build, plug-ins, settings and, after farandole_init, the job and its transports, as a JSON object. "backend"
 * names how the job was joined: "mpi_openmpi", "mpi_mpich", "pmix", "tcp", "local", or "none" for a job of this process
 * alone. The caller frees the text with farandole_text_free. Non-blocking. */
FARANDOLE_C_API char* farandole_describe(void);
/* Frees a text of farandole_describe; no-op for NULL. */
FARANDOLE_C_API void farandole_text_free(char* text);
/* The library's version; lives as long as the library. */
FARANDOLE_C_API const char* farandole_version(void);
/* Path of the loaded library that holds the engine; lives as long as the library. */
FARANDOLE_C_API const char* farandole_library_path(void);
/* Writes a line to the library's log, which FARANDOLE_LOG filters. Level 0 debug, 1 info, 2 warning, 3 error; other
 * numbers are clamped to 0 … 3. */
FARANDOLE_C_API void farandole_log(int32_t level, const char* text);

/* ---- Process sets -------------------------------------------------------------------------------------------- */

/* Makes a process set of `count` ranks, and stores its id in `*process_set`: the same id on all ranks, members or not.
 * Use a set for collectives among a part of the ranks. The order of `ranks` is irrelevant. If a set of these ranks
 * exists already, its id is returned.
 *
 * Collective over the job: all ranks pass the same ranks, and make and remove sets in the same order. Other requests
 * may be submitted in between, in any order. Blocks until all ranks have called it. Cost: two communicators.
 * Errors: INVALID_ARGUMENT (no ranks, a rank twice or not in the job; on all ranks: too many communicators or sets),
 * MISMATCH (ranks ask for different changes, or another rank's call is invalid), or a fault of the job. */
FARANDOLE_C_API int farandole_add_process_set(const int32_t* ranks, int32_t count, int32_t* process_set,
                                              farandole_error** error);
/* Removes a process set. Requests that are pending in the set fail with INVALID_ARGUMENT. Ids are not reused.
 * Collective over the job; blocks until all ranks have called it and the set's members have left it.
 * Errors: INVALID_ARGUMENT (FARANDOLE_GLOBAL_SET, no such set), MISMATCH, or a fault of the job. */
FARANDOLE_C_API int farandole_remove_process_set(int32_t process_set, farandole_error** error);
/* Writes up to `capacity` of the set's ranks, ascending. Returns the number of ranks in the set; -1 if there is no such
 * set or no engine. `ranks` may be NULL to get only the number. Non-blocking. */
FARANDOLE_C_API int32_t farandole_process_set_ranks(int32_t process_set, int32_t* ranks, int32_t capacity);
/* Writes up to `capacity` ids of the existing sets, FARANDOLE_GLOBAL_SET included. Returns the number of sets; 0
 * without an engine. `ids` may be NULL to get only the number. Non-blocking. */
FARANDOLE_C_API int32_t farandole_process_sets(int32_t* ids, int32_t capacity);

/* ---- Tensors ------------------------------------------------------------------------------------------------- */

/* Result of a tensor, passed to its `done` callback. The structure and everything it points to are valid until the
 * callback returns. */
typedef struct farandole_result {
  size_t struct_bytes;
  const farandole_error* error; /* NULL: success. Owned by the library: do not free */
  const int64_t* shape;         /* the output's shape; may be empty after an error */
  int32_t dimensions;
  const int64_t* received_splits; /* alltoall: number of rows from each rank of the set */
  int32_t received_splits_count;
  /* CUDA memory: event (cudaEvent_t) that is complete once the output is written and the input is no longer read. Use
   * it to make other streams wait for the result; the tensor's stream waits already. Make them wait
   * (cudaStreamWaitEvent) before the callback returns, because the library then records the event again. NULL for host
   * memory, after an error, and if the device has nothing to do. */
  void* completion_event;
} farandole_result;

/* One tensor of a request. farandole_submit copies the structure, `shape` and `splits`; the caller may release them as
 * soon as farandole_submit returns. Input and output belong to the engine until `done` is called. In CUDA memory, after
 * `done` only work that waits for the result may use them. */
typedef struct farandole_tensor {
  size_t struct_bytes;
  farandole_dtype dtype;
  int32_t dimensions;   /* 0 (a scalar) to 255 */
  const int64_t* shape; /* the input's shape; NULL only for a scalar */
  const void* input;    /* must stay valid and unchanged until `done`; NULL if the tensor has no elements */
  /* Allreduce and broadcast: memory of the output, as large as the input. Must stay valid until `done`. The output may
   * be the input itself. It must not overlap any other memory of the request (INVALID_ARGUMENT), except that tensors of
   * a broadcast may share one output. Other collectives: NULL; the engine calls `allocate` for the output's memory. */
  void* output;
  const int64_t* splits; /* alltoall: rows for each rank of the set; NULL: equal parts. Other collectives ignore it */
  int32_t splits_count;  /* size of the set; 0 if `splits` is NULL */
  void* context;         /* passed to both callbacks */
  /* Returns memory for an output of this shape, 64-byte aligned if possible, that does not overlap the input. The
   * tensor fails with INVALID_ARGUMENT if the memory overlaps the input, or is NULL although the output has elements.
   * Required for allgather, alltoall and reduce_scatter. Called at most once, before `done`, from any thread. Must not
   * block. CUDA memory: the memory must be of the tensor's device; earlier work in the tensor's stream may still use
   * the memory. */
  void* (*allocate)(void* context, const int64_t* shape, int32_t dimensions);
  /* Called exactly once if farandole_submit succeeded, from any thread, possibly before farandole_submit returns. Must
   * not block; may submit. Must not be NULL. */
  void (*done)(void* context, const farandole_result* result);
  /* Kind of memory of input and output; the same on all ranks. FARANDOLE_CUDA_MEMORY is INVALID_ARGUMENT on a rank
   * without a device; docs/gpu.md lists what a device needs. */
  farandole_memory memory;
  /* CUDA memory: ordinal of the device among those that the process sees. Any device but the rank's own (setting
   * FARANDOLE_DEVICE, default the local rank) is INVALID_ARGUMENT. */
  int32_t device;
  /* CUDA memory: stream (cudaStream_t) in which the program writes the input and uses the output; NULL: the device's
   * default stream. The collective waits for the work that is in the stream when farandole_submit is called. Work that
   * is enqueued in the stream after `done` was called waits for the collective. The stream must exist until `done`
   * returns. INVALID_ARGUMENT: a stream that is being captured into a graph, and cudaStreamPerThread, which is a
   * different stream in each thread. */
  void* stream;
  /* CUDA memory: event (cudaEvent_t) that the program has recorded after the work that writes the input. The collective
   * waits for this event instead of for the work in `stream`; so no pending work, in any stream, may use the output.
   * The event must exist, and must not be recorded again, until `done` returns. It must not have been recorded in a
   * captured stream. NULL: farandole_submit records an event in `stream`. */
  void* ready_event;
} farandole_tensor;

/* Who waits for a request. The engine uses this to detect deadlocks: if every rank waits for names that its peers have
 * not submitted, all those requests fail with MISMATCH. A deadlock of requests with CALLER_WAITS is detected within a
 * second, with PROGRAM_WAITS once the processes have been idle for a sixth of FARANDOLE_WARN_AFTER. */
typedef enum farandole_waiting {
  FARANDOLE_NOBODY_WAITS = 0,
  FARANDOLE_CALLER_WAITS = 1, /* the submitting thread, which does nothing else until `done` */
  FARANDOLE_PROGRAM_WAITS = 2 /* the program, whose other threads may submit meanwhile */
} farandole_waiting;

/* A collective on one tensor, or on several tensors that belong together. It starts once every rank has submitted the
 * request. All ranks must agree on name, collective, op, root, factors, `about`, `by_order`, number of tensors, their
 * types, kinds of memory and shapes (the first dimension may differ for allgather and alltoall); a difference is
 * MISMATCH on all ranks. */
typedef struct farandole_request {
  size_t struct_bytes;
  const char* name; /* 1 byte to 1 MiB; unique among this rank's pending requests of the set */
  farandole_collective collective;
  farandole_reduce_op op;
  int32_t root; /* broadcast: the root's rank in the job */
  int32_t process_set;
  /* Allreduce and reduce_scatter: factors of the inputs, before the reduction, and of the results; 1.0 for no scaling.
   * 0 also means no scaling, because omitted fields of a designated initialiser are 0; see `has_factors`. */
  double prescale, postscale;
  const farandole_tensor* tensors;
  int32_t tensor_count; /* at least 1; a barrier has one tensor without data, for its `done` */
  int32_t caller_waits; /* a farandole_waiting */
  uint64_t generation;  /* farandole_generation at the start of the request's step; 0: belongs to no step */
  /* Further property on which all ranks must agree, as text for people: "object of root 1". NULL for none. A difference
   * is MISMATCH, and the error quotes both texts. */
  const char* about;
  /* 1: the name was made from the order of calls (in Python "noname.7"), and is reused for other tensors. The request
   * then waits until earlier requests of its name on this rank have ended, instead of failing with DUPLICATE_NAME. */
  int32_t by_order;
  /* 1: prescale and postscale are taken literally, so that a factor of 0 makes zeros; set it where a user gives the
   * factors. 0: a factor of 0 means no scaling. */
  int32_t has_factors;
} farandole_request;

/* Returns the current generation of steps in a process set; 0 if there is no such set or no engine. Call it before the
 * first request of a step, and store the result in every request of the step. Non-blocking.
 *
 * A step is a part of a program whose requests fail together: a framework gives up a function once a part of the
 * function has failed. When ranks disagree about one request of a step (MISMATCH), the whole step fails on all ranks of
 * the set: pending requests of the step fail together, and later requests of the step fail as soon as they are
 * submitted.
 *
 * Why the whole step fails: suppose that rank 0 has submitted a request "b" of the step, and that rank 1 gives up the
 * step before it reaches "b". If "b" stayed pending on rank 0, it would be matched with the request "b" of rank 1's
 * next step.
 *
 * The generation counts the failed steps, equally on all ranks, and so distinguishes requests of a failed step from
 * requests of the next step. Steps that run concurrently in one set fail together. */
FARANDOLE_C_API uint64_t farandole_generation(int32_t process_set);

/* Submits a request: `done` of each tensor reports the result. Until then the tensors' memory belongs to the engine.
 * Does not wait for other ranks, but may run the engine on the caller's thread: for about 60 us if this is the only
 * pending request; with CALLER_WAITS until the thread would have to sleep.
 * Cost: when a name is new or its request has changed, the ranks exchange the request's description; later submissions
 * cost one byte in the next negotiation. Tensors of allreduces and broadcasts that are smaller than 128 KiB (4 MiB on a
 * device) are packed together in fusion buffers of at most FARANDOLE_FUSION_BYTES. The first tensors on a device cost
 * more: the thread may wait until the device is open, and until the ranks have connected their devices.
 *
 * If farandole_submit fails, the caller keeps the memory, and no callback is called. Errors:
 * - INVALID_ARGUMENT: the request cannot work, whatever the other ranks submit. The engine also refuses the request on
 *   behalf of this rank (see farandole_refuse), unless the name or the generation is invalid or this rank is not in the
 *   process set.
 * - DUPLICATE_NAME: a request of this name is pending on this rank.
 * - The fault of the job, if there is one.
 * Disagreements between ranks are reported as MISMATCH to the callbacks of all ranks. */
FARANDOLE_C_API int farandole_submit(const farandole_request* request, farandole_error** error);

/* Tells the other ranks that this rank cannot make a request, for the reason `why`. Their requests of this name then
 * fail with MISMATCH, which names this rank and the reason, instead of waiting for this rank. If every rank refuses,
 * nothing happens. Reads only name, process set, generation and `by_order` of `request`, and the first MiB of `why`
 * (may be NULL). If this rank submits a request of the same name later, that request waits until the ranks have
 * compared the refusal. Non-blocking, reports no error. No-op without an engine, and while a request of this name is
 * pending. */
FARANDOLE_C_API void farandole_refuse(const farandole_request* request, const char* why);

/* Blocks until `*flag` is not 0. Meanwhile runs the engine on the calling thread, which saves the switch to the
 * engine's thread. Let `done` store the flag with release order. Returns immediately for NULL or without an engine. */
FARANDOLE_C_API void farandole_wait_until(const volatile int32_t* flag);

/* Joins: declares that this rank has no more data until all ranks of the set have joined. Use it where ranks have
 * different numbers of batches. Non-blocking.
 *
 * Until all ranks have joined, this rank takes part in the set's allreduces without changing their results: it supplies
 * zeros for sums, averages, Adasum, BIT_OR and BIT_XOR, ones for products, the end of the type's range for minima and
 * maxima, and all bits set for BIT_AND. If its peers reduce tensors on devices, this rank needs a device, too; without
 * a device the job ends with a fault. Meanwhile requests other than allreduces and barriers fail with MISMATCH.
 *
 * Once all ranks have joined, `done` is called once with the job rank that joined last, or with an error (owned by the
 * library) and -1. It follows the rules of a tensor's `done`. If farandole_join fails, `done` is not called. Errors:
 * INVALID_ARGUMENT (`done` is NULL, this rank is not in the set), or the fault of the job. */
FARANDOLE_C_API int farandole_join(int32_t process_set, void* context,
                                   void (*done)(void* context, const farandole_error* error, int32_t last_rank),
                                   farandole_error** error);

/* ---- Timeline ------------------------------------------------------------------------------------------------ */

/* Starts a timeline: rank 0 records in the file `path`, in the format of Chrome's traces, when each named tensor was
 * negotiated, waited and moved. Replaces an existing file, and ends a timeline that is being written. If `mark_cycles`
 * is 1, each negotiation is marked, too. Not collective; no-op on ranks other than 0. The setting FARANDOLE_TIMELINE
 * starts a timeline at farandole_init. Errors: INVALID_ARGUMENT (the file cannot be written). */
FARANDOLE_C_API int farandole_start_timeline(const char* path, int32_t mark_cycles, farandole_error** error);
/* Ends the timeline; blocks until the file is written. No-op without a timeline. farandole_shutdown ends it, too. */
FARANDOLE_C_API int farandole_stop_timeline(farandole_error** error);

/* ---- Counters ------------------------------------------------------------------------------------------------ */

/* Counts of this rank's engine since farandole_init; all 0 without an engine. */
typedef struct farandole_counters {
  size_t struct_bytes;
  uint64_t requests;       /* submitted requests */
  uint64_t negotiations;   /* negotiations, in which ranks compare which requests are ready */
  uint64_t named;          /* requests that this rank announced by name, because they were new or had changed */
  uint64_t buckets;        /* collectives that moved data, for one tensor or a packed bucket */
  uint64_t packed_tensors; /* tensors that were copied into a fusion buffer */
  uint64_t packed_bytes;   /* bytes of these tensors */
  uint64_t reduced_bytes;  /* bytes of allreduces and reduce_scatters */
  uint64_t broken_buckets; /* planned buckets of which only a part became ready */
  uint64_t sent_bytes;     /* bytes sent to other processes in messages */
  uint64_t device_buckets; /* collectives on device memory, which `buckets` counts too */
  uint64_t device_kernels; /* launches of kernels that pack, unpack and scale tensors in device memory */
  uint64_t host_waits;     /* times that the engine's thread or farandole_submit waited for a device, or for other ranks
                              to reach a device. Does not grow between two equal training steps without alltoalls and
                              averages of integers. Waits inside NCCL are not counted */
} farandole_counters;
/* Fills `*counters` up to its `struct_bytes`. May wait while another thread runs the engine. */
FARANDOLE_C_API void farandole_get_counters(farandole_counters* counters);

/* NOLINTEND(readability-identifier-naming) */
#ifdef __cplusplus
}
#endif

#endif /* FARANDOLE_ENGINE_H */
