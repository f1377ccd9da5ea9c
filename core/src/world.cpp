#include "farandole/core/world.h"

#include "job.h"

namespace farandole {

World::World(const WorldOptions& options) : job_(std::make_shared<Job>(options)) {}
World::~World() {
  job_->end();
}

int World::rank() const {
  return job_->topology().first_rank_of(job_->process());
}
int World::size() const {
  return job_->topology().size();
}
int World::replicas() const {
  return job_->replicas();
}
const Topology& World::topology() const {
  return job_->topology();
}
const Settings& World::settings() const {
  return job_->settings();
}
const std::string& World::backend_description() const {
  return job_->backend_description();
}
Endpoint& World::endpoint(int replica) {
  return job_->endpoint(replica);
}

}  // namespace farandole
