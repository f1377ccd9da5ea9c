// SPDX-License-Identifier: Apache-2.0
// Embeds a file in a source: FARANDOLE_EMBED(name, "path") defines the symbols `name`, its bytes, and `name_size`.
#pragma once

#define FARANDOLE_EMBED(symbol, file)         \
  asm(".pushsection .rodata, \"a\"\n"         \
      ".globl " #symbol ", " #symbol          \
      "_size\n"                               \
      ".hidden " #symbol ", " #symbol         \
      "_size\n"                               \
      ".balign 64\n" #symbol                  \
      ":\n"                                   \
      ".incbin \"" file                       \
      "\"\n"                                  \
      ".Lend_of_" #symbol                     \
      ":\n"                                   \
      ".balign 8\n" #symbol                   \
      "_size:\n"                              \
      ".quad .Lend_of_" #symbol " - " #symbol \
      "\n"                                    \
      ".popsection")
