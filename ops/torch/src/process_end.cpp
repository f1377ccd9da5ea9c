// SPDX-License-Identifier: Apache-2.0
#include "process_end.h"

#include <c10/util/StringUtil.h>
#include <pybind11/pybind11.h>
#include <unistd.h>

#include <cstdlib>
#include <mutex>
#include <utility>
#include <vector>

namespace farandole_torch {
namespace {

struct Kept {
  std::mutex mutex;   // guards the following
  pid_t process = 0;  // whose end has begun
  std::vector<Comm> comms;
  std::vector<std::shared_ptr<Job>> jobs;
};
Kept& kept() {
  static auto* const instance = new Kept;  // never destroyed: groups may end with the interpreter
  return *instance;
}

PyObject* failure_text = nullptr;

/// Exit handler of the C library.
void end_process(int status, void* /*context*/) {
  std::vector<Comm> comms;
  std::vector<std::shared_ptr<Job>> jobs;
  {
    const std::lock_guard lock(kept().mutex);
    if (kept().process != getpid()) return;  // a forked child
    comms.swap(kept().comms);
    jobs.swap(kept().jobs);
  }
  if (status != 0) {
    Job::abort(c10::str("the program has ended with exit status ", status, "; its own output may say why"));
  }
  comms.clear();
  jobs.clear();
  Job::leave();
}

}  // namespace

void begin_process_end() {
  const std::lock_guard lock(kept().mutex);
  if (kept().process == getpid()) return;
  kept().process = getpid();
  on_exit(end_process, nullptr);
}

bool process_end_has_begun() {
  const std::lock_guard lock(kept().mutex);
  return kept().process == getpid();
}

void keep_until_exit(Comm comm, std::shared_ptr<Job> job) {
  const std::lock_guard lock(kept().mutex);
  kept().comms.push_back(std::move(comm));
  kept().jobs.push_back(std::move(job));
}

void set_failure_text(PyObject* function) {
  Py_INCREF(function);
  failure_text = function;
}

std::string failure_in_progress() {
  if (failure_text == nullptr || Py_IsInitialized() == 0) return {};
  const pybind11::gil_scoped_acquire gil;
  try {
    return pybind11::handle(failure_text)().cast<std::string>();
  } catch (const std::exception&) {  // of the function; the group ends as without an exception
    return {};
  }
}

}  // namespace farandole_torch
