# SPDX-License-Identifier: Apache-2.0
"""The mutants of mutants.py."""
from typing import NamedTuple


LIBRARY = "lib/libfarandole.so"
# The shipping plug-in's objects, with some bytes in the place of kernels: the double finds kernels by their names.
PLUGIN = "tests/unit/cuda/plugins/libfarandole_cuda.so"
# The double has the kernels, compiled for processors.
DOUBLE = "lib/libfake_cuda.so"
KERNELS = "core/backends/cuda/kernels.cu"
TRAINER = "lib/libfarandole_trainer.so"
TRAINER_PLUGIN = "lib/farandole/libfarandole_trainer_cuda.so"
TRAINING_STEP = "ops/trainer/src/training_step.cpp"
TRAINING = "ops/trainer/src/training.cpp"
BATCH_FEED = "ops/trainer/src/batch_feed.cpp"
STAGED_COPIES = "ops/trainer/src/staged_copies.cpp"
GRAPH_STRUCTURE = "ops/trainer/src/graph_structure.cpp"
LAYER_GRAPH = "ops/trainer/src/layer_graph.cpp"
STEP_PROFILER = "ops/trainer/src/step_profiler.cpp"
PROFILE = "ops/trainer/src/profile.cpp"
HOST_PEAK = "ops/trainer/src/host_peak.cpp"


class Test(NamedTuple):
    """What fails with a mutant. Ranks are threads, or, with several processes, a process each."""
    filter: str
    processes: int = 1
    program: str = "farandole_device_test"
    deadline_s: int = 0  # of collectives; 0: the program's
    limit_s: int = 60  # of the program; less where mutants hang it
    memory: str = ""  # of a device; empty: the double's
    by_rank: str = ""  # a variable of each process, as a shell makes it of FARANDOLE_RANK


class Mutant(NamedTuple):
    name: str
    leaves_out: str
    source: str
    before: str  # occurs there once
    after: str
    test: Test

    @property
    def library(self) -> str:
        """What the source is linked into."""
        if self.source == KERNELS:
            return DOUBLE
        if self.source.startswith("ops/trainer/"):
            return TRAINER_PLUGIN if self.source.startswith("ops/trainer/cuda/") else TRAINER
        return PLUGIN if self.source.startswith("core/backends/cuda/") else LIBRARY


STREAM = Test("DeviceCalls.CallIsOrderedAfterEarlierWorkInTheStream")
ORDERS = Test("DeviceCalls.RanksMayUseCommunicatorsInDifferentOrders")
# By itself, without devices: for any order in which proposals arrive.
RANDOM_ORDERS = Test("DeviceOrder.RanksRunSharedOperationsInOneOrder", program="collectives_test")
ORDERS_OF_PROCESSES = Test(ORDERS.filter, processes=2)
PROGRAMS = Test("DevicePrograms.MixedOrdersAndSubgroupsGiveRightValues", deadline_s=3, limit_s=30)
ALLOCATED = Test("DeviceCalls.AllocationAvoidsMemoryOfUnfinishedOperations")
VALUES = Test("DeviceCollectives.AveragesAndUnevenPartsOfEveryCollective")
STUCK = Test("DeviceFaults.AStuckStreamIsATimeoutOnAllRanksWithinTheDeadline", program="farandole_device_faults",
             deadline_s=2)
STUCK_WITHOUT_MEMORY = Test("DeviceFaults.AStuckStreamWithoutMemoryLeftIsATimeoutOnAllRanks",
                            program="farandole_device_faults", deadline_s=2, limit_s=15, memory="1M")
IDLE = Test("DeviceFaults.MemoryGoesBackToTheDriverWhenTheDeviceIsIdle", program="farandole_device_faults", deadline_s=5,
            limit_s=15, memory="32M")
LOST = Test("DeviceFaults.ALostDeviceIsADeviceErrorOnAllRanks", program="farandole_device_faults")
IN_A_CALL = Test("NcclGroupTest.IsNotAbortedWhileAThreadIsInACall", program="cuda_test")
LEFT_BEHIND = Test("DeviceThread.AbandonedThreadDropsPreparedWork", program="collectives_test")
CONNECTIONS = Test("DeviceCalls.OnlySchedulesConnectRanks")
CAPTURED = Test("DeviceGradients.CapturedStreamIsRefusedBeforeAnyEnqueue")
ELSEWHERE = Test("DeviceGradients.WrongMemorySpaceIsRefusedOnAllRanks")
RAISES = "FARANDOLE_DEVICE_FAULT=raise"
DIRECT_DIFFERENCE = Test("DirectFaults.DifferentCallsAreAMismatchThatNamesThem", processes=2, program="farandole_device_faults",
                         deadline_s=5, limit_s=15, by_rank=RAISES)
DIRECT_LATE = Test("DirectFaults.ARankThatDoesNotComeIsATimeoutThatNamesIt", processes=2, program="farandole_device_faults",
                   deadline_s=2, limit_s=15, by_rank=RAISES)
REPLAY_LATE = DIRECT_LATE._replace(filter="DirectFaults.AReplayThatAPeerDoesNotMakeIsATimeoutThatNamesIt")
BEHIND_REPLAYS = Test("DirectFaults.ManyShortReplaysAreNoTimeout", processes=2, program="farandole_device_faults",
                      deadline_s=1, limit_s=30)
# By itself, without devices.
REPLAYS_IN_A_ROW = Test("CapturedCalls.ReplaysWithoutAGapAreToldApart", program="collectives_test")
LAST_REPORT = Test("DirectFaults.AnEndWaitsForTheReportOfTheLastCall", program="farandole_device_faults", deadline_s=5,
                   limit_s=15, by_rank=RAISES)
LAST_CALLS = LAST_REPORT._replace(filter="DirectFaults.TheLastCallsAreCompared", deadline_s=2)
AFTER_THE_QUEUE = Test("DirectCalls.AreEnqueuedAfterEarlierCallsOfTheQueue", deadline_s=5)
DIRECT_FACTORS = Test("DirectCalls.AverageAndMultiplyWithoutAKernelOfTheirOwn")
MESSAGE_LISTS = Test("DeviceMessages.OfAListProceedAtTheSameTime", limit_s=30)
MESSAGE_ACTIONS = Test("DeviceMessages.ActionsOfOnDoneMayStartMessages", limit_s=15)
DIRECT_GRADIENTS = Test("DeviceGradients.AreAveragedInTheCallersOrder")
REFUSED_IN_A_CAPTURE = Test("DirectCalls.ARefusedCallLeavesTheCaptureValid")
CAPTURED_AFTER_ONE_CALL = Test("DirectCalls.ACallThatHasRunOnceCanBeCaptured")
CAPTURED_MEANWHILE = Test("DeviceCalls.AStreamMayBeCapturedWhileOtherStreamsAreUsed")
MINIMA = Test("DeviceMinimum.GivesTheBitsOfTheHost")
WAITS_FOR_RELEASED = Test("DeviceFaults.AnAllocationWaitsForReleasedMemoryOfACall", program="farandole_device_faults",
                          limit_s=15, memory="32M")
