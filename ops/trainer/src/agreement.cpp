#include "farandole/trainer/agreement.h"

#include <fmt/format.h>

#include <filesystem>
#include <new>
#include <optional>

namespace farandole::trainer {
namespace {

template <ErrorKind kKind>
class ErrorOfAll : public ErrorOfKind<kKind>, public RaisedByAll {
 public:
  ErrorOfAll(const std::string& text, int origin) : ErrorOfKind<kKind>(text), RaisedByAll(origin) {}
};

[[noreturn]] void raise(ErrorKind kind, const std::string& text, int origin) {
  switch (kind) {
    case ErrorKind::kInvalidArgument:
      throw ErrorOfAll<ErrorKind::kInvalidArgument>(text, origin);
    case ErrorKind::kUnsupported:
      throw ErrorOfAll<ErrorKind::kUnsupported>(text, origin);
    case ErrorKind::kDataError:
      throw ErrorOfAll<ErrorKind::kDataError>(text, origin);
    default:
      throw ErrorOfAll<ErrorKind::kInternal>(text, origin);
  }
}

struct Failure {
  ErrorKind kind = ErrorKind::kInternal;
  std::string text;
};

std::optional<Failure> run(const std::function<void()>& action) {
  try {
    action();
    return std::nullopt;
  } catch (const Error& error) {
    if (poisons_job(error.kind())) throw;
    return Failure{error.kind(), error.what()};
  } catch (const std::filesystem::filesystem_error& error) {
    return Failure{ErrorKind::kDataError, error.what()};
  } catch (const std::bad_alloc&) {
    return Failure{ErrorKind::kDataError, "out of memory"};
  } catch (const std::exception& error) {
    return Failure{ErrorKind::kInternal, error.what()};
  }
}

}  // namespace

void agree(Communicator& communicator, const std::function<void()>& action) {
  const std::optional<Failure> failure = run(action);
  std::int64_t origin = failure ? communicator.rank() : communicator.size();
  communicator.allreduce(BufferView(&origin, 1, DType::kI64), ReduceOp::kMin);
  if (origin == communicator.size()) return;

  const bool mine = origin == communicator.rank();
  const int root = static_cast<int>(origin);
  std::int64_t head[2] = {mine ? static_cast<std::int64_t>(failure->kind) : 0,
                          mine ? static_cast<std::int64_t>(failure->text.size()) : 0};
  communicator.broadcast(BufferView(head, 2, DType::kI64), root);
  std::string text = mine ? failure->text : std::string(static_cast<std::size_t>(head[1]), ' ');
  communicator.broadcast(BufferView(text.data(), text.size(), DType::kU8), root);
  raise(static_cast<ErrorKind>(head[0]), mine ? text : fmt::format("rank {} reports: {}", origin, text), root);
}

void raise_on_all(ErrorKind kind, const std::string& text) {
  raise(kind, text, 0);
}

}  // namespace farandole::trainer
