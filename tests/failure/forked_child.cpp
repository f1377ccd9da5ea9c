// SPDX-License-Identifier: Apache-2.0
#include "forked_child.h"

#include <sys/wait.h>
#include <unistd.h>

#include <vector>

#include "farandole/core/error.h"

namespace farandole::test {

void need(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

Child Child::make() {
  int ends[2] = {-1, -1};
  need(pipe(ends) == 0, "pipe");
  const pid_t pid = fork();
  need(pid >= 0, "fork");
  if (pid > 0) {
    close(ends[1]);
    return {pid, ends[0]};
  }
  alarm(kDeadlineSeconds);
  dup2(ends[1], STDERR_FILENO);
  close(ends[0]);
  close(ends[1]);
  return {};
}

void Child::expect(int wanted, const std::string& text) const {
  std::string said;
  char part[256];
  for (ssize_t got = 0; (got = read(standard_error, part, sizeof part)) > 0;) said.append(part, got);
  close(standard_error);
  int status = 0;
  need(waitpid(pid, &status, 0) == pid, "waitpid");
  need(text.empty() ? said.empty() : said.find(text) != std::string::npos, "the child said: " + said);
  need(WIFEXITED(status), "the child was ended by signal " + std::to_string(WTERMSIG(status)));
  need(WEXITSTATUS(status) == wanted,
       "the child ended with " + std::to_string(WEXITSTATUS(status)) + " instead of " + std::to_string(wanted));
}

void check_collectives(Communicator& ranks, int times) {
  for (int i = 0; i < times; ++i) {
    for (const std::size_t count : {std::size_t{1}, std::size_t{100'000}}) {
      std::vector<float> data(count, static_cast<float>(ranks.rank() + i));
      ranks.allreduce(data, ReduceOp::kSum);
      const auto size = static_cast<float>(ranks.size());
      const float expected = size * (size - 1) / 2 + size * static_cast<float>(i);
      need(data.front() == expected && data.back() == expected, "an allreduce is wrong after the fork");
    }
    ranks.barrier();
  }
}

void expect_refused(const char* name, const std::function<void()>& call) {
  const std::string own = "this process (pid " + std::to_string(getpid()) + ")";
  try {
    call();
  } catch (const InvalidArgument& error) {
    const std::string text = error.what();
    for (const std::string& part : {own, std::string("forked from rank "), std::string("host ")}) {
      need(text.find(part) != std::string::npos, std::string(name) + ": " + text);
    }
    return;
  }
  throw std::runtime_error(std::string(name) + " worked in a forked child");
}

}  // namespace farandole::test