TRIMMED = Test("DeviceMemory.TrimWaitsForCallsInStreamsOfTheProgram", limit_s=15)
RELEASED_IN_DIRECT_CALL = Test("DeviceMemory.ABlockReleasedDuringADirectCallIsNotGivenOut")
RELEASED_IN_AGREED_CALL = Test("DeviceMemory.ABlockReleasedDuringAnAgreedCallIsNotGivenOut")
FACTORS = Test("DeviceCollectives.FactorsOfTheVendorsReductions")
LAYOUTS = Test("DeviceHierarchy.EveryLayoutAndCount")
LAYOUTS_WITHOUT_COPIES = Test("DeviceHierarchy.MessagesOfDeviceMemoryNeedNoCopies")
HOSTS_AND_STREAM = Test("DeviceHierarchy.IsOrderedWithTheCallersStream")
HOST_ORDERS = Test("DeviceHierarchy.RunsBesideOtherOperationsInAnyOrder")
GRADIENTS = Test("DeviceGradients.WithoutAStreamAreThereAfterWait")
SHARES = Test("DeviceKernels.ReduceAsTheHostDoes")
TASKS = Test("DeviceKernels.PackManyTensorsByOneCall")

DRIVERS = Test("DeviceRefusals.DriverDiffersBetweenRanks", program="farandole_device_faults", processes=2,
               by_rank="FAKE_DEVICE_DRIVER_VERSION=$((13000 + 10 * FARANDOLE_RANK))")
NCCLS = Test("DeviceRefusals.NcclDiffersBetweenRanks", program="farandole_device_faults", processes=2,
             by_rank="FAKE_NCCL_VERSION=$((23007 + FARANDOLE_RANK))")
# With a driver that takes no kernels of CUDA 13.
OLD_DRIVERS = NCCLS._replace(by_rank=f"FAKE_DEVICE_DRIVER_VERSION=12080 {NCCLS.by_rank}")

ENGINE_SIZES = Test("EngineOnDevice.ReducesTensorsOfEverySizeAndPlace", processes=2, program="engine_device_test")
ENGINE_LATE = ENGINE_SIZES._replace(filter="EngineOnDevice.WaitsForInputsHoweverLate")
# With slow streams, so that the program's work on an output comes late.
ENGINE_ROWS = ENGINE_SIZES._replace(filter="EngineOnDevice.GathersUnevenRows", by_rank="FAKE_DEVICE_DELAY_US=1000")
ENGINE_JOINED = ENGINE_SIZES._replace(filter="EngineOnDevice.AJoinedRankChangesNoResult")
ENGINE_SETS = ENGINE_SIZES._replace(filter="EngineOnDevice.WithSeveralSetsDoneMeansComplete")
# By itself, without devices.
TRAINS_AS_A_CPU = Test("DeviceTraining.OfFloatsHasTheLossesOfACpu", program="trainer_device_test")
GRAPHS = TRAINS_AS_A_CPU._replace(filter="DeviceTraining.ByGraphsHasTheSameBits")
SAME_BITS = Test("ConvolutionAlgorithms.GiveTheSameBitsEachTime", program="trainer_device_test")
CONVOLVES_AS_A_CPU = Test("DeviceConvolutions/0.HaveTheResultsOfTheHost", program="trainer_device_test")
ATTENDS = Test("FusedAttentionTest.HasTheResultsOfTheFormula", program="trainer_device_test")
ATTENDS_ALIKE = ATTENDS._replace(filter="FusedAttentionTest.HasTheSameBitsEachTimeIfFixed")
ANY_REPLICAS = Test("DeviceTraining.InDeterministicModeHasTheSameBitsOnAnyNumberOfReplicas", program="trainer_device_test")
NEARLY_FLOATS = Test("HalfTraining.HasNearlyTheLossesOfFloats", program="trainer_device_test")
OVERFLOW = NEARLY_FLOATS._replace(filter="HalfTraining.SkipsTheStepOfAnOverflowOnAllReplicas")
SKIPPED = NEARLY_FLOATS._replace(filter="SkippedSteps.ALossThatIsNoNumberDoesNotEndTheTraining")
COPIES_WHILE_COMPUTING = Test("StagedCopies.RunWhileTheDeviceComputes", program="trainer_device_test")
BATCHES_KEPT = COPIES_WHILE_COMPUTING._replace(filter="StagedCopies.KeepABatchUntilTheDeviceHasReadIt")
BATCHES_COPIED = COPIES_WHILE_COMPUTING._replace(filter="StagedCopies.AreWaitedForByTheStreamThatUsesThem")
BATCHES_AHEAD = COPIES_WHILE_COMPUTING._replace(filter="DeviceBatches.AreGatheredBeforeTheCheckOfTheStepBefore")
BATCHES_AGAIN = COPIES_WHILE_COMPUTING._replace(filter="DeviceBatches.StayTheSameAfterExceptionsAndStops")
DRAWN_TRAINING = COPIES_WHILE_COMPUTING._replace(filter="DrawnBatches.TrainAsGatheredOnesOnAnyNumberOfReplicas")
DRAWN_COPIES = COPIES_WHILE_COMPUTING._replace(filter="DrawnBatches.AreNotCopied")
BATCH_ERRORS = COPIES_WHILE_COMPUTING._replace(filter="DeviceBatches.ThatCannotBeReadFailTheStepThatNeedsThem")
BATCH_TIMES = COPIES_WHILE_COMPUTING._replace(filter="DeviceBatches.CountAsWaitingOnlyIfTheDeviceIsIdle")
# The profile of a training on the CPU, without devices.
PROFILED_PASSES = Test("StepProfiler.EachPassOfEachLayerCountsInItsOwnTime", program="trainer_test")
PROFILED_ONCE = PROFILED_PASSES._replace(filter="StepProfiler.CountsEachMomentOnce")
COUNTED_CONVOLUTIONS = PROFILED_PASSES._replace(filter="Work.ConvolutionsAndProductsCountTheirMultiplyAdds")
COUNTED_CONTAINERS = PROFILED_PASSES._replace(filter="Work.LayersInsideContainersHaveTheirPaths")
PROFILE_TABLE = PROFILED_PASSES._replace(filter="Profile.TableHasTimesSpeedsAndTheirSum")
FASTEST_PRODUCT = PROFILED_PASSES._replace(filter="HostPeak.IsTheSpeedOfTheFastestProduct")
PROFILED_PROGRAM = Test("Profiles.TimesOfTheProgramsCodeCountWhereItRuns", program="trainer_profile_test")
PEAK_OF_THE_TYPE = PROFILED_PROGRAM._replace(filter="Profiles.PeakIsThatOfTheModelsType")
RECTIFIED = Test("RectifiedLayers.AValueWithOtherUsersStays", program="trainer_test")
# As on a processor without AVX-512.
AVX2 = "FARANDOLE_ISA=avx2 ONEDNN_MAX_CPU_ISA=AVX2"
ENGINE_ADDED = Test("SetEngine.HandsOutAChangeOnceEarlierBatchesHaveStarted", program="engine_test")
ENGINE_STRESS = ENGINE_SIZES._replace(filter="EngineOnDeviceStress.RandomRequests", processes=3)

