// SPDX-License-Identifier: Apache-2.0
#include "farandole/collectives/agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "farandole/internal/communicator_access.h"
#include "farandole/internal/endpoint.h"
#include "farandole/internal/error_classes.h"

namespace farandole {

/// An error of class `Kind` that all ranks throw. Not in the unnamed namespace, because the report of an uncaught
/// exception shows the class name: farandole::OnAllRanks<farandole::Mismatch>.
template <class Kind>
class OnAllRanks : public Kind, public RaisedByAll {
 public:
  OnAllRanks(const std::string& text, int origin) : Kind(text), RaisedByAll(origin) {}
};

namespace {

/// Throws the error with its origin. The error leaves the job usable, so a kind that poisons the job becomes
/// InternalError.
[[noreturn]] void raise_as_all(ErrorKind kind, const std::string& text, int origin) {
  throw_as<OnAllRanks>(poisons_job(kind) ? ErrorKind::kInternal : kind, text, origin);
}

struct ActionFailure {
  ErrorKind kind = ErrorKind::kInternal;
  std::string text;
};

std::optional<ActionFailure> run_action(const Communicator& communicator, const std::function<void()>& action) {
  try {
    action();
    return std::nullopt;
  } catch (const Error& error) {
    if (poisons_job(error.kind())) {
      // This rank skips the comparison, so poison the job: otherwise the other ranks would wait for this rank. No-op if
      // the job is poisoned already.
      internals(communicator).endpoint().faults().poison(error.kind(), error.message());
      throw;
    }
    return ActionFailure{error.kind(), error.message()};
  } catch (const std::filesystem::filesystem_error& error) {
    return ActionFailure{ErrorKind::kDataError, error.what()};
  } catch (const std::exception& error) {
    return ActionFailure{kind_of(error), message_of(error)};
  } catch (...) {
    return ActionFailure{ErrorKind::kInternal, "an exception of an unknown type"};
  }
}

constexpr char kEndOfText = '\0';  // ends each text of an encoded fact

std::string encode_facts(const std::vector<SharedFact>& facts) {
  std::string text;
  for (const SharedFact& fact : facts) {
    for (const std::string* part : {&fact.what, &fact.value, &fact.advice}) (text += *part) += kEndOfText;
  }
  return text;
}

/// True if both lists have the same facts in the same order. Advice is not compared.
bool are_same(const std::vector<SharedFact>& left, const std::vector<SharedFact>& right) {
  return std::equal(left.begin(), left.end(), right.begin(), right.end(),
                    [](const SharedFact& a, const SharedFact& b) { return a.what == b.what && a.value == b.value; });
}

std::vector<SharedFact> decode_facts(const std::string& text) {
  std::vector<SharedFact> facts;
  std::size_t next = 0;
  const auto take = [&] {
    const std::size_t first = std::exchange(next, std::min(text.find(kEndOfText, next), text.size()) + 1);
    return text.substr(first, next - first - 1);
  };
  while (next < text.size()) {
    SharedFact& fact = facts.emplace_back();
    for (std::string* part : {&fact.what, &fact.value, &fact.advice}) *part = next < text.size() ? take() : "";
  }
  return facts;
}

constexpr std::size_t kMaxNamed = 8;

/// Differences between two lists of facts: first in the order of the first list, then the facts that only the second
/// list has.
struct FactDifference {
  SharedFact first;  // the first fact that differs
  std::string other_value;
  std::vector<std::string> also;  // names of the other facts that differ, at most kMaxNamed
};

FactDifference compare_facts(const std::vector<SharedFact>& root_facts, const std::vector<SharedFact>& other_facts) {
  constexpr const char* kMissing = "missing";
  FactDifference found;
  const auto add = [&](const SharedFact& fact, const std::string& root_value, const std::string& other_value) {
    if (root_value == other_value) return;
    if (!found.first.what.empty()) {
      if (found.also.size() < kMaxNamed) found.also.push_back(fact.what);
      return;
    }
    found.first = {fact.what, root_value, fact.advice};
    found.other_value = other_value;
  };
  const auto find = [](const std::vector<SharedFact>& facts, const std::string& what) {
    return std::find_if(facts.begin(), facts.end(), [&](const SharedFact& fact) { return fact.what == what; });
  };
  for (const SharedFact& fact : root_facts) {
    const auto same = find(other_facts, fact.what);
    add(fact, fact.value, same == other_facts.end() ? kMissing : same->value);
  }
  for (const SharedFact& fact : other_facts) {
    if (find(root_facts, fact.what) == root_facts.end()) add(fact, kMissing, fact.value);
  }
  return found;
}

}  // namespace

int lowest_rank_where(Communicator& communicator, bool holds) {
  std::int64_t lowest = holds ? communicator.rank() : communicator.size();
  communicator.allreduce(BufferView(&lowest, 1, DType::kI64), ReduceOp::kMin);
  return static_cast<int>(lowest);
}

void agree(Communicator& communicator, const std::function<void()>& action) {
  const std::optional<ActionFailure> failure = run_action(communicator, action);
  const int origin = lowest_rank_where(communicator, failure.has_value());
  if (origin == communicator.size()) return;
  const bool is_mine = origin == communicator.rank();
  auto kind = static_cast<std::int64_t>(failure ? failure->kind : ErrorKind::kInternal);
  communicator.broadcast(BufferView(&kind, 1, DType::kI64), origin);
  const std::string text = broadcast_text(communicator, failure ? failure->text : "", origin);
  raise_as_all(static_cast<ErrorKind>(kind), is_mine ? text : fmt::format("rank {} reports: {}", origin, text), origin);
}

void require_same(Communicator& communicator, const std::vector<SharedFact>& facts) {
  if (communicator.size() == 1) return;
  const std::string mine = encode_facts(facts);
  const std::string of_root = broadcast_text(communicator, mine, 0);
  const bool differs = mine != of_root && !are_same(facts, decode_facts(of_root));
  const int different = lowest_rank_where(communicator, differs);
  if (different == communicator.size()) return;
  const FactDifference found =
      compare_facts(decode_facts(of_root), decode_facts(broadcast_text(communicator, mine, different)));
  if (found.first.what.empty()) {
    raise_on_all(ErrorKind::kMismatch,
                 fmt::format("ranks disagree on the order or the number of the properties that they compare: {} has "
                             "others than {}; every rank must compare the same",
                             communicator.describe(different), communicator.describe(0)));
  }
  raise_on_all(ErrorKind::kMismatch,
               fmt::format("ranks disagree: {} is {} on {} and {} on {}; {}{}", found.first.what, found.first.value,
                           communicator.describe(0), found.other_value, communicator.describe(different),
                           found.first.advice.empty() ? "every rank must be given the same" : found.first.advice,
                           found.also.empty() ? "" : fmt::format("; also different: {}", fmt::join(found.also, ", "))));
}

void raise_on_all(ErrorKind kind, const std::string& text) {
  raise_as_all(kind, text, 0);
}

}  // namespace farandole
