// What a forked child does with things of its parent.
#pragma once

#include <pthread.h>

#include <algorithm>
#include <mutex>
#include <vector>

namespace farandole {

/// Things of this process of which a forked child must let go: `let_go(thing)` runs in the child, which has one thread,
/// for each that is registered at the fork. Thread-safe.
template <class Thing, void (*let_go)(Thing&)>
class ForkedChildren {
 public:
  static void add(Thing* thing) {
    static const int once =
        pthread_atfork([] { registry().mutex.lock(); }, [] { registry().mutex.unlock(); }, in_child);
    (void)once;
    const std::lock_guard lock(registry().mutex);
    registry().things.push_back(thing);
  }
  static void remove(Thing* thing) {
    const std::lock_guard lock(registry().mutex);
    std::erase(registry().things, thing);
  }

 private:
  struct Registry {
    std::mutex mutex;
    std::vector<Thing*> things;
  };
  static Registry& registry() {
    static auto* const instance = new Registry;  // never destroyed: a fork may come at any time
    return *instance;
  }
  static void in_child() {
    for (Thing* const thing : registry().things) let_go(*thing);
    registry().mutex.unlock();
  }
};

}  // namespace farandole
