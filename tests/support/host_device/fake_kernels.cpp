// SPDX-License-Identifier: Apache-2.0
#include "fake_kernels.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "cudart/cuda_runtime.h"
#include "fake_faults.h"

namespace farandole::fake {

namespace {

// Returns the size of the type that a kernel's name contains ("f32"), in bytes; 1 for an unknown type.
std::size_t bytes_of_type(std::string_view dtype) {
  if (dtype.ends_with("64")) return 8;
  if (dtype.ends_with("32")) return 4;
  return dtype.ends_with("16") ? 2 : 1;
}

std::vector<std::string_view> words_of(std::string_view name) {
  std::vector<std::string_view> words;
  while (!name.empty()) {
    const std::size_t end = std::min(name.find('_'), name.size());
    words.push_back(name.substr(0, end));
    name.remove_prefix(std::min(end + 1, name.size()));
  }
  return words;
}

// Returns the index in kCapacities of the variant that a kernel's name (kernel_arguments.h) denotes.
std::size_t variant_of(std::string_view name) {
  for (std::size_t variant = cuda::kCapacities.size() - 1; variant > 0; --variant) {
    if (name.ends_with(fmt::format("_x{}", cuda::kCapacities[variant]))) return variant;
  }
  return 0;
}

// Returns the sizes of elements that a kernel's name (kernel_arguments.h) denotes. Kernels with other names count as
// copies of bytes.
std::array<std::size_t, 3> element_bytes_of(std::string_view name) {
  std::vector<std::string_view> words = words_of(name);
  if (variant_of(name) > 0) words.pop_back();
  if (words.size() == 4 && words[1] == "reduce") {
    const std::size_t bytes = bytes_of_type(words[2]);
    return {bytes, bytes, bytes};
  }
  if (words.size() == 3 && words[1] == "scale") return {bytes_of_type(words[2]), bytes_of_type(words[2]), 0};
  if (words.size() == 4 && words[1] == "cast") return {bytes_of_type(words[3]), bytes_of_type(words[2]), 0};
  return {1, 1, 0};
}

// Returns the index of the `number`-th block in its grid, or thread in its block.
uint3 index_of(unsigned number, const std::array<unsigned, 3>& extents) {
  return {number % extents[0], number / extents[0] % extents[1], number / extents[0] / extents[1]};
}

// Returns this library, even if it was loaded with RTLD_LOCAL.
void* own_library() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&find_kernel), &info) == 0) return nullptr;
  return dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
}

// KernelBody::run_thread of kernels with this capacity, whose arguments are a prefix of the largest arguments.
template <int kCapacity>
void run_thread(void* address, const LaunchArguments& arguments) {
  using Arguments = cuda::KernelArguments<kCapacity>;
  Arguments own;
  std::memcpy(&own, &std::get<cuda::LargestArguments>(arguments), sizeof own);
  reinterpret_cast<void (*)(Arguments)>(address)(own);
}

void run_thread_of_operation(void* address, const LaunchArguments& arguments) {
  reinterpret_cast<void (*)(cuda::OperandArguments)>(address)(std::get<cuda::OperandArguments>(arguments));
}

template <std::size_t... kVariants>
KernelBody body_of(std::size_t variant, void* address, std::index_sequence<kVariants...> /*all*/) {
  return std::array{KernelBody{&run_thread<cuda::kCapacities[kVariants]>, address, cuda::kCapacities[kVariants],
                               sizeof(cuda::KernelArguments<cuda::kCapacities[kVariants]>)}...}[variant];
}

}  // namespace

std::optional<KernelBody> find_kernel(const std::string& name) {
  static void* const library = own_library();
  void* const address = library == nullptr ? nullptr : dlsym(library, name.c_str());
  if (address == nullptr) return std::nullopt;
  if (name.starts_with(cuda::kOperandKernelPrefix)) {
    return KernelBody{&run_thread_of_operation, address, 0, sizeof(cuda::OperandArguments)};
  }
  return body_of(variant_of(name), address, std::make_index_sequence<cuda::kCapacities.size()>());
}

Function::Function(Device& owner, std::string kernel_name, KernelBody kernel)
    : Handle(Kind::kFunction),
      device(owner),
      name(std::move(kernel_name)),
      body(kernel),
      element_bytes(element_bytes_of(name)) {}

LaunchArguments arguments_at(const KernelBody& body, const void* from) {
  if (body.capacity == 0) return *static_cast<const cuda::OperandArguments*>(from);
  LaunchArguments arguments;
  std::memcpy(&std::get<cuda::LargestArguments>(arguments), from, body.argument_bytes);
  return arguments;
}

