/* SPDX-License-Identifier: Apache-2.0
 * usage, with two ranks on two hosts: socket_messages
 * What messages between two hosts cost without any library: medians of one TCP connection, for vectors that rank 0 sends
 * alone, while rank 1 sends 64 bytes back, and while rank 1 sends as much. A barrier of MPI precedes each sample.
 *   mpicc -O2 -o socket_messages tests/bench/socket_messages.c
 *   tests/mpi/two_hosts.sh mpirun.openmpi 1 60 $PWD/socket_messages
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <mpi.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum { kLargest = 1 << 19, kMostSamples = 2000 };
static char sent[kLargest], received[kLargest];

static void need(int is_true, const char* what) {
  if (is_true) return;
  perror(what);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static double microseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1e6 + now.tv_nsec / 1e3;
}

static int compare(const void* a, const void* b) {
  const double left = *(const double*)a, right = *(const double*)b;
  return (left > right) - (left < right);
}

/* The address of an interface that is not the loopback. */
static struct in_addr own_address(void) {
  struct in_addr found = {0};
  struct ifaddrs* all;
  need(getifaddrs(&all) == 0, "getifaddrs");
  for (const struct ifaddrs* each = all; each != NULL; each = each->ifa_next) {
    if (each->ifa_addr == NULL || each->ifa_addr->sa_family != AF_INET || strcmp(each->ifa_name, "lo") == 0) continue;
    found = ((const struct sockaddr_in*)each->ifa_addr)->sin_addr;
  }
  freeifaddrs(all);
  return found;
}

/* A connection between rank 0 and rank 1. */
static int connection(int rank) {
  struct sockaddr_in address = {.sin_family = AF_INET};
  socklen_t length = sizeof address;
  int file = socket(AF_INET, SOCK_STREAM, 0);
  need(file >= 0, "socket");
  if (rank == 0) {
    const int listening = file;
    address.sin_addr = own_address();
    need(bind(listening, (void*)&address, length) == 0, "bind");
    need(listen(listening, 1) == 0, "listen");
    getsockname(listening, (void*)&address, &length);
    MPI_Bcast(&address, sizeof address, MPI_BYTE, 0, MPI_COMM_WORLD);
    file = accept(listening, NULL, NULL);
    need(file >= 0, "accept");
  } else {
    MPI_Bcast(&address, sizeof address, MPI_BYTE, 0, MPI_COMM_WORLD);
    need(connect(file, (void*)&address, length) == 0, "connect");
  }
  const int on = 1;
  setsockopt(file, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return file;
}

static void exchange(int file, size_t to_send, size_t to_receive) {
  for (size_t out = 0, in = 0; out < to_send || in < to_receive;) {
    if (out < to_send) {
      const ssize_t bytes = send(file, sent + out, to_send - out, MSG_DONTWAIT);
      if (bytes > 0) out += (size_t)bytes;
    }
    if (in < to_receive) {
      const ssize_t bytes = recv(file, received + in, to_receive - in, MSG_DONTWAIT);
      if (bytes > 0) {
        in += (size_t)bytes;
      } else if (out == to_send) {
        sched_yield();
      }
    }
  }
}

/* Prints the median of rank 0 and of the slower rank. `back`: bytes that rank 1 sends. */
static void measure(int file, int rank, size_t bytes, size_t back, const char* name) {
  static double times[kMostSamples];
  const int samples = bytes > 65536 ? 400 : kMostSamples;
  for (int i = 0; i < samples; ++i) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = microseconds();
    if (rank == 0) {
      exchange(file, bytes, back);
    } else {
      exchange(file, back, bytes);
    }
    times[i] = microseconds() - begin;
  }
  qsort(times, (size_t)samples, sizeof *times, compare);
  double slowest;
  MPI_Reduce(&times[samples / 2], &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("%8zu bytes, %-14s rank 0 %7.1f us, slower rank %7.1f us\n", bytes, name, times[samples / 2], slowest);
}

int main(int argc, char** argv) {
  int rank, size;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size != 2) {
    if (rank == 0) fprintf(stderr, "socket_messages: two ranks are needed, and there are %d\n", size);
    MPI_Finalize();
    return 2;
  }
  const int file = connection(rank);
  for (size_t bytes = 1024; bytes <= kLargest; bytes *= 4) {
    measure(file, rank, bytes, 0, "one way");
    measure(file, rank, bytes, 64, "64 bytes back");
    measure(file, rank, bytes, bytes, "both ways");
  }
  MPI_Finalize();
  return 0;
}
