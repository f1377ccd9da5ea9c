// SPDX-License-Identifier: Apache-2.0
#include "farandole/trainer/profile.h"

#include <fmt/format.h>

#include <array>

#include "text_table.h"

namespace farandole::trainer {
namespace {

constexpr std::size_t kProfileTexts = 3, kMaxKind = 40;
/// Factor by which the slowest replica takes longer than this one, from which on the table names it.
constexpr double kMuchSlower = 1.1;

/// Layer, kind, output; forward, backward and both in ms; GFLOP, GFLOP/s, share of the peak.
using ProfileLine = std::array<std::string, 9>;

std::string in_ms(double seconds) {
  return fmt::format("{:.3f}", 1e3 * seconds);
}

/// The last three columns. @param flops  empty: unknown
void set_speed(ProfileLine& line, std::optional<double> flops, double seconds, double peak) {
  for (const std::size_t column : {6U, 7U, 8U}) line[column].assign(1, '-');
  if (!flops) return;
  line[6] = fmt::format("{:.4f}", 1e-9 * *flops);
  if (seconds <= 0) return;
  line[7] = fmt::format("{:.1f}", 1e-9 * *flops / seconds);
  if (peak > 0) line[8] = fmt::format("{:.0f} %", 100 * *flops / seconds / peak);
}

ProfileLine line_of(const TrainingProfile& profile, const LayerProfile& layer) {
  ProfileLine line{layer.layer.name,
                   cut_to(layer.layer.kind, kMaxKind),
                   describe(layer.layer.output),
                   in_ms(layer.forward),
                   in_ms(layer.backward),
                   in_ms(layer.seconds())};
  set_speed(line, profile.flops(layer), layer.seconds(), profile.peak);
  return line;
}

ProfileLine line_of_part(const char* name, double seconds) {
  ProfileLine line{name, "", "", "", "", in_ms(seconds)};
  set_speed(line, std::nullopt, seconds, 0);
  return line;
}

ProfileLine total_line(const TrainingProfile& profile) {
  double forward = 0, backward = 0;
  for (const LayerProfile& layer : profile.layers) {
    forward += layer.forward;
    backward += layer.backward;
  }
  const double flops = profile.flops();
  ProfileLine line{"total", "", "", in_ms(forward), in_ms(backward), in_ms(profile.seconds())};
  set_speed(line, flops > 0 ? std::optional(flops) : std::nullopt, profile.seconds(), profile.peak);
  return line;
}

}  // namespace

std::optional<double> TrainingProfile::flops(const LayerProfile& layer) const {
  const double of_sample = layer.layer.forward_flops + layer.layer.backward_flops;
  return of_sample > 0 ? std::optional(of_sample * samples) : std::nullopt;
}

double TrainingProfile::flops() const {
  double sum = 0;
  for (const LayerProfile& layer : layers) sum += flops(layer).value_or(0);
  return sum;
}

double TrainingProfile::seconds() const {
  double sum = parts.seconds();
  for (const LayerProfile& layer : layers) sum += layer.seconds();
  return sum;
}

std::string describe(const TrainingProfile& profile) {
  std::vector<ProfileLine> lines{
      {"layer", "kind", "output", "forward ms", "backward ms", "ms", "GFLOP", "GFLOP/s", "of peak"}};
  for (const LayerProfile& layer : profile.layers) lines.push_back(line_of(profile, layer));
  lines.push_back(line_of_part("loss and metrics", profile.parts.loss));
  lines.push_back(line_of_part("averaging (exposed)", profile.parts.averaging));
  lines.push_back(line_of_part("update", profile.parts.update));
  lines.push_back(line_of_part("input", profile.parts.input));
  lines.push_back(line_of_part("rest", profile.parts.rest));
  lines.push_back(total_line(profile));
  std::string text = fmt::format(
      "profile of replica {}, per training step of {:.4g} samples (medians of {}; the median training step takes {} "
      "ms):\n{}",
      profile.replica, profile.samples, profile.steps, in_ms(profile.step), format_table(lines, kProfileTexts));
  const std::string beside =
      profile.local_replicas > 1
          ? fmt::format(", while {} replicas of this host compute the same", profile.local_replicas)
          : "";
  text += fmt::format("peak: a large matrix product in {} reaches {:.1f} GFLOP/s on {} kernel thread{}{}\n",
                      farandole::name(profile.type), 1e-9 * profile.peak, profile.kernel_threads,
                      profile.kernel_threads == 1 ? "" : "s", beside);
  if (profile.slowest_replica != profile.replica && profile.slowest_seconds >= kMuchSlower * profile.busy_seconds) {
    text += fmt::format("the slowest replica is {}: {} ms per training step without averaging, replica {} {} ms\n",
                        profile.slowest_replica, in_ms(profile.slowest_seconds), profile.replica,
                        in_ms(profile.busy_seconds));
  }
  return text;
}

}  // namespace farandole::trainer
