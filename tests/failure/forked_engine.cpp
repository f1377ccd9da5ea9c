// SPDX-License-Identifier: Apache-2.0
// The engine's C interface in processes that fork.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <thread>

#include "farandole/core/error.h"
#include "farandole/engine.h"
#include "forked_child.h"

namespace farandole::test {
namespace {

std::string text_of(farandole_error* error) {
  std::string text = error != nullptr ? farandole_error_text(error) : "no error";
  farandole_error_free(error);
  return text;
}

void mark_done(void* flag, const farandole_result* result) {
  __atomic_store_n(static_cast<int32_t*>(flag), result->error == nullptr ? 1 : -1, __ATOMIC_RELEASE);
}

void never_joined(void* /*context*/, const farandole_error* /*error*/, int32_t /*last_rank*/) {}

int engine_allreduce(const char* name, float* value, int32_t* flag, farandole_error** error) {
  const int64_t shape[] = {1};
  farandole_tensor tensor{};
  tensor.struct_bytes = sizeof tensor;
  tensor.dtype = FARANDOLE_F32;
  tensor.dimensions = 1;
  tensor.shape = shape;
  tensor.input = value;
  tensor.output = value;
  tensor.context = flag;
  tensor.done = mark_done;
  farandole_request request{};
  request.struct_bytes = sizeof request;
  request.name = name;
  request.collective = FARANDOLE_ALLREDUCE;
  request.op = FARANDOLE_SUM;
  request.prescale = request.postscale = 1.0;
  request.tensors = &tensor;
  request.tensor_count = 1;
  return farandole_submit(&request, error);
}

void check_engine(const char* name) {
  farandole_place place{};
  place.struct_bytes = sizeof place;
  farandole_get_place(&place);
  float value = 1.0F;
  int32_t flag = 0;
  farandole_error* error = nullptr;
  if (engine_allreduce(name, &value, &flag, &error) != 0) throw std::runtime_error(text_of(error));
  farandole_wait_until(&flag);
  need(flag == 1 && value == static_cast<float>(place.size), "the engine's allreduce is wrong");
}

void expect_no_engine() {
  need(farandole_is_initialized() == 0, "a forked child is initialized");
  farandole_place place{};
  place.struct_bytes = sizeof place;
  farandole_get_place(&place);
  need(place.rank == -1 && place.size == -1, "a forked child has a place");
  const int32_t no_flag = 0;
  farandole_wait_until(&no_flag);
  farandole_abort("a child aborts");
  need(farandole_window_allocate(1 << 20) == nullptr, "a forked child gets a window");
  need(farandole_process_sets(nullptr, 0) == 0 && farandole_generation(0) == 0, "a forked child has process sets");
  farandole_text_free(farandole_describe());
  need(farandole_check_not_forked(nullptr) == 1, "a forked child is not told so");
  float value = 1.0F;
  int32_t flag = 0, set = 0;
  const std::map<const char*, std::function<int(farandole_error**)>> calls{
      {"farandole_submit", [&](farandole_error** error) { return engine_allreduce("a", &value, &flag, error); }},
      {"farandole_join", [&](farandole_error** error) { return farandole_join(0, nullptr, never_joined, error); }},
      {"farandole_add_process_set",
       [&](farandole_error** error) { return farandole_add_process_set(&set, 1, &set, error); }},
      {"farandole_remove_process_set", [&](farandole_error** error) { return farandole_remove_process_set(1, error); }},
  };
  for (const auto& [name, call] : calls) {
    expect_refused(name, [&, call = call] {
      farandole_error* error = nullptr;
      if (call(&error) == 0) return;
      const auto kind = farandole_error_get_kind(error);
      const std::string text = text_of(error);
      need(kind == FARANDOLE_INVALID_ARGUMENT, text);
      throw InvalidArgument(text);
    });
  }
  need(farandole_shutdown(nullptr) == 0, "leaving in a forked child is an error");
}

}  // namespace

/// Threads submit while children are made, so that the engine's mutexes are held at some forks.
int fork_with_engine() {
  farandole_error* error = nullptr;
  if (farandole_init(nullptr, &error) != 0) throw std::runtime_error(text_of(error));
  void* const window = farandole_window_allocate(1 << 20);
  check_engine("before");
  std::jthread submitter([] {
    for (int i = 0; i < 1000; ++i) check_engine(("background" + std::to_string(i)).c_str());
  });
  for (int i = 0; i < 20; ++i) {
    const Child child = Child::make();
    if (child.is_here()) {
      expect_no_engine();
      need(window == nullptr || farandole_window_free(window) == 1, "a window of the parent is not known");
      if (i % 2 == 0) std::exit(kExited);
      // A job of its own, without the variables for one: of this process.
      if (farandole_init(nullptr, &error) != 0) throw std::runtime_error(text_of(error));
      check_engine("in the child");
      need(farandole_shutdown(nullptr) == 0, "leaving the child's own job");
      expect_no_engine();
      std::exit(kExited);
    }
    child.expect(kExited);
  }
  submitter.join();
  check_engine("after");
  farandole_window_free(window);
  if (farandole_shutdown(&error) != 0) throw std::runtime_error(text_of(error));
  return kGood;
}

}  // namespace farandole::test
