/* SPDX-License-Identifier: Apache-2.0 */
/* Named tensors, reduced in any order: Farandole's interface for frameworks, in plain C.
 *
 * Frameworks submit tensors in an order that differs from rank to rank. The engine agrees on one order, packs small
 * tensors together, and runs the collectives. A tensor is known by its name: the ranks of a process set that submit a
 * name together mean the same tensor.
 *
 * A process has one engine. Every function may be called from any thread unless it says otherwise; none needs a lock of
 * the caller's. What can fail returns 0 for success, or 1 and an error in `*error`, which the caller frees; `error` may
 * be NULL. Texts are UTF-8.
 *
 * None throws, and none crashes whatever numbers and null pointers it is given. A null pointer where the function needs
 * one, a number out of its range, a shape whose bytes no process has room for (2^47), more than 255 dimensions, a text
 * of more than 1 MiB and a structure that does not tell its size are INVALID_ARGUMENT. Functions that report no error
 * do nothing then, and return what they return when there is nothing: NULL, an empty text, 0, -1; farandole_abort and
 * farandole_log take the first 1 MiB of their text. The caller answers
 * for what can not be seen: a pointer that is not NULL points to as much as this header says.
 *
 * Structures grow at their end only, and begin with their size. Set `struct_bytes` to sizeof: so the library knows
 * which fields the caller's version has.
 * - The library copies a caller's structure up to `struct_bytes`. Fields beyond are 0 to it, and 0 means what the
 *   library did before the field was there (but `has_factors`: a factor of 0 was meant as 0 before). What a newer
 * caller's structure has beyond the library's is not read.
 * - An array is stepped by the `struct_bytes` of its first element, and all its elements have the same.
 * - A structure that the library fills (farandole_place, farandole_counters) is written up to `struct_bytes`; fields
 *   that the library does not know stay as they were.
 * - A structure that the library makes (farandole_result) tells the library's size: read a field that is newer than
 *   version 0.1 only if `struct_bytes` reaches to its end.
 * - `struct_bytes` less than sizeof(size_t), as 0 is, more than 4096, or no multiple of the structure's alignment is no
 *   caller's: INVALID_ARGUMENT.
 */
#ifndef FARANDOLE_ENGINE_H
#define FARANDOLE_ENGINE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* C has no namespaces. NOLINTBEGIN(readability-identifier-naming) */
#define FARANDOLE_ENGINE_API __attribute__((visibility("default")))

/* What went wrong; the numbers are those of farandole::ErrorKind. After the kinds from TIMEOUT to DEVICE_ERROR no
 * collective of the job can succeed any more; after the others the engine stays usable. */
typedef enum farandole_error_kind {
  FARANDOLE_INVALID_ARGUMENT = 0,
  FARANDOLE_UNSUPPORTED = 1,
  FARANDOLE_MISMATCH = 2,
  FARANDOLE_DUPLICATE_NAME = 3,
  FARANDOLE_TIMEOUT = 4,
  FARANDOLE_PEER_LOST = 5,
  FARANDOLE_TRANSPORT_ERROR = 6,
  FARANDOLE_DEVICE_ERROR = 7,
  FARANDOLE_DATA_ERROR = 8,
  FARANDOLE_INTERNAL = 9
} farandole_error_kind;

typedef struct farandole_error farandole_error;
/* FARANDOLE_INTERNAL for NULL, whose text is empty. */
FARANDOLE_ENGINE_API farandole_error_kind farandole_error_get_kind(const farandole_error* error);
/* "Mismatch", …; "unknown" for a number that is no kind. */
FARANDOLE_ENGINE_API const char* farandole_error_kind_name(farandole_error_kind kind);
/* Lives as long as the error. */
FARANDOLE_ENGINE_API const char* farandole_error_text(const farandole_error* error);
/* NULL is allowed. */
FARANDOLE_ENGINE_API void farandole_error_free(farandole_error* error);

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

typedef enum farandole_reduce_op {
  FARANDOLE_SUM = 0,
  FARANDOLE_PRODUCT = 1,
  FARANDOLE_MIN = 2,
  FARANDOLE_MAX = 3,
  FARANDOLE_AVERAGE = 4, /* of integers truncated toward zero; not for bool */
  FARANDOLE_ADASUM = 5   /* floating-point types, allreduce only */
} farandole_reduce_op;

typedef enum farandole_collective {
  FARANDOLE_ALLREDUCE = 0,
  FARANDOLE_ALLGATHER = 1,      /* concatenates along the first dimension, which may differ from rank to rank */
  FARANDOLE_BROADCAST = 2,      /* from `root`; in and out may be the same memory */
  FARANDOLE_ALLTOALL = 3,       /* `splits` rows of the first dimension to each rank */
  FARANDOLE_REDUCE_SCATTER = 4, /* rows of the first dimension are dealt out; the first ranks get one more if uneven */
  FARANDOLE_BARRIER = 5         /* no data */
} farandole_collective;