CUDNN_PLANS = "ops/trainer/cuda/cudnn_plans.cpp"
CUDNN_ATTENTION = "ops/trainer/cuda/cudnn_attention.cpp"
ATTENTION_GRAPHS = "ops/trainer/cuda/attention_graphs.cpp"
OPERATION = "collectives/src/device/device_operation.cpp"
DIRECT = "collectives/src/communicator/direct_calls.cpp"
MESSAGES = "collectives/src/communicator/device_messages.cpp"
COMPARISON = "collectives/src/device/direct_comparison.cpp"
CAPTURED_CALLS = "collectives/src/device/captured_calls.cpp"
WATCH = "collectives/src/device/direct_watch.cpp"
SIDE_STREAM = "ops/gradients/src/side_stream.cpp"
ENGINE_RUNS = "ops/engine/src/device_runs.cpp"
ENGINE_SHAPES = "ops/engine/src/batch_new_shape.cpp"
ENGINE_DEVICE = "ops/engine/src/engine_device.cpp"
WORK = "collectives/src/device/device_work.cpp"
HIERARCHY = "collectives/src/device/device_hierarchy.cpp"
EXCHANGE = "collectives/src/device/device_exchange.cpp"
CONTEXT = "collectives/src/device/device_context.cpp"
ORDER = "collectives/src/device/device_order.cpp"
PLAN = "collectives/src/device/device_plan.cpp"
PROGRAM = "collectives/src/schedule/stream_program.cpp"
SLOT = "collectives/src/device/device_slot.cpp"
QUEUE = "collectives/src/communicator/work_queue.cpp"
DEVICE = "core/backends/cuda/cuda_device.cpp"
EVENT = "core/backends/cuda/cuda_event.cpp"
GROUP = "core/backends/cuda/nccl_group.cpp"

