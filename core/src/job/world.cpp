// SPDX-License-Identifier: Apache-2.0
#include "farandole/core/world.h"

#include <utility>

#include "farandole/internal/endpoint.h"
#include "farandole/internal/forked_children.h"
#include "job/job.h"

namespace farandole {

World::World(const WorldOptions& options) : job_(std::make_shared<Job>(options)) {}
World::~World() {
  if (job_->fault().is_forked_child()) {
    // The job's threads, connections and mappings belong to the parent.
    keep_until_the_end(std::move(job_));
  } else {
    job_->end();
  }
}

Job& World::job() const {
  job_->fault().check_process();
  return *job_;
}

int World::rank() const {
  return job().topology().first_rank_of(job_->process());
}
int World::size() const {
  return job().topology().size();
}
int World::replicas() const {
  return job().replicas();
}
const Topology& World::topology() const {
  return job().topology();
}
const Settings& World::settings() const {
  return job().settings();
}
std::string World::network_description() const {
  return job().network_description();
}
const std::string& World::backend_name() const {
  return job().backend_name();
}
const std::string& World::backend_description() const {
  return job().backend_description();
}
Endpoint& World::endpoint(int replica) {
  return job().endpoint(replica);
}

}  // namespace farandole
