// SPDX-License-Identifier: Apache-2.0
#include "launcher.h"

#include <fmt/format.h>

#include <algorithm>

#include "cuda/scopes.h"

namespace farandole::trainer::cuda {

using farandole::cuda::ContextScope;
using farandole::cuda::CUfunction;
using farandole::cuda::CUmodule;
using farandole::cuda::CUstream;
using farandole::cuda::kOperandBlockThreads;
using farandole::cuda::Operand;
using farandole::cuda::OperandArguments;
using farandole::cuda::RelaxedCapture;

namespace {

/// Resident blocks per multiprocessor, which hide the latency of memory; more blocks would wait for these.
constexpr unsigned kBlocksPerMultiprocessor = 8;

#define FARANDOLE_TRAINER_NAME(name, body) #name,
constexpr std::array kNames{FARANDOLE_TRAINER_KERNELS(FARANDOLE_TRAINER_NAME)};
constexpr std::array kHalfNames{FARANDOLE_TRAINER_HALF_KERNELS(FARANDOLE_TRAINER_NAME)};
#undef FARANDOLE_TRAINER_NAME
constexpr std::array kTypes{"f32", "f64"};
constexpr std::array kHalfTypes{"bf16", "f16"};

}  // namespace

LoadedKernels::LoadedKernels(const farandole::cuda::CudaApi& api, const farandole::cuda::KernelImage& image,
                             const DeviceInfo& device)
    : context(farandole::cuda::DeviceContext::open(api, device)),
      most_blocks(context.multiprocessors * kBlocksPerMultiprocessor) {
  const RelaxedCapture relaxed(api);
  const ContextScope scope(api, context.context);
  CUmodule module = nullptr;
  context.check(api.cuModuleLoadData(&module, image.code), "cuModuleLoadData of the trainer's kernels");
  const auto load = [&](const auto& names, const auto& types, auto& loaded) {
    for (std::size_t type = 0; type < types.size(); ++type) {
      for (std::size_t kernel = 0; kernel < names.size(); ++kernel) {
        const std::string name =
            fmt::format("{}{}_{}", farandole::cuda::kOperandKernelPrefix, names[kernel], types[type]);
        loaded[type][kernel] = context.load_kernel(module, name);
      }
    }
  };
  load(kNames, kTypes, functions);
  load(kHalfNames, kHalfTypes, half_functions);
}

void Launcher::launch(CUfunction function, std::int64_t threads, std::initializer_list<Operand> operands,
                      std::initializer_list<std::int64_t> sizes, std::initializer_list<double> numbers) const {
  if (threads == 0) return;
  OperandArguments arguments{};
  std::copy(operands.begin(), operands.end(), std::begin(arguments.operands));
  std::copy(sizes.begin(), sizes.end(), std::begin(arguments.sizes));
  std::copy(numbers.begin(), numbers.end(), std::begin(arguments.numbers));
  const std::int64_t wanted = (threads + kOperandBlockThreads - 1) / kOperandBlockThreads;
  const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(wanted, kernels_.most_blocks));
  void* parameters[] = {&arguments};
  const farandole::cuda::DeviceContext& context = kernels_.context;
  const ContextScope scope(context.api, context.context);
  context.check(context.api.cuLaunchKernel(function, blocks, 1, 1, kOperandBlockThreads, 1, 1, 0,
                                           static_cast<CUstream>(stream_.handle), parameters, nullptr),
                "cuLaunchKernel");
}

}  // namespace farandole::trainer::cuda
