// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <string>
#include <utility>

#include "farandole/core/error.h"

namespace farandole::test {

/// Returns the text, without the kind, of the error of class `Kind` that `call` throws. The test fails if `call` throws
/// another exception, or none.
template <class Kind, class Call>
std::string message_of(Call&& call) {
  try {
    std::forward<Call>(call)();
  } catch (const Kind& error) {
    return farandole::message_of(error);
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another exception: " << error.what();
    return {};
  }
  ADD_FAILURE() << "no exception";
  return {};
}

}  // namespace farandole::test
