// SPDX-License-Identifier: Apache-2.0
#include "pmix/pmix_client.h"

#include <fmt/format.h>
#include <pmix.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "farandole/core/error.h"
#include "farandole/internal/stall_monitor.h"
#include "pmix/pmix_library.h"

namespace farandole::pmix {
namespace {

constexpr std::uint32_t kMaxProcesses = 1 << 20;

/// Result of a PMIx_Get_nb. Owned by the waiting caller and by the callback, which PMIx's progress thread may run long
/// after the caller has given up.
class Answer {
 public:
  /// Called by the callback. No exception may pass through PMIx: if there is no memory for the value, only a status is
  /// set.
  void set(pmix_status_t status, const pmix_value_t* value) noexcept {
    std::string bytes;
    std::uint32_t number = 0;
    try {
      if (value != nullptr && value->type == PMIX_BYTE_OBJECT) bytes.assign(value->data.bo.bytes, value->data.bo.size);
      if (value != nullptr && value->type == PMIX_UINT32) number = value->data.uint32;
    } catch (...) {
      status = PMIX_ERR_NOMEM;
    }
    const std::lock_guard lock(mutex_);
    bytes_ = std::move(bytes);
    number_ = number;
    status_ = status;
    is_set_.notify_one();
  }
  /// Waits for the result. Returns false on timeout.
  bool wait_for(std::chrono::milliseconds time) {
    std::unique_lock lock(mutex_);
    return is_set_.wait_for(lock, time, [this] { return status_.has_value(); });
  }
  // Valid once wait_for() has returned true. The bytes are empty, or the number 0, if the value has another type.
  pmix_status_t status() const { return *status_; }
  std::string take_bytes() { return std::move(bytes_); }
  std::uint32_t number() const { return number_; }

 private:
  std::mutex mutex_;
  std::condition_variable is_set_;
  std::optional<pmix_status_t> status_;
  std::string bytes_;
  std::uint32_t number_ = 0;
};

void on_value(pmix_status_t status, pmix_value_t* value, void* answer) {
  const std::unique_ptr<std::shared_ptr<Answer>> owned(static_cast<std::shared_ptr<Answer>*>(answer));
  (*owned)->set(status, value);
}

/// This process's connection to the PMIx server of its host, from the first join to the end of the process. Never
/// closed before: if a process leaves PMIx and returns, servers drop requests that concern the process meanwhile (Open
/// MPI 4.1.4, and Slurm 22.05 with PMIx 4.2.2).
class Connection {
 public:
  /// @throws Unsupported, TransportError
  explicit Connection(const std::string& library) : library_(load_pmix(library)) {
    check(api().PMIx_Init(&self_, nullptr, 0), "PMIx_Init");
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection() = default;
  /// Leaves PMIx; called at the end of the process. No-op in a forked child: the connection, and the thread that
  /// answers, belong to the parent.
  void end() noexcept {
    if (is_own()) api().PMIx_Finalize(nullptr, 0);
  }

  bool is_own() const { return getpid() == pid_; }
  pid_t pid() const { return pid_; }
  const PmixApi& api() const { return library_.api; }
  const pmix_proc_t& self() const { return self_; }
  /// Returns a new name under which the servers store a shared text.
  std::string next_name() { return fmt::format("farandole.{}", shared_.fetch_add(1, std::memory_order_relaxed)); }
  std::string describe() const { return fmt::format("{}, namespace {}", library_.describe(), self_.nspace); }
  void check(pmix_status_t status, std::string_view function) const {
    if (status == PMIX_SUCCESS) return;
    throw TransportError(fmt::format("{} of {} failed: {} ({})", function, library_.describe(),
                                     api().PMIx_Error_string(status), status));
  }

 private:
  const PmixLibrary library_;
  const pid_t pid_ = getpid();
  pmix_proc_t self_{};
  std::atomic<int> shared_{0};  // number of names given out; relaxed
};

Connection& connect(const std::string& library) {
  // Never destroyed: PMIx's thread may use the connection until the process ends.
  static Connection& connection = *new Connection(library);
  [[maybe_unused]] static const int ends = std::atexit([] { connection.end(); });
  return connection;
}

class Client final : public PmixClient {
 public:
  Client(Connection& connection, const Settings& settings)
      : connection_(connection), warn_after_(settings.faults.warn_after), timeout_(settings.faults.timeout) {
    find_processes();
  }

  int process() const override { return static_cast<int>(connection_.self().rank); }
  int processes() const override { return processes_; }
  std::string job() const override { return connection_.self().nspace; }
  std::string share(std::string_view of_process_0) override;
  std::string describe() const override { return connection_.describe(); }