MUTANTS = [
    # A missing event wait.
    Mutant("collective-before-its-input", "the collective's wait for what is in the caller's stream", WORK,
           "device.wait(stream, *events.ready);", "", STREAM),
    Mutant("event-of-another-stream", "the caller's stream: the event is recorded in the default one", OPERATION,
           "call_.stream.valid() ? call_.stream : StreamView(nullptr, device.space())",
           "StreamView(nullptr, device.space())", STREAM),
    Mutant("stream-before-the-result", "the wait of the caller's stream for the collective", QUEUE,
           "if (enqueued != nullptr) devices_.context().device().wait(stream, *enqueued);", "", STREAM),
    # A dependency between rounds left out.
    Mutant("steps-wait-for-no-step", "what a local step depends on", PROGRAM,
           "for (const int before : step.after) latest = std::max(latest, places_[static_cast<std::size_t>(before)]);", "",
           VALUES),
    Mutant("reduced-before-it-is-received", "that what a round receives is there after the round", PROGRAM,
           "const Point done{step.round + 1, -1};", "const Point done{step.round, -1};", VALUES),
    Mutant("one-bounce-memory-for-a-round", "the bounce memory of each message of a round", PLAN,
           "bounce += device_aligned(extent.count * element_bytes_);", "", VALUES),
    Mutant("messages-before-their-kernels", "that a round sends what kernels have made before", WORK,
           "for (const std::vector<DeviceTask>& launch : stage.launches) device.launch(launch, stream);\n"
           "      if (!stage.messages.empty()) devices->exchange(stage.messages, stream);",
           "if (!stage.messages.empty()) devices->exchange(stage.messages, stream);\n"
           "      for (const std::vector<DeviceTask>& launch : stage.launches) device.launch(launch, stream);", VALUES),
    Mutant("messages-not-in-one-group", "the group around the messages of a round", GROUP,
           'check(api_.ncclGroupStart(), "ncclGroupStart");', "return enqueue();", VALUES),
    # Completion told too early.
    Mutant("done-when-enqueued", "the look whether the device has done it", OPERATION,
           "if (!events_.done->is_complete()) {", "if (false) {", STREAM),
    Mutant("completion-before-the-work", "the work, of what completion comes after", WORK,
           "made->work->enqueue(device, devices, stream);\n              device.record(*events.done, stream);",
           "device.record(*events.done, stream);\n              made->work->enqueue(device, devices, stream);", STREAM),
    Mutant("word-of-another-stream", "the stream that writes that an event is complete", EVENT,
           "api.cuStreamWriteValue32(stream, ", "api.cuStreamWriteValue32(nullptr, ", VALUES),
    Mutant("word-of-an-earlier-record", "which record of an event has written its word", EVENT,
           ".load(std::memory_order_acquire) == pooled_.records", ".load(std::memory_order_acquire) != 0", VALUES),
    Mutant("failed-device-is-not-asked", "the questions to a driver whose device may have failed", EVENT,
           "if (now < next_query_) return false;", "return false;", LOST),
    Mutant("pending-is-complete", "the difference between pending and complete events", EVENT, "if (result == CUDA_ERROR_NOT_READY) return false;",
           "if (result == CUDA_ERROR_NOT_READY) return true;", STREAM),
    Mutant("memory-before-it-is-zero", "the wait until new memory is zero", CONTEXT,
           "device.synchronize(zeroing_stream);", "", STREAM),
    Mutant("gradients-before-they-are-there", "the wait for the device where the caller has no stream",
           "ops/gradients/src/gradient_averager.cpp", "if (waits_for_device_) device_->synchronize(options_.stream);", "",
           GRADIENTS),
    # Different orders on two ranks.
    Mutant("operations-in-the-order-of-calls", "the wait for an operation's turn", OPERATION,
           "if (!slot_.context().is_next(ticket_)) break;", "", ORDERS),
    Mutant("each-rank-has-its-own-times", "the agreement on when an operation runs", OPERATION,
           "if (group_.size() == 1) return State::kDone;", "return State::kDone;", ORDERS_OF_PROCESSES),
    Mutant("times-before-all-ranks-have-called", "the proposal after the ranks have met, and not in the call", OPERATION,
           "slot_.context().add(ticket_);", "slot_.context().add(ticket_); (void)slot_.context().propose(ticket_);", PROGRAMS),
    Mutant("undecided-operations-are-passed-over", "the wait for operations that may still be given an earlier time", ORDER,
           "if (is_first && std::tie(entry.time, other)",
           "if (is_first && entry.state == State::kAgreed && std::tie(entry.time, other)", RANDOM_ORDERS),
    Mutant("agreed-times-are-forgotten", "that proposals are later than what was agreed", ORDER,
           "latest_ = std::max(latest_, agreed);", "", RANDOM_ORDERS),
    # An allocation freed while in use.
    Mutant("scratch-free-when-enqueued", "that an operation keeps its memory until the device has done it", WORK,
           "enqueuing_->check();", "enqueuing_->check();\n    made_->work.reset();", ALLOCATED),
    Mutant("scratch-free-after-a-fault", "that an operation that failed keeps what the device may still use", OPERATION,
           "slot_.context().abandon();\n  return BufferHazard::kWritten;",
           "slot_.context().abandon();\n  return BufferHazard::kNone;", STUCK),
    # Calls that may block in the driver, made on threads that must not block.
    Mutant("memory-on-the-progress-thread", "the device's thread, for memory of an operation", WORK,
           "[made = made_, make = std::move(make)] {", "[made = made_, make = [work = make()] { return work; }] {",
           STUCK_WITHOUT_MEMORY),
    Mutant("enqueued-after-it-was-given-up", "the look whether the thread was left behind while memory was got",
           "collectives/src/device/device_thread.cpp", "if (shared.is_abandoned) continue;", "", LEFT_BEHIND),
    Mutant("freed-while-the-device-works", "the wait for the device before memory goes back to the driver",
           "core/backends/cuda/memory_pool.cpp", "if (source_.wait_for_release) source_.wait_for_release();", "", IDLE),
    Mutant("trimmed-while-calls-run", "the wait for direct calls before memory goes back to the driver", CONTEXT,
           "wait_until([this] { return running_operations_.load() == 0 && !watch_thread_.has_running(); });", "", TRIMMED),
    Mutant("blocks-of-direct-calls-are-free", "that a released block waits for direct calls", DIRECT,
           "if (!is_captured) note_buffers(prepared.call, number);", "", RELEASED_IN_DIRECT_CALL),
    Mutant("blocks-of-agreed-calls-are-free", "that a released block waits for calls of the queue", OPERATION,
           "blocks.note_use(call_.input.data, call_.input.size_in_bytes(), use_);\n"
           "  blocks.note_use(call_.output.data, call_.output.size_in_bytes(), use_);", "(void)blocks;", RELEASED_IN_AGREED_CALL),
    Mutant("no-wait-for-released-blocks", "the wait for released blocks where no memory is left", CONTEXT,
           "if (released.returned == returned) throw;", "throw;", WAITS_FOR_RELEASED),
    # Connections.
    Mutant("connected-for-every-call", "that only schedules connect ranks", WORK,
           "devices.run(plan.collective, stream);", "devices.connect(stream);\n  devices.run(plan.collective, stream);",
           CONNECTIONS),
    # Minimum and maximum by the vendor.
    Mutant("minima-of-what-nccl-compares", "that the vendor combines integers", WORK,
           "if (plan.is_ordered) plan.collective.dtype =", "if (false) plan.collective.dtype =", MINIMA),
    Mutant("inputs-are-ordered-in-any-output", "that only an allreduce orders its input in the output", WORK,
           "plan.is_ordered && call.collective == Collective::kAllreduce;", "plan.is_ordered;", MINIMA),
    # A fault.
    Mutant("aborted-in-a-call", "the wait for a thread that is in NCCL before what it uses is freed", GROUP,
           "[this] { return running_calls_ == 0; }", "[] { return true; }", IN_A_CALL),
    # Checks that refuse a call before anything is enqueued.
    Mutant("packed-into-a-captured-stream", "the question whether a stream is captured, before gradients are packed",
           "ops/gradients/src/gradient_averager.cpp",
           "if (device_ == nullptr || !device_->is_capturing(options_.stream)) pack(bucket);", "pack(bucket);", CAPTURED),
    Mutant("gradients-are-packed-unseen", "the look at the memory of gradients", "ops/gradients/src/gradient_checks.cpp",
           "values); !problem.empty()) {", "values); false) {", ELSEWHERE),
    # Graphs of the program.
    Mutant("questions-break-captures", "the relaxed mode in which a thread asks events", EVENT,
           "const RelaxedCapture relaxed(device.api);", "", CAPTURED_MEANWHILE),
    Mutant("captured-calls-go-to-the-queue", "the refusal of captured calls that need the host between their parts",
           DIRECT, "if (is_captured) refuse_capture(prepared);", "",
           REFUSED_IN_A_CAPTURE),
    Mutant("first-schedule-connects-nobody", "that the first call of a communicator connects the ranks if it is a schedule",
           DIRECT, "if (is_schedule) is_connected_ = true;",
           "if (is_schedule && queue_.devices().is_up(DeviceReach::kAll)) is_connected_ = true;", CAPTURED_AFTER_ONE_CALL),
    # Versions.
    Mutant("drivers-must-be-equal", "that drivers may differ", SLOT,
           "if (claim.collectives != claims[first].collectives) {", "if (claim.version != claims[first].version) {", DRIVERS),
    Mutant("any-nccl-will-do", "the comparison of NCCL's versions", SLOT,
           "if (claim.collectives != claims[first].collectives) {", "if (false) {", NCCLS),
    Mutant("kernels-of-the-newest-cuda", "the toolkit that compiled the kernels", "core/backends/cuda/kernel_image.cpp",
           "const int generation = toolkit / kGeneration;", "const int generation = 13 + toolkit * 0;", OLD_DRIVERS),
    # A kernel, or messages, on the wrong stream.
    Mutant("kernels-in-the-default-stream", "the stream of a kernel", DEVICE,
           "handle_of(stream), parameters, nullptr);", "nullptr, parameters, nullptr);", VALUES),
    Mutant("messages-in-the-default-stream", "the stream of messages", WORK,
           "devices->exchange(stage.messages, stream)",
           "devices->exchange(stage.messages, StreamView(nullptr, device.space()))", VALUES),
    # The division of a launch's work among its threads.
    Mutant("threads-of-a-block-are-one", "which thread of its block a worker is", KERNELS,
           "gridDim.x, threadIdx.x)", "gridDim.x, threadIdx.x & 0)", SHARES),
    Mutant("blocks-are-their-number", "which tiles a block takes", KERNELS,
           "blockIdx.x, gridDim.x", "gridDim.x - 1, gridDim.x", TASKS),
    Mutant("scaled-in-the-default-stream", "the stream of what scales for the vendor's collective", WORK,
           "device.launch({&task, 1}, stream);", "device.launch({&task, 1}, StreamView(nullptr, device.space()));", FACTORS),
    # Hierarchical: what the host does between two parts of the stream.
    Mutant("exchanged-before-it-is-out", "the wait until a slice is in pinned memory", HIERARCHY,
           "if (!step.is_out->is_complete()) return State::kWaiting;", "", LAYOUTS),
    Mutant("copied-in-before-it-is-exchanged", "that a slice is copied in once its messages have come", HIERARCHY,
           "step.exchange = make_exchange(step);", "step.exchange = make_exchange(step);\n    copy_in(step);", LAYOUTS),
    Mutant("shared-before-it-is-in", "the wait for copies in, of what follows inside the host", HIERARCHY,
           "if (in != nullptr) device.wait(stream, *in);\n    launch(device, before, stream);\n    (*work)",
           "launch(device, before, stream);\n    (*work)", LAYOUTS),
    Mutant("copied-out-before-it-is-reduced", "the wait of copies out for what is done inside the host", HIERARCHY,
           "device.wait(stream, *after);", "", LAYOUTS),
    Mutant("one-pinned-slice", "a place of its own in pinned memory for each slice on its way", HIERARCHY,
           "own_->pinned[step.place % own_->pinned.size()].get()", "own_->pinned[0].get()", LAYOUTS),
    Mutant("done-before-the-last-copy-in", "the wait for copies in, of what completion comes after", HIERARCHY,
           "if (last != nullptr) device.wait(stream, *last);", "", HOSTS_AND_STREAM),
    Mutant("hierarchy-before-its-input", "the wait of what is done inside the host for the caller's stream", HIERARCHY,
           "on.wait(stream, *ready);", "", HOSTS_AND_STREAM),
    Mutant("turn-given-away-between-slices", "that an operation keeps its turn until all of it is enqueued", OPERATION,
           "if (run_->fully_enqueued()) {\n    slot_.context().remove(ticket_);",
           "slot_.context().remove(ticket_);\n  if (run_->fully_enqueued()) {", HOST_ORDERS),
    Mutant("sent-before-it-is-computed", "the wait for kernels before messages of device memory", EXCHANGE,
           "if (!computed_->is_complete()) return false;", "", LAYOUTS_WITHOUT_COPIES),
    # Direct calls: what follows them, and their place among the calls of the queue.
    Mutant("reports-are-not-compared", "the comparison of direct calls", COMPARISON,
           "if (std::memcmp(&own, &other, sizeof own) == 0) return;", "return;", DIRECT_DIFFERENCE),
    Mutant("direct-calls-end-unseen", "the question whether a direct call has ended on the device", WATCH,
           "const std::optional<DirectLog::Pending> pending = on_device ? on_device : calls_.being_enqueued();",
           "const std::optional<DirectLog::Pending> pending;", DIRECT_LATE),
    Mutant("replays-end-unseen", "the question whether a replay has ended", WATCH,
           "if (replay) return Wait{Wait::For::kReplay, {replay->number, replay->since}, replay->descriptor, pending};", "",
           REPLAY_LATE),
    Mutant("replays-begin-unmarked", "the write at the begin of a captured call", DIRECT,
           "bool is_watched = device.write_word(word, CapturedCalls::kBegun, stream);", "bool is_watched = true;",
           REPLAY_LATE),
    Mutant("replays-in-a-row-are-one", "the difference between a replay that goes on and the next replay", CAPTURED_CALLS,
           "if (has_begun) entry", "if (has_begun && !entry.is_running) entry", REPLAYS_IN_A_ROW),
    Mutant("calls-wait-since-they-were-enqueued", "that a call behind replays begins when they have ended", WATCH,
           "last_end_ = std::max(last_end_, captured_.last_end());", "", BEHIND_REPLAYS),
    Mutant("last-calls-are-not-compared", "the wait for the reports of a communicator's last calls", WATCH,
           "return !is_on_device() && comparison_.is_complete(calls_.count());", "return !is_on_device();",
           LAST_REPORT),
    Mutant("ends-without-a-last-look", "the reports and comparisons while a communicator ends", WATCH,
           "look(Clock::now());", "(void)give_up_ended(Clock::now());", LAST_CALLS),
    Mutant("messages-before-their-input", "the wait of a list's messages for the caller's stream", MESSAGES,
           "device.wait(lane.stream, begin);", "", MESSAGE_LISTS),
    Mutant("stream-before-its-messages", "the wait of the caller's stream for a list's messages", MESSAGES,
           "device.wait(stream, *lane.done);", "", MESSAGE_LISTS),
    Mutant("actions-while-the-lane-is-locked", "that a lane is unlocked before functions of Work::on_done run", MESSAGES,
           "  lock.unlock();\n", "", MESSAGE_ACTIONS),
    Mutant("direct-calls-overtake-the-queue", "the wait of a direct call for earlier calls of the queue", DIRECT,
           "if (queue_.wait_until_enqueued()) ++waits_;", "", AFTER_THE_QUEUE),
    Mutant("factors-of-the-vendor-are-lost", "the factor of the vendor's reduction", WORK,
           "plan.collective.factor = call.final_scale;", "", DIRECT_FACTORS),
    Mutant("buckets-before-they-are-packed", "the wait of the side stream for the caller's", SIDE_STREAM,
           "device_.wait(stream_, *forked_);", "", DIRECT_GRADIENTS),
    Mutant("averages-before-they-are-there", "the wait of the caller's stream for the side stream", SIDE_STREAM,
           "device_.wait(stream, *joined_);", "", DIRECT_GRADIENTS),

    # The trainer.
    Mutant("reduced-before-backward", "that a gradient is final before it is reduced", TRAINING_STEP,
           "  model_.backward(pass_, batch_->inputs, output_gradient_, [&](std::size_t index) {",
           "  if (averager_) averager_->ready_all();\n"
           "  model_.backward(pass_, batch_->inputs, output_gradient_, [&](std::size_t index) {\n    return;",
           TRAINS_AS_A_CPU),
    Mutant("gradients-of-another-stream", "that gradients are reduced after the work that computes them", TRAINING_STEP,
           ".stream = model_.execution().stream()});", "});", TRAINS_AS_A_CPU),
    Mutant("kernels-in-the-legacy-stream", "the replica's stream of the trainer's kernels", "ops/trainer/cuda/launcher.cpp",
           "static_cast<CUstream>(stream_.handle), parameters", "nullptr, parameters", TRAINS_AS_A_CPU),
    Mutant("products-in-the-legacy-stream", "the replica's stream of cuBLAS", "ops/trainer/cuda/cublas.cpp",
           "static_cast<farandole::cuda::CUstream>(stream.handle)", "nullptr", TRAINS_AS_A_CPU),
    Mutant("graphs-of-one-dropout", "that captured work reads the training step on the device", "ops/trainer/src/dropout.cpp",
           ".step_numbers = pass.step_numbers,", ".step_numbers = nullptr,", GRAPHS),
    Mutant("graphs-of-one-learning-rate", "that a captured update reads the learning rate on the device",
           "ops/trainer/src/parameter_updates.cpp", ".step_numbers = step.step_numbers,", ".step_numbers = nullptr,", GRAPHS),
    Mutant("graphs-of-old-memory", "that graphs are dropped when memory that they use has moved",
           "ops/trainer/src/kernels/device_execution.cpp", "log->release(number);", "", GRAPHS._replace(filter="DeviceTraining.ByGraphsLeavesMemoryThatWasReleased")),
    Mutant("convolutions-in-the-legacy-stream", "the replica's stream of cuDNN", "ops/trainer/cuda/cudnn.cpp",
           "static_cast<farandole::cuda::CUstream>(stream.handle)", "nullptr", CONVOLVES_AS_A_CPU),
    Mutant("algorithms-of-other-results-each-time", "that only deterministic algorithms are chosen", CUDNN_PLANS,
           "offer.determinism != CUDNN_DETERMINISTIC", "false", SAME_BITS),
    Mutant("convolutions-in-tf32", "that convolutions compute in full f32", CUDNN_PLANS,
           "CUDNN_DATA_FLOAT ? CUDNN_FMA_MATH", "CUDNN_DATA_FLOAT ? CUDNN_DEFAULT_MATH", CONVOLVES_AS_A_CPU),
    Mutant("attention-to-later-positions", "the causal mask", ATTENTION_GRAPHS, "CMP_GE, {row, column}", "CMP_GE, {row, row}", ATTENDS),
    Mutant("attention-without-a-scale", "the factor of the scores", ATTENTION_GRAPHS, "probabilities}), scale});",
           "probabilities}), b.graph.number(kAttentionOne)});", ATTENDS),
    Mutant("statistics-of-another-head", "that each head has statistics", ATTENTION_GRAPHS,
           "of_rows(GraphLayout::packed({f.samples, f.heads, f.length, 1}))",
           "of_rows{{f.samples, f.heads, f.length, 1}, {f.heads * f.length, 0, 1, 1}}", ATTENDS),
    Mutant("too-small-a-workspace-of-attention", "the memory of cuDNN's plans", CUDNN_ATTENTION,
           "plan.workspace_bytes()));\n  auto* const narrow", "1));\n  auto* const narrow", ATTENDS),
    Mutant("attention-of-other-bits-each-time", "that only deterministic engines are chosen", CUDNN_ATTENTION,
           "{is_fixed()}", "{false}", ATTENDS_ALIKE),
    Mutant("measured-in-deterministic-mode", "that deterministic mode does not measure", TRAINING,
           "options.deterministic ? AlgorithmChoice::kFixed", "options.deterministic ? AlgorithmChoice::kMeasured",
           ANY_REPLICAS),
    Mutant("update-by-scaled-gradients", "that the update divides by the loss scale", TRAINING,
           ".loss_scale = loss_scaling.on_device()};", "};", NEARLY_FLOATS),
    Mutant("skipped-by-one-replica", "that all replicas skip a training step", TRAINING,
           ".loss_scale = loss_scaling.on_device()};",
           ".loss_scale = communicator.rank() == 0 ? loss_scaling.on_device() : nullptr};", OVERFLOW),
    Mutant("statistics-of-a-skipped-step", "that a skipped step leaves moving statistics alone", TRAINING,
           "model.move_statistics(update.loss_scale);", "model.move_statistics();", OVERFLOW),
    Mutant("average-of-a-skipped-step", "that a skipped step leaves the average alone", "ops/trainer/src/parameter_updates.cpp",
           "step.loss_scale);\n      }", "nullptr);\n      }", OVERFLOW),
    Mutant("scale-lost-in-a-resume", "the loss scale of a checkpoint", TRAINING, "loss_scaling.restore(state.loss_scale);", "",
           OVERFLOW._replace(filter="HalfTraining.GoesOnFromACheckpointWithTheSameBits")),
    Mutant("skipped-steps-count-for-adam", "that Adam's corrections count updates only", "ops/trainer/src/parameter_updates.cpp",
           ".rule_numbers = rule_numbers});", "});", SKIPPED._replace(filter="SkippedSteps.LeaveAdamsFirstUpdateTheFirst")),
    Mutant("skipped-steps-lost-in-floats", "the counter of skipped steps in a checkpoint of floats", TRAINING,
           "loss_scaling.saved()", "loss_scaling.state()",
           SKIPPED._replace(filter="SkippedSteps.AreKeptInCheckpointsAlsoThroughATrainingOfFloats")),
    Mutant("losses-of-skipped-steps-are-failures", "which training steps were skipped", TRAINING, "step.keep_loss_scale();", "",
           SKIPPED),
    Mutant("samples-of-skipped-steps-count", "the samples that do not count, in a resume", TRAINING,
           "current.uncounted = state.uncounted;", "",
           SKIPPED._replace(filter="SkippedSteps.ACheckpointKnowsWhichSamplesDoNotCount")),
    Mutant("never-too-many-skipped-steps", "that a loss that stays no number ends a training", "ops/trainer/src/loss_scaling.cpp",
           "if (!is_at_end && in_a_row_ < kMaxInARow) return {};", "return {};",
           SKIPPED._replace(filter="SkippedSteps.ALossThatStaysNoNumberEndsTheTraining")),
    Mutant("sums-in-half", "that everything but products and convolutions is computed in f32", "ops/trainer/cuda/cuda_kernels.cpp",
           "trainer::cuda::multiply<Scalar>(cublas_, {ones(rows), 1, rows}", "this->multiply({ones(rows), 1, rows}",
           OVERFLOW._replace(filter="HalfKernels.ComputeEverythingElseInFloats")),
    Mutant("batches-in-the-stream-that-computes", "the stream of the copies", STAGED_COPIES,
           "pinned, bytes, copies_);", "pinned, bytes, execution_.stream());", COPIES_WHILE_COMPUTING),
    Mutant("batches-overwritten-while-read", "the wait for what reads the staging memory", STAGED_COPIES,
           "if (stage.was_read) device_.wait(copies_, *stage.read);", "", BATCHES_KEPT),
    Mutant("batches-before-they-are-copied", "the wait for the copy of a batch", STAGED_COPIES,
           "device_.wait(execution_.stream(), *stage.copied);", "", BATCHES_COPIED),
    Mutant("batches-after-the-check", "that batches are gathered before the host waits for the device", TRAINING,
           "if (is_checked) step.fetch_ahead();", "", BATCHES_AHEAD),
    Mutant("micro-batches-when-they-are-due", "that the micro-batches of a training step are gathered ahead", TRAINING_STEP,
           "if (!is_last) feed_.fetch_ahead();", "", BATCH_TIMES),
    Mutant("deterministic-micro-batches-when-they-are-due", "likewise in deterministic mode", TRAINING_STEP,
           "if (index + 1 < own) feed_.fetch_ahead();", "", BATCH_TIMES),
    Mutant("batches-of-another-step", "that a training step that runs again has its own batch", BATCH_FEED,
           "if (was_fetched && position_ == first_of(training_step)) return;", "if (was_fetched) return;", BATCHES_AGAIN),
    Mutant("batch-errors-a-step-early", "that an error of the data waits for the step that needs them", BATCH_FEED,
           "    error_ = std::current_exception();\n    return;", "    throw;", BATCH_ERRORS),
    Mutant("waiting-while-the-device-computes", "that hidden gathering is no waiting", BATCH_FEED,
           "if (device_->computed->is_complete()) waited_", "waited_", BATCH_TIMES),
    Mutant("samples-of-the-batch-before", "the indices of the samples that a device draws", BATCH_FEED,
           "drawn->parts_of(micro_batch.samples)", "drawn->parts_of(std::span(micro_batch.samples).first(1))", DRAWN_TRAINING),
    Mutant("synthetic-batches-are-copied", "that a device draws synthetic samples", "ops/trainer/src/batch_source.cpp",
           "space.is_host() ? nullptr : SyntheticDataset::from(data)", "nullptr", DRAWN_COPIES),

    # The profile of a training.
    Mutant("backward-counts-as-forward", "that a layer's backward pass has a time of its own", LAYER_GRAPH,
           "part(run.pass.profiler, spec.row, Direction::kBackward);", "part(run.pass.profiler, spec.row, Direction::kForward);",
           PROFILED_PASSES),
    Mutant("times-of-the-layer-before", "that a time belongs to its layer", LAYER_GRAPH,
           "part(run.pass.profiler, spec.row, Direction::kForward);",
           "part(run.pass.profiler, spec.row > 0 ? spec.row - 1 : 0, Direction::kForward);", PROFILED_PASSES),
    Mutant("averaging-counts-twice", "that a nested part does not count for the layer around it", STEP_PROFILER,
           "  since_ = now;\n", "", PROFILED_ONCE),
    Mutant("means-as-medians", "that one slow training step changes no time", STEP_PROFILER, "  return *middle;",
           "  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());",
           PROFILED_ONCE._replace(filter="StepProfiler.OneSlowStepChangesNoTime")),
    Mutant("warm-up-counts", "that the first training steps do not count", STEP_PROFILER, "  warm_up_ = kWarmUp;", "  warm_up_ = 0;",
           PROFILED_ONCE._replace(filter="StepProfiler.ForgetsStepsThatWereNotEndedOrCameBeforeARestart")),
    Mutant("operations-without-the-stride", "the stride of a convolution", "ops/trainer/src/conv2d.cpp",
           "static_cast<double>(g.output_positions()) *", "static_cast<double>(g.height * g.width) *", COUNTED_CONVOLUTIONS),
    Mutant("operations-of-one-channel", "the channels of a convolution", "ops/trainer/src/conv2d.cpp",
           "g.patch_elements() * g.channels);", "g.patch_elements());", COUNTED_CONVOLUTIONS),
    Mutant("operations-of-an-ordinary-convolution", "that a depthwise convolution has one kernel per channel",
           "ops/trainer/src/depthwise_conv2d.cpp", "g.kernel * g.kernel * g.channels);",
           "g.kernel * g.kernel * g.channels * g.channels);", COUNTED_CONVOLUTIONS),
    Mutant("gradient-of-the-input-always-counts", "that the first layers compute no gradient of their input",
           "ops/trainer/src/graph_work.cpp", "  rows.add(graph, \"\", false);", "  rows.add(graph, \"\", true);", COUNTED_CONTAINERS),
    Mutant("operations-of-one-sample", "the samples of a training step", PROFILE, "std::optional(of_sample * samples)",
           "std::optional(of_sample)", PROFILE_TABLE),
    Mutant("speed-of-the-forward-pass", "that the speed is that of both passes", PROFILE,
           "set_speed(line, profile.flops(layer), layer.seconds(), profile.peak);",
           "set_speed(line, profile.flops(layer), layer.forward, profile.peak);", PROFILE_TABLE),
    Mutant("share-of-the-trainings-rate", "that the share is that of the matrix product", PROFILE,
           "set_speed(line, profile.flops(layer), layer.seconds(), profile.peak);",
           "set_speed(line, profile.flops(layer), layer.seconds(), profile.flops() / profile.seconds());", PROFILE_TABLE),
    Mutant("multiply-add-as-one-operation", "that a multiply-add of the peak's product counts as two", HOST_PEAK,
           "peak = 2.0 *", "peak = 1.0 *", FASTEST_PRODUCT),
    Mutant("last-product", "that the peak is that of the fastest product", HOST_PEAK, "fastest = std::min(fastest, ",
           "fastest = (", FASTEST_PRODUCT),
    Mutant("smallest-product", "that the peak is that of a large product", HOST_PEAK, "extent <= kLargest", "extent <= kSmallest",
           FASTEST_PRODUCT._replace(filter="HostPeak.IsMeasuredWithTheLargestProductThatFitsTheBudget")),
    Mutant("peak-of-another-type", "that the peak is that of the model's type", TRAINING, "peak = measured_host_peak<Scalar>(communicator)",
           "peak = measured_host_peak<double>(communicator)", PEAK_OF_THE_TYPE),
    Mutant("update-counts-as-rest", "that the update has a time of its own", TRAINING, "part(profiler.get(), StepPart::kUpdate);",
           "part(profiler.get(), StepPart::kRest);", PROFILED_PROGRAM),
    Mutant("input-counts-as-rest", "that the input has a time of its own", TRAINING_STEP,
           "  const ProfiledPart part = profiled(StepPart::kInput);", "", PROFILED_PROGRAM),
    Mutant("metrics-count-as-rest", "that metrics count with the loss", TRAINING_STEP,
           "    const ProfiledPart part = profiled(StepPart::kLoss);\n    name_samples(source_.data_name(), micro_batch_->samples,\n"
           "                 [&] { metrics_", "    name_samples(source_.data_name(), micro_batch_->samples,\n                 [&] { metrics_",
           PROFILED_PROGRAM),
    Mutant("loss-counts-as-rest", "that the loss has a time of its own", TRAINING_STEP,
           "    const ProfiledPart part = profiled(StepPart::kLoss);\n    Workspace", "    Workspace", PROFILED_PROGRAM),
    Mutant("waiting-counts-as-rest", "that waiting for other replicas counts as averaging", TRAINING_STEP,
           "  const ProfiledPart part = profiled(StepPart::kAveraging);\n  averager_->wait();", "  averager_->wait();",
           PROFILED_PROGRAM),
    Mutant("deterministic-averaging-counts-as-rest", "likewise in deterministic mode", TRAINING_STEP,
           "    const ProfiledPart part = profiled(StepPart::kAveraging);\n    const auto start = Clock::now();\n    in_stream_",
           "    const auto start = Clock::now();\n    in_stream_", PROFILED_PROGRAM),
    Mutant("waiting-counts-as-work", "that a replica that waits is not the slowest", STEP_PROFILER,
           "return step.total() - step.seconds[slot(StepPart::kAveraging)];", "return step.total();", PROFILED_PROGRAM),

    # Layers that compute the ReLU behind them.
    Mutant("relu-of-a-value-with-other-users", "that the value before a ReLU stays if others use it", GRAPH_STRUCTURE,
           " || users[nodes_[node].sources[0]] > 1", "", RECTIFIED),
    Mutant("relu-of-a-shared-layer", "that shared layers stay on their own", GRAPH_STRUCTURE, "stage.uses == 1 && ", "",
           RECTIFIED._replace(filter="RectifiedLayers.ASharedConvolutionStays", by_rank=AVX2)),
    Mutant("convolution-without-its-relu", "the ReLU of Winograd's convolution", "ops/trainer/src/conv2d_winograd.cpp",
           "{bias, 0}, output", "{bias, kNoLimit}, output",
           RECTIFIED._replace(filter="WinogradConvolutions.WithAReluHaveTheBitsOfTwoPasses")),
    Mutant("gradient-of-zeros", "that a ReLU's gradient at 0 is 0", "ops/trainer/src/conv2d_few_inputs.cpp",
           "_CMP_GT_OQ", "_CMP_GE_OQ", RECTIFIED._replace(filter="FewInputsConvolutions.WithAReluHaveTheBitsOfTwoPasses")),

    # The engine.
    Mutant("requests-before-their-input", "the wait of the engine's stream for the tensors' inputs", ENGINE_RUNS,
           "if (part.local != nullptr) lane_.wait_for_input(*part.local);", "(void)part;", ENGINE_LATE),
    Mutant("requests-done-before-the-result", "the wait of the tensors' streams for the results", ENGINE_RUNS,
           "lane_.finish(*part.local, *run.completed);", "", ENGINE_SIZES),
    Mutant("events-of-the-program-are-passed-over", "the event that the program has recorded instead", ENGINE_DEVICE,
           "return device_->wait_for_handle(stream_, tensor.ready_handle);", "return;", ENGINE_LATE),
    Mutant("outputs-while-the-program-uses-them", "the wait for earlier work on memory from `allocate`", ENGINE_SHAPES,
           "lane.wait_for_stream(tensor);  // earlier work of the program may still use the output's memory", "",
           ENGINE_ROWS),
    Mutant("gathered-before-it-is-written", "the wait for the input of an allgather", ENGINE_SHAPES,
           "lane.wait_for_input(tensor);", "", ENGINE_LATE),
    Mutant("buffers-are-free-at-once", "that a fusion buffer is in use until its run is unpacked", ENGINE_RUNS,
           "start(run, input);",
           "start(run, input);\n"
           "if (run.work.valid()) lane_.give_back(Buffer(run.values.data, run.values.size_in_bytes(), DType::kU8, [](void*) {},"
           " lane_.space()));", ENGINE_STRESS),
    Mutant("sets-are-made-before-earlier-batches-start", "that batches before a new set start first",
           "ops/engine/src/set_engine.cpp", "if (made_ - waiting < first.after) return std::nullopt;",
           "(void)waiting;", ENGINE_ADDED),
    Mutant("sets-keep-the-negotiated-order", "the agreed order once there are several sets", "ops/engine/src/set_engine.cpp",
           "context_.is_direct = false;", "", ENGINE_SETS),
    Mutant("neutral-values-are-forgotten", "what ranks that have joined contribute", ENGINE_RUNS,
           "lane_.fill_neutral(to, spec.count(), spec.dtype, spec_.op);", "", ENGINE_JOINED),
]