/* The process set of all ranks. */
#define FARANDOLE_GLOBAL_SET 0

/* ---- The job ------------------------------------------------------------------------------------------------- */

typedef struct farandole_init_options {
  size_t struct_bytes;
  int32_t expected_size;        /* ranks that there must be; 0: any number */
  int32_t has_mpi_communicator; /* 1: join the MPI communicator below instead of all processes */
  int32_t mpi_communicator;     /* MPI_Comm_c2f of it */
} farandole_init_options;

/* A program that has initialised MPI itself: with MPI_THREAD_MULTIPLE it may call it at any time; with
 * MPI_THREAD_SERIALIZED not between farandole_init and the end of farandole_shutdown, because the engine calls it from
 * a thread of its own, also while nothing of the caller's is pending (a warning says so); with less there is no engine
 * (UNSUPPORTED).
 *
 * Joins the job that mpirun or Slurm started, or that FARANDOLE_RANK, FARANDOLE_SIZE and FARANDOLE_JOB (over several
 * hosts FARANDOLE_RENDEZVOUS), or torchrun's variables name (else a job of this process alone) and starts the engine.
 * Collective over all processes; blocks. Does nothing if the engine runs already. `options` may be NULL. */
FARANDOLE_ENGINE_API int farandole_init(const farandole_init_options* options, farandole_error** error);
/* Leaves the job by a clean shutdown: waits until all ranks have called it. Tensors that are pending here fail. The
 * other ranks' pending tensors that need this rank fail with PEER_LOST. Afterwards farandole_init may be called again,
 * in a job of MPI only if the program has initialised MPI itself; else it is UNSUPPORTED, because MPI starts once in a
 * process. After a fault of the job it does not wait. */
FARANDOLE_ENGINE_API int farandole_shutdown(farandole_error** error);
/* 0 before farandole_init, after farandole_shutdown, and in a process that was forked from one with an engine: a child
 * is no rank, and what it has of the engine is a copy without threads and connections. There farandole_init starts an
 * engine of its own: alone, or, with FARANDOLE_RANK, FARANDOLE_SIZE and FARANDOLE_JOB of its own, in another job. */
FARANDOLE_ENGINE_API int farandole_is_initialized(void);
/* INVALID_ARGUMENT in such a child, as long as it has no engine of its own; the text names the rank. */
FARANDOLE_ENGINE_API int farandole_check_not_forked(farandole_error** error);
/* Fails everything that is pending or comes later, on all ranks, with PEER_LOST, this rank and `text` (NULL: none).
 * Never blocks. */
FARANDOLE_ENGINE_API void farandole_abort(const char* text);

/* Where this process is. -1 for all where farandole_is_initialized is 0. */
typedef struct farandole_place {
  size_t struct_bytes;
  int32_t rank, size;
  int32_t local_rank, local_size; /* among the ranks of this host */
  int32_t host_index, host_count;
  int32_t cross_rank, cross_size; /* among the ranks of all hosts that have this local rank */
  int32_t is_homogeneous;         /* 1: every host has the same number of ranks */
} farandole_place;
FARANDOLE_ENGINE_API void farandole_get_place(farandole_place* place);

/* What is built, found and chosen, as JSON; before farandole_init only what is known then. Free with
 * farandole_text_free. */
FARANDOLE_ENGINE_API char* farandole_describe(void);
FARANDOLE_ENGINE_API void farandole_text_free(char* text);
FARANDOLE_ENGINE_API const char* farandole_version(void);
/* Path of the loaded library that holds the engine. */
FARANDOLE_ENGINE_API const char* farandole_library_path(void);
/* The log of the core: level 0 debug, 1 info, 2 warning, 3 error. Other levels are taken for the nearest of these. */
FARANDOLE_ENGINE_API void farandole_log(int32_t level, const char* text);

/* ---- Process sets -------------------------------------------------------------------------------------------- */

/* Makes a process set of `count` ranks. All ranks of the job call it with the same ranks, in any order of other calls;
 * blocks until they have. The same ranks again give the same set. */
FARANDOLE_ENGINE_API int farandole_add_process_set(const int32_t* ranks, int32_t count, int32_t* process_set,
                                                   farandole_error** error);
/* All ranks of the job call it. What is pending in the set fails. */
FARANDOLE_ENGINE_API int farandole_remove_process_set(int32_t process_set, farandole_error** error);
/* Ranks of a set in ascending order: returns their number, and writes up to `capacity` of them; `ranks` may be NULL, to
 * count them. -1: no such set. */
