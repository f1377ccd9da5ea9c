/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers of the fuzz tests in C, from a seed. */
#ifndef FARANDOLE_TESTS_FUZZ_NUMBERS_H
#define FARANDOLE_TESTS_FUZZ_NUMBERS_H

#include <stdint.h>

static uint64_t state; /* the seed, before the first number */

static uint64_t next_number(void) { /* splitmix64 */
  uint64_t z = (state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}
/* A number from 0 to limit - 1. */
static int below(int limit) {
  return (int)(next_number() % (uint64_t)limit);
}

#define ONE_OF(table) ((table)[below((int)(sizeof(table) / sizeof(table)[0]))])

#endif