 private:
  void find_processes();
  /// Publishes a text of this process at the servers.
  void put(const std::string& name, std::string_view text) const;
  /// Blocks until process 0 has published a text under `name`, and returns the text.
  std::string get(const std::string& name) const;
  /// Sends a request to the servers, and blocks until the answer arrives, which may be "not found".
  /// @param what  the subject of the wait, for warnings   @throws Timeout, TransportError
  std::shared_ptr<Answer> ask(pmix_rank_t rank, const std::string& name, StallMonitor& stall,
                              std::string_view what) const;
  /// Logs a warning if one is due. @throws Timeout
  void check_stall(StallMonitor& stall, std::string_view what) const;

  Connection& connection_;
  const Seconds warn_after_, timeout_;
  int processes_ = 0;
};

std::shared_ptr<Answer> Client::ask(pmix_rank_t rank, const std::string& name, StallMonitor& stall,
                                    std::string_view what) const {
  constexpr auto kPollInterval = std::chrono::milliseconds(50);
  pmix_proc_t of = connection_.self();
  of.rank = rank;
  auto answer = std::make_shared<Answer>();
  auto owned = std::make_unique<std::shared_ptr<Answer>>(answer);
  connection_.check(connection_.api().PMIx_Get_nb(&of, name.c_str(), nullptr, 0, on_value, owned.get()),
                    "PMIx_Get_nb of " + name);
  (void)owned.release();  // owned by the callback now
  while (!answer->wait_for(kPollInterval)) check_stall(stall, what);
  return answer;
}

void Client::check_stall(StallMonitor& stall, std::string_view what) const {
  stall.check([&] {
    return fmt::format("joining the job by {}: process {} of {} has been waiting for {:.1f} s for {}", describe(),
                       process(), processes_ > 0 ? std::to_string(processes_) : "an unknown number",
                       stall.waited().count(), what);
  });
}

void Client::find_processes() {
  StallMonitor stall(warn_after_, timeout_);
  const auto size = ask(PMIX_RANK_WILDCARD, PMIX_JOB_SIZE, stall, "the number of processes, from its PMIx server");
  connection_.check(size->status(), "PMIx_Get_nb of " PMIX_JOB_SIZE);
  if (size->number() <= connection_.self().rank || size->number() > kMaxProcesses) {
    throw TransportError(
        fmt::format("{} says that this is process {} of {}", describe(), connection_.self().rank, size->number()));
  }
  processes_ = static_cast<int>(size->number());
}

void Client::put(const std::string& name, std::string_view text) const {
  std::string bytes(text);
  pmix_value_t value{};
  value.type = PMIX_BYTE_OBJECT;
  value.data.bo.bytes = bytes.data();
  value.data.bo.size = bytes.size();
  connection_.check(connection_.api().PMIx_Put(PMIX_GLOBAL, name.c_str(), &value), "PMIx_Put");
  connection_.check(connection_.api().PMIx_Commit(), "PMIx_Commit");
}

std::string Client::get(const std::string& name) const {
  constexpr auto kRetry = std::chrono::milliseconds(20);
  constexpr std::string_view kWhat = "process 0, which has not started, is stopped, or has failed";
  StallMonitor stall(warn_after_, timeout_);
  while (true) {
    const auto answer = ask(/*rank=*/0, name, stall, kWhat);
    if (answer->status() == PMIX_SUCCESS) return answer->take_bytes();
    // A server waits for the first text of a process, but may answer "not found" for later texts: retry.
    if (answer->status() != PMIX_ERR_NOT_FOUND) connection_.check(answer->status(), "PMIx_Get_nb of " + name);
    check_stall(stall, kWhat);
    std::this_thread::sleep_for(kRetry);
  }
}

std::string Client::share(std::string_view of_process_0) {
  if (of_process_0.size() > kMaxSharedBytes) {
    throw InvalidArgument(
        fmt::format("{} bytes are to be shared by PMIx; at most {} can be", of_process_0.size(), kMaxSharedBytes));
  }
  const std::string name = connection_.next_name();
  if (process() != 0) return get(name);
  put(name, of_process_0);
  return std::string(of_process_0);
}

}  // namespace

std::unique_ptr<PmixClient> PmixClient::join(const Settings& settings) {
  for (const char* const variable : {"PMIX_NAMESPACE", "PMIX_RANK"}) {
    if (std::getenv(variable) != nullptr) continue;
    throw InvalidArgument(
        fmt::format("no PMIx launcher has started this process: {} is not set; start the program with srun --mpi=pmix, "
                    "or with the mpirun of Open MPI",
                    variable));
  }
  Connection& connection = connect(settings.launch.pmix_library);
  if (!connection.is_own()) {
    throw InvalidArgument(fmt::format("process {} was forked from process {}, to which the place in the job belongs",
                                      getpid(), connection.pid()));
  }
  return std::make_unique<Client>(connection, settings);
}

}  // namespace farandole::pmix