FARANDOLE_ENGINE_API int32_t farandole_process_set_ranks(int32_t process_set, int32_t* ranks, int32_t capacity);
/* Ids of all sets, FARANDOLE_GLOBAL_SET among them: returns their number, and writes up to `capacity` of them; `ids`
 * may be NULL, to count them. */
FARANDOLE_ENGINE_API int32_t farandole_process_sets(int32_t* ids, int32_t capacity);

/* ---- Tensors ------------------------------------------------------------------------------------------------- */

/* What a finished tensor is. Valid during the callback only. */
typedef struct farandole_result {
  size_t struct_bytes;
  const farandole_error* error; /* NULL: success. Not to be freed */
  const int64_t* shape;         /* of the output */
  int32_t dimensions;
  const int64_t* received_splits; /* alltoall: rows that came from each rank; one per rank of the set */
  int32_t received_splits_count;
} farandole_result;

/* Where a tensor's memory is. The engine moves memory of the host only. */
typedef enum farandole_memory { FARANDOLE_HOST_MEMORY = 0, FARANDOLE_CUDA_MEMORY = 1 } farandole_memory;

/* One tensor of a request. */
typedef struct farandole_tensor {
  size_t struct_bytes;
  farandole_dtype dtype;
  int32_t dimensions;   /* 0 to 255 */
  const int64_t* shape; /* of the input; copied by farandole_submit. NULL only for 0 dimensions */
  const void* input;    /* stays valid and unchanged until `done`; NULL if it has no elements */
  /* Allreduce and broadcast: the memory of the output, as large as the input. It may be the input, and must overlap no
   * other memory of the request (INVALID_ARGUMENT); broadcasts alone may name one output twice. The others: NULL, their
   * output is asked for with `allocate`. Stays valid until `done`. */
  void* output;
  const int64_t* splits; /* alltoall: rows for each rank of the set; copied. NULL: equal parts. Else not read */
  int32_t splits_count;  /* the size of the set; 0 for NULL */
  void* context;         /* handed to both callbacks */
  /* Memory for an output of this shape, 64-byte aligned if possible, apart from the input. Called once, from any
   * thread, before `done`, if `output` is NULL. NULL: no memory; the tensor fails. */
  void* (*allocate)(void* context, const int64_t* shape, int32_t dimensions);
  /* Called exactly once if farandole_submit succeeded, from any thread, maybe before farandole_submit returns. It must
   * not block; it may submit. Not NULL. */
  void (*done)(void* context, const farandole_result* result);
  /* Of input and output. FARANDOLE_CUDA_MEMORY is UNSUPPORTED, and MISMATCH on ranks that pass host memory: copy the
   * tensor to the host, or use farandole::Communicator, which takes device memory. */
  farandole_memory memory;
  int32_t device; /* ordinal of the device among those that the process sees; not read today */
} farandole_tensor;

/* Who waits for a request. If every rank waits for names that its peers have not submitted, all of them get MISMATCH:
 * callers within a second, programs when their processes have stood still for a sixth of FARANDOLE_WARN_AFTER. */
typedef enum farandole_waiting {
  FARANDOLE_NOBODY_WAITS = 0,
  FARANDOLE_CALLER_WAITS = 1, /* the thread that submits, which does nothing else until `done` */
  FARANDOLE_PROGRAM_WAITS = 2 /* the program, whose other threads may submit meanwhile */
} farandole_waiting;

/* Tensors that are reduced together: none before all of them are ready on all ranks. */
typedef struct farandole_request {
  size_t struct_bytes;
  const char* name; /* the same on all ranks; unique among what is pending here in the set */
  farandole_collective collective;
  farandole_reduce_op op;
  int32_t root; /* of a broadcast: rank of the job */
  int32_t process_set;
  /* Factors of inputs and results; 1.0 for none. So is 0, which a designated initialiser makes of what is left out,
   * unless `has_factors` is set. */
  double prescale, postscale;
  const farandole_tensor* tensors;
  int32_t tensor_count; /* of a barrier too: one tensor without data, whose `done` is called */
  int32_t caller_waits; /* farandole_waiting */
  uint64_t generation;  /* farandole_generation when the step began that it belongs to; 0: it belongs to none */
  /* What else must be the same on all ranks and can not be seen from the rest, for people: "object of root 1". NULL
   * for nothing. Ranks that differ in it disagree (MISMATCH, with both texts). */
  const char* about;
  /* 1: the name was made from the order of calls, and comes again for other tensors: the request waits until the
   * earlier ones of its name have ended here, instead of DUPLICATE_NAME. The same on all ranks. */
  int32_t by_order;
  /* 1: prescale and postscale are meant as they are: a factor of 0 makes zeros. Set it where a user gives the factors.
   * 0: a factor of 0 was left out, and means none. */
  int32_t has_factors;
} farandole_request;

