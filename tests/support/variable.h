// SPDX-License-Identifier: Apache-2.0
// Sets environment variables while a test runs.
#pragma once

#include <cstdlib>
#include <string>

namespace farandole::test {

/// Sets an environment variable while the object lives, and then restores the old value.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    setenv(name, value.c_str(), 1);
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() { old_.empty() ? unsetenv(name_) : setenv(name_, old_.c_str(), 1); }

 private:
  const char* name_;
  std::string old_;
};

}  // namespace farandole::test
