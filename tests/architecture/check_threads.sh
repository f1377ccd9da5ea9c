#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: check_threads.sh SOURCE_DIRECTORY
# Checks that the library starts threads only by start_library_thread (core/internal/farandole/internal/library_thread.h),
# which blocks signals in them. Exception: the replicas of run_replicas are the program's own ranks, so they, and programs that
# they start, keep the caller's signals. Types and members named std::jthread start no thread; the vector in prefetcher.h gets its
# threads from start_library_thread. ops/torch knows C headers only, and blocks signals itself.
set -u
cd "$1" || exit 2
started='std::thread *(\(|\{|[a-z_]+ *[({])|std::jthread *(\(|\{|[a-z_]+ *[({])|vector<std::j?thread>|std::async *\(|pthread_create *\('
found=$(grep -rnE --include='*.h' --include='*.cpp' --include='*.cu' "$started" core collectives/src collectives/include ops |
        grep -vE '^(core/internal/farandole/internal/library_thread\.h|collectives/src/communicator/replicas\.cpp|ops/torch/src/completion_threads\.cpp):|^ops/trainer/src/prefetcher\.h:.* threads_;')
[ -z "$found" ] || { echo "threads that do not block signals; start them by start_library_thread:"; echo "$found"; exit 1; }
echo "the library's threads block signals"