namespace {

bool is_one_dimensional(const LaunchShape& shape, unsigned block_threads) {
  return shape.block == std::array{block_threads, 1U, 1U} && shape.grid == std::array{shape.grid[0], 1U, 1U};
}

void report_shape(const Function& function, const LaunchShape& shape, unsigned block_threads) {
  misuse("{}: a launch of {} blocks of {} threads; the kernels take one-dimensional grids and blocks of {} threads",
         function.name, fmt::join(shape.grid, "x"), fmt::join(shape.block, "x"), block_threads);
}

bool add_uses(const Function& function, const std::vector<PartAccess>& accesses, Uses& uses) {
  return std::all_of(accesses.begin(), accesses.end(), [&](const PartAccess& part) {
    return uses.add(function.name.c_str(), function.device.ordinal, Reach::kDevice, part.access);
  });
}

bool check_tasks(const Function& function, const LaunchShape& shape, const cuda::LargestArguments& arguments,
                 Uses& uses) {
  if (arguments.task_count > function.body.capacity) {
    misuse("{}: {} tasks; a launch has up to {}", function.name, arguments.task_count, function.body.capacity);
    return false;
  }
  if (arguments.task_count > 0 && !is_one_dimensional(shape, cuda::kBlockThreads)) {
    report_shape(function, shape, cuda::kBlockThreads);
    return false;
  }
  std::vector<PartAccess> accesses;
  for (int i = 0; i < static_cast<int>(arguments.task_count); ++i) {
    const cuda::KernelTask& task = arguments.tasks[i].task;
    const auto& bytes = function.element_bytes;
    accesses.push_back({{task.output, task.count * bytes[0], true, "output"}, i});
    accesses.push_back({{task.left, task.count * bytes[1], false, "left input"}, i});
    accesses.push_back({{task.right, task.count * bytes[2], false, "right input"}, i});
  }
  if (!add_uses(function, accesses, uses)) return false;
  const std::string conflict = first_conflict(accesses);
  if (!conflict.empty()) misuse("{}: tasks of one launch run at the same time, but {}", function.name, conflict);
  return conflict.empty();
}

// An output may be the same array as an input, because each thread reads an element before it writes it.
bool check_operation(const Function& function, const LaunchShape& shape, const cuda::OperandArguments& arguments,
                     Uses& uses) {
  if (!is_one_dimensional(shape, cuda::kOperandBlockThreads)) {
    report_shape(function, shape, cuda::kOperandBlockThreads);
    return false;
  }
  std::vector<PartAccess> accesses;
  for (const cuda::Operand& operand : arguments.operands) {
    accesses.push_back(
        {{operand.address, operand.bytes, operand.is_output, operand.is_output ? "output" : "input"}, 0});
  }
  return add_uses(function, accesses, uses);
}

}  // namespace

bool check_launch(const Function& function, const LaunchShape& shape, const LaunchArguments& arguments, Uses& uses) {
  if (const auto* operation = std::get_if<cuda::OperandArguments>(&arguments)) {
    return check_operation(function, shape, *operation, uses);
  }
  return check_tasks(function, shape, std::get<cuda::LargestArguments>(arguments), uses);
}

void translate_for_streams(LaunchArguments& arguments) {
  if (auto* operation = std::get_if<cuda::OperandArguments>(&arguments)) {
    for (cuda::Operand& operand : operation->operands) operand.address = stream_address(operand.address);
    return;
  }
  auto& tasks = std::get<cuda::LargestArguments>(arguments);
  for (unsigned i = 0; i < tasks.task_count; ++i) {
    cuda::KernelTask& task = tasks.tasks[i].task;
    task.output = stream_address(task.output);
    task.left = stream_address(task.left);
    task.right = stream_address(task.right);
  }
}

bool is_valid(const LaunchShape& shape) {
  constexpr std::array<unsigned, 3> kMaxBlocks{0x7fffffff, 65535, 65535};
  constexpr std::array<unsigned, 3> kMaxThreads{1024, 1024, 64};
  constexpr std::uint64_t kMaxThreadsOfBlock = 1024;
  constexpr unsigned kMaxSharedBytes = 48 * 1024;
  std::uint64_t threads = 1;
  for (std::size_t i = 0; i < 3; ++i) {
    if (shape.grid[i] == 0 || shape.grid[i] > kMaxBlocks[i]) return false;
    if (shape.block[i] == 0 || shape.block[i] > kMaxThreads[i]) return false;
    threads *= shape.block[i];
  }
  return threads <= kMaxThreadsOfBlock && shape.shared_bytes <= kMaxSharedBytes;
}

void run_kernel(const KernelBody& body, const LaunchShape& shape, const LaunchArguments& arguments, Random& random) {
  const auto* const tasks = std::get_if<cuda::LargestArguments>(&arguments);
  if (tasks != nullptr && tasks->task_count == 0) return;  // however many threads there are
  gridDim = dim3(shape.grid[0], shape.grid[1], shape.grid[2]);
  blockDim = dim3(shape.block[0], shape.block[1], shape.block[2]);
  std::vector<unsigned> blocks(std::size_t{shape.grid[0]} * shape.grid[1] * shape.grid[2]);
  std::iota(blocks.begin(), blocks.end(), 0U);
  const unsigned threads = shape.block[0] * shape.block[1] * shape.block[2];
  for (std::size_t left = blocks.size(); left > 0; --left) {
    std::swap(blocks[left - 1], blocks[random.below(left)]);
    blockIdx = index_of(blocks[left - 1], shape.grid);
    const auto first = static_cast<unsigned>(random.below(threads));
    for (unsigned i = 0; i < threads; ++i) {
      threadIdx = index_of((first + i) % threads, shape.block);
      body.run_thread(body.address, arguments);
    }
  }
}

}  // namespace farandole::fake
