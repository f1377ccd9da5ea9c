// SPDX-License-Identifier: Apache-2.0
#include "job/job.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>

#include "farandole/internal/forked_children.h"
#include "farandole/internal/log.h"
#include "farandole/internal/standard_descriptors.h"
#include "faults/private_file.h"

namespace farandole {
namespace {

// Maximum time for which `poison` waits for the files of the flight records.
constexpr std::chrono::milliseconds kMaxRecordingTime{2000};

void mark_in_child(Job& job) {
  job.fault().set_forked_child();
}
using JobsInChildren = ForkedChildren<Job, mark_in_child>;

}  // namespace

Job::Job(const WorldOptions& options)
    : one_world_(std::in_place, options.alone), settings_(Settings::from_environment()) {
  if (options.replicas < 1 || options.replicas > kMaxReplicas) {
    throw InvalidArgument(fmt::format("replicas is {}; it must be 1 … {}", options.replicas, kMaxReplicas));
  }
  if (!options.devices.empty() && !options.replica_for_each_device &&
      options.devices.size() != static_cast<std::size_t>(options.replicas)) {
    throw InvalidArgument(fmt::format("WorldOptions::devices has {} numbers for {} replicas; it must have one for each",
                                      options.devices.size(), options.replicas));
  }
  for (const int device : options.devices) {
    if (device < 0) throw InvalidArgument(fmt::format("WorldOptions::devices has {}; numbers begin with 0", device));
  }
  occupy_standard_descriptors();
  name_in_log(fmt::format("pid {}", getpid()));
  join(options);
  const std::vector<int> devices = exchange_peer_info(options);
  const int first = topology_->first_rank_of(process());
  name_in_log(fmt::format("rank {} {}", first, topology_->process(process()).hostname));
  const int replicas = topology_->process(process()).replicas;
  inproc_ = std::make_unique<InprocTransport>(first, replicas,
                                              [this, first](int rank) { endpoint(rank - first).progress().ring(); });
  for (int i = 0; i < replicas; ++i) {
    std::optional<int> device;
    if (!devices.empty()) device = devices[static_cast<std::size_t>(i)];
    endpoints_.push_back(std::make_unique<Endpoint>(*this, first + i, device));
  }
  waiting_ = waiting_options(/*progress_thread=*/false);
  const ThreadUse threads = group() != nullptr ? group()->thread_use() : ThreadUse::kAnyThread;
  if (threads != ThreadUse::kMainThreadOnly) {
    progress_ = std::make_unique<ProgressThread>(waiting_options(/*progress_thread=*/true), memory_->header().progress,
                                                 /*rests=*/threads == ThreadUse::kOneThreadAtATime);
  }
  fault_.set_place(topology_->describe(first));
  one_world_->set_place(topology_->describe(first));
  JobsInChildren::add(this);
}

void Job::name_in_log(std::string_view process_name) const {
  if (one_world_->names_the_log()) configure_log(parse_log_level(settings_.process.log_level), process_name);
}

Job::~Job() {
  JobsInChildren::remove(this);
}

void Job::end() {
  try {
    if (std::uncaught_exceptions() > exceptions_at_start_)
      endpoints_.front()->faults().give_up("failed with an exception");
    // Ranks of this process may wait for each other: while a rank is closed, the progress thread advances the others.
    if (progress_ && endpoints_.size() > 1) progress_->wake();
    for (const auto& endpoint : endpoints_) endpoint->progress().close_attached();
    progress_.reset();
    if (group() != nullptr && !fault_.exists()) peers_->leave();
  } catch (const std::exception& error) {
    if (fault_.is_of_peer()) {  // the other rank raises the error; this one has done its work
      log(LogLevel::kWarning, fmt::format("this rank had done its work and was leaving the job when another rank "
                                          "failed: {}",
                                          message_of(error)));
    } else {
      log(LogLevel::kError, std::string("leaving the job failed: ") + message_of(error));
    }
  }
  retire();
}

void Job::retire() {
  fault_.set_ended();
  connection_.between_hosts.reset();
  connection_.group.reset();
  memory_->unmap_peers();
  one_world_.reset();
}

Transport& Job::route(int peer) {
  if (is_here(peer)) return *inproc_;
  if (group() == nullptr) fault_.check();
  const bool is_on_this_host = topology_->rank(peer).host_index == topology_->process(process()).host_index;
  Transport* const between_hosts = is_on_this_host ? nullptr : connection_.between_hosts->transport();
  return between_hosts != nullptr ? *between_hosts : group()->transport();
}

std::string Job::network_description() const {
  return connection_.between_hosts ? connection_.between_hosts->describe() : "none";
}

Waiter::Options Job::waiting_options(bool progress_thread) const {
  return {.oversubscribed = machine_.is_oversubscribed(progress_thread ? 2 : 1),
          .polled = group() != nullptr && group()->transport().is_polled()};
}

void Job::poison(int rank, ErrorKind kind, const std::string& text, bool announce) {
  if (fault_.is_forked_child()) return;
  // Runs before the fault is visible. A thread that sees the fault may release memory that a stopped peer still writes,
  // so the memory is quarantined first. The thread may also end the process, and peers that learn of the fault end,
  // too, whereupon the launcher kills this process; so the flight records are written before the announcement.
  const auto before = [&] {
    memory_->quarantine();
    write_flight_records(text);
    if (!announce) fault_.set_of_peer();
    if (announce && group() != nullptr) peers_->announce_fault(rank, kind, text);
  };
  if (fault_.set(rank, kind, text, before)) ring_all();
}

void Job::ring_all() {
  for (const auto& endpoint : endpoints_) endpoint->progress().ring();
}

/// Best effort: a fault is raised and announced even if the records cannot be written.
void Job::write_flight_records(const std::string& text) const {
  const std::string& directory = settings_.faults.flight_directory;
  if (directory == "off") return;
  try {
    std::vector<PrivateFile> files;
    for (const auto& endpoint : endpoints_) {
      const std::string name = fmt::format("rank-{}.farandole-flight.json", endpoint->rank());
      files.push_back({name, endpoint->recorder().to_json_lines()});
    }
    const std::string problem = write_private_files(directory, std::move(files), kMaxRecordingTime);
    log(LogLevel::kError, problem.empty()
                              ? fmt::format("{}; the last collectives of each rank are in {}", text, directory)
                              : fmt::format("{}; the flight record could not be written: {}", text, problem));
  } catch (const std::exception&) {
    log(LogLevel::kError, "the flight record could not be written: no memory is left");
  }
}

}  // namespace farandole