/* A step is a part of a program whose requests fail together, as a framework gives up a function when a part of it has
 * failed. When ranks disagree about one request of a step (MISMATCH), everything of it fails in the process set on all
 * ranks: what is pending at once, and what is submitted later when it is. Otherwise a rank that had submitted a request
 * before its step failed would wait for one whose step failed before it came to that request, and would meet what this
 * one submits in a later step.
 *
 * The generation of a set counts such failures, alike on all ranks; a step takes it before its first request in the
 * set. Steps that run at the same time in one set fail together. 0: there is no such set, or no engine. */
FARANDOLE_ENGINE_API uint64_t farandole_generation(int32_t process_set);

/* Hands over a request; the memory it names belongs to the engine until each tensor's `done`. Does not wait for other
 * ranks, but may work a little while on the caller's thread. If it fails nothing was handed over and no callback comes:
 * INVALID_ARGUMENT for what can not work whatever the other ranks do, DUPLICATE_NAME for a name that is pending here.
 * What ranks disagree on comes as MISMATCH to the callbacks of all of them. INVALID_ARGUMENT counts as a call of this
 * rank (farandole_refuse), unless the process set or its member is what is invalid. */
FARANDOLE_ENGINE_API int farandole_submit(const farandole_request* request, farandole_error** error);

/* In the place of a request that can not be made, for the reason `why`: the request of this name that each other rank
 * submits fails with MISMATCH, which names this rank and the reason, instead of waiting for this rank. Where every rank
 * refuses nothing happens. Of `request` only the name, the process set, the generation and `by_order` are read; of
 * `why` the first MiB. What this rank submits under the name afterwards waits until the refusal has been compared. Does
 * not block, never fails: without an engine, and where the name is pending, it does nothing. */
FARANDOLE_ENGINE_API void farandole_refuse(const farandole_request* request, const char* why);

/* Blocks the calling thread, which moves the engine on meanwhile, until `*flag` is not 0: callers set it in `done`.
 * Returns at once for NULL. */
FARANDOLE_ENGINE_API void farandole_wait_until(const volatile int32_t* flag);

/* This rank has no more data for a while: until all ranks have joined it takes part in the set's allreduces without
 * changing their results: with zeros in sums, averages and Adasum, with ones in products, in minima and maxima with the
 * end of the type's range. Then `done` is called with the last rank that joined. Other collectives fail meanwhile. */
FARANDOLE_ENGINE_API int farandole_join(int32_t process_set, void* context,
                                        void (*done)(void* context, const farandole_error* error, int32_t last_rank),
                                        farandole_error** error);

/* ---- Memory -------------------------------------------------------------------------------------------------- */

/* Memory that the ranks of this host share (a window), 64-byte aligned: collectives on it need no copies. NULL if there
 * is no engine, no sharing, or no room: use ordinary memory then. It stays valid after farandole_shutdown. */
FARANDOLE_ENGINE_API void* farandole_window_allocate(size_t bytes);
/* 1 if `memory` was a window and is freed, else 0. Cheap for other memory. */
FARANDOLE_ENGINE_API int farandole_window_free(void* memory);

/* ---- Timeline ------------------------------------------------------------------------------------------------ */

/* From now on rank 0 writes into this file, which it replaces, when each named tensor was negotiated, waited and moved,
 * in the format of Chrome's traces; a file that was being written is ended. `mark_cycles` 1: each negotiation too. On
 * other ranks it does nothing. INVALID_ARGUMENT: the file can not be written. Not collective. FARANDOLE_TIMELINE does
 * the same at farandole_init. */
FARANDOLE_ENGINE_API int farandole_start_timeline(const char* path, int32_t mark_cycles, farandole_error** error);
/* Ends the file once all is written; does nothing if there is none. farandole_shutdown does it too. */
FARANDOLE_ENGINE_API int farandole_stop_timeline(farandole_error** error);

/* ---- Counters ------------------------------------------------------------------------------------------------ */

/* Since farandole_init. */
typedef struct farandole_counters {
  size_t struct_bytes;
  uint64_t requests;       /* submitted */
  uint64_t negotiations;   /* in which ranks compared what is ready */
  uint64_t named;          /* requests that were negotiated by name */
  uint64_t buckets;        /* collectives that moved data */
  uint64_t packed_tensors; /* that were copied into a fusion buffer */
  uint64_t packed_bytes;
  uint64_t reduced_bytes;  /* of allreduces and reduce_scatters */
  uint64_t broken_buckets; /* planned buckets of which only a part came */
  uint64_t sent_bytes;     /* to other processes, in messages */
} farandole_counters;
FARANDOLE_ENGINE_API void farandole_get_counters(farandole_counters* counters);

/* NOLINTEND(readability-identifier-naming) */
#ifdef __cplusplus
}
#endif

#endif /* FARANDOLE_ENGINE_H */
