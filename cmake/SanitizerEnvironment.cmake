# SPDX-License-Identifier: Apache-2.0
# Environment of the tests of a build with sanitizers. ctest reads this file before it starts tests. The caller's
# options come last, so they take precedence.
#
# intercept_tls_get_addr=0: otherwise the leak checker of g++ 12 can end a program that has passed (docs/testing.md).
set(ENV{ASAN_OPTIONS} "intercept_tls_get_addr=0:$ENV{ASAN_OPTIONS}")
set(ENV{TSAN_OPTIONS} "suppressions=${CMAKE_CURRENT_LIST_DIR}/../tests/support/tsan.supp:$ENV{TSAN_OPTIONS}")
