# SPDX-License-Identifier: Apache-2.0
"""The steps of a run on a machine with a GPU, the most informative steps first. run.py executes the steps."""
import dataclasses
from typing import Dict, List, Tuple

ALL_ALGORITHMS = "two ranks on one device: every algorithm"
STUCK_STREAM = "a stuck stream"
FIGURES = "figures of the device"
BRING_UP = "bring-up"
ENQUEUE = "two ranks: host time of a call"
ALLREDUCE = "allreduce, each rank a device"
TORCH_FIGURES = "torch: copy and add"
TORCH_ENQUEUE = "torch: host time of a call"
TORCH_ENGINE = "torch: a step of gradients by the engine"
TORCH_LIBRARY = "farandole.torch: its library"
COLLECTIVES_OF_TORCH = "farandole.torch: collectives"
TORCH_BACKEND = "farandole.torch: host time of a call"


@dataclasses.dataclass(frozen=True)
class Step:
    """A program, or a job of `ranks` processes of it.

    {bin}, {tests} and {data} in `command` are replaced by the directories of the programs, of the tests' scripts and of
    Fashion-MNIST. `result` says how the output is read: "tests" of GoogleTest, "json", or "text"; a program of the latter two
    that ends with 77 is skipped, with its last line as the reason. `needs` is checked before: "nothing", "device",
    "nccl" (a device and an NCCL), "devices=N" (so many, and an NCCL), "tool=PROGRAM" (a device that is no double, and that
    program), "torch" (a device, and a Python whose torch sees it), "data" (a device, the trainer, and Fashion-MNIST), "trainer"
    (a device, the trainer's tests, and cuBLAS).
    """

    name: str
    limit: int  # seconds
    command: List[str]
    needs: str = "nccl"
    result: str = "tests"
    ranks: int = 0
    environment: Dict[str, str] = dataclasses.field(default_factory=dict)
    # Ranks that share device 0. NCCL accepts them where each claims to be a host of its own, and they talk by sockets.
    share_device: bool = False
    expected_status: int = 0
    after: str = ""  # name of an earlier step; unless that step passes, this step is skipped


def test(name, limit, program, filters, **more):
    return Step(name, limit, ["{bin}/" + program, "--gtest_filter=" + filters], **more)


def shared(name, limit, command, **more):
    return Step(name, limit, command, ranks=2, share_device=True, **more)


def shared_test(name, limit, program, filters, **more):
    return shared(name, limit, ["{bin}/" + program, "--gtest_filter=" + filters], **more)


DEVICE_TEST, FAULTS, ENGINE_TEST = "farandole_device_test", "farandole_device_faults", "engine_device_test"
TRAINER_TEST = "trainer_device_test"
A_FEW = "DeviceCalls.*"
DEVICE_BENCH = ["{bin}/farandole-bench", "--memory", "device", "--place", "in"]


def steps(devices: int, quick: bool) -> List[Step]:
    """All steps on a machine with so many devices. @param quick  measure and test next to nothing, to see that the steps work"""
    figures = ["{bin}/farandole_gpu_figures"]
    bytes_, samples = ("1048576", "1") if quick else (str(256 << 20), "15")
    rows = [
        Step("machine", 30, ["bash", "{tests}/machine.sh"], needs="nothing", result="text"),
        Step("farandole-info", 20, ["{bin}/farandole-info"], needs="nothing", result="text"),
        test("kernels, on the device", 60, DEVICE_TEST, "DeviceKernels.*", needs="device"),
        shared(BRING_UP, 60, ["bash", "{tests}/bring_up.sh", "{bin}/farandole_gpu_figures", "2" if quick else "5"], result="json"),
        *torch_backend(samples),
        test("kernels, on the processor", 60, "cuda_kernels_test", "-*Fatbin*:*Compiled*", needs="nothing"),
        Step(FIGURES, 60, [*figures, "memory", bytes_, samples], needs="device", result="json"),
        Step("costs of driver calls", 40, [*figures, "driver", samples], needs="device", result="json"),
        shared_test("two ranks on one device: collectives", 90, DEVICE_TEST,
                    "DeviceCollectives.AveragesAndUnevenParts*:DeviceCollectives.AlltoallOfUneven*:DeviceCalls.*:DirectCalls.*:DeviceGradients.*"),
        shared_test("two ranks on one device: memory, minima", 60, DEVICE_TEST, "DeviceMemory.*:DeviceMinimum.*"),
        shared_test("two ranks on one device: the engine", 90, ENGINE_TEST, "EngineOnDevice.*"),
        shared_test("two ranks on one device: random requests", 60, ENGINE_TEST, "EngineOnDeviceStress.RandomRequests",
                    environment={"ENGINE_STRESS_REQUESTS": "60"} if quick else {}),
        Step(TORCH_FIGURES, 60, ["{python}", "{tests}/torch_figures.py", bytes_, samples], needs="torch", result="json"),
        test(STUCK_STREAM, 40, FAULTS, "*.AStuckStreamIsATimeoutOnAllRanksWithinTheDeadline",
             environment={"FARANDOLE_TIMEOUT": "3" if quick else "10"}),
        shared(ENQUEUE, 60, [*figures, "enqueue", samples], result="json"),
        test("no device", 20, FAULTS, "*.NoDevice", environment={"CUDA_VISIBLE_DEVICES": "-1", "FAKE_DEVICE_COUNT": "0"}, needs="device"),
        test("one device for two ranks", 20, FAULTS, "*.OneDeviceForTwoRanks", environment={"FARANDOLE_DEVICE": "0"}),
        test("memory", 40, FAULTS, "*.NoMemoryLeftSaysHowMuchWasAskedAndIsFree:*.ADeviceOfAnotherRankIsNotAllocatedFrom", needs="device"),
        shared(TORCH_ENQUEUE, 90, ["{python}", "{tests}/torch_enqueue.py", "{bin}/../lib", samples], needs="torch", result="json"),
        shared(TORCH_ENGINE, 90, ["{python}", "{tests}/torch_engine.py", "{bin}/../lib", samples], needs="torch", result="json"),
        shared("torch: tensors and a side stream", 60, ["{python}", "{tests}/torch_streams.py", "{bin}/../lib"], needs="torch",
               result="text"),
    ]
    rows += killed_peers() + mistakes_in_the_callers_order(quick)
    rows += [
        shared_test(ALL_ALGORITHMS, 150, DEVICE_TEST, "DeviceCollectives.EveryAlgorithmSizeAndCount:DeviceHierarchy.*"),
        test("one rank: all tests", 90, DEVICE_TEST, A_FEW if quick else "*"),
        test("the trainer's kernels", 60, TRAINER_TEST, "DeviceKernelsTest/*:DeviceTensor.*:DeviceExecution.*", needs="trainer"),
        test("the trainer's trainings", 120, TRAINER_TEST, "DeviceTraining.OfFloats*" if quick else "DeviceTraining.*", needs="trainer"),
        Step("the trainer, on the device", 90, ["{bin}/farandole-train", "--data-dir", "{data}", "--device", "cuda", "--epochs",
                                                "1" if quick else "5", *(["--max-steps", "2", "--model", "mlp"] if quick else [])],
             needs="data", result="text"),
        Step("the trainer, on the processor", 60, ["{bin}/farandole-train", "--data-dir", "{data}", "--replicas", "2", "--epochs",
                                                   "1", "--max-steps", "2" if quick else "400"], needs="data", result="text"),
        Step("memcheck", 90, ["compute-sanitizer", "--tool", "memcheck", "--report-api-errors", "no", "--error-exitcode", "9",
                              "{bin}/" + DEVICE_TEST, "--gtest_filter=DeviceKernels.*"], needs="tool=compute-sanitizer"),
        Step("ncu: copy, reduce, pack", 60, ["ncu", "--launch-count", "12", "--section", "SpeedOfLight", *figures, "memory",
                                             bytes_, "1"], needs="tool=ncu", result="text"),
    ]
    return rows + several_devices(min(devices, 8), quick)


def torch_backend(samples: str) -> List[Step]:
    """The backend of torch.distributed on torch's tensors, as a user's program loads it."""
    def cases(what, limit, *groups, after=COLLECTIVES_OF_TORCH):
        command = ["{python}", "{tests}/torch_backend.py", *groups]
        return shared(f"farandole.torch: {what}", limit, command, needs="torch", result="text", after=after)

    return [
        Step(TORCH_LIBRARY, 100, ["{python}", "{tests}/torch_library.py"], needs="torch", result="text"),
        cases("collectives", 60, "collectives", after=TORCH_LIBRARY),
        cases("streams", 40, "streams"),
        cases("DistributedDataParallel", 40, "training"),
        cases("a graph", 40, "graph"),
        shared(TORCH_BACKEND, 90, ["{python}", "{tests}/torch_backend_figures.py", samples], needs="torch", result="json",
               after=COLLECTIVES_OF_TORCH),
    ]


def killed_peers() -> List[Step]:
    """A process that dies in the middle of a collective: its peer says so, and the job's status is that of the dead one."""
    return [shared_test(f"a peer killed in a {name} allreduce", 60, FAULTS, "*.AKilledPeerIsAnErrorInTime",
                        environment={"FARANDOLE_ALLREDUCE": name, "FARANDOLE_TIMEOUT": "20"}, expected_status=137)
            for name in ("ring", "vendor")]


def mistakes_in_the_callers_order(quick: bool) -> List[Step]:
    """Programs that go wrong, and what then ends them."""
    deadline = {"FARANDOLE_TIMEOUT": "2" if quick else "5"}
    raises = {"FARANDOLE_DEVICE_FAULT": "raise", **deadline}
    cases = {"different calls": "DifferentCallsAreAMismatchThatNamesThem",
             "a rank that does not come": "ARankThatDoesNotComeIsATimeoutThatNamesIt",
             "a replay that does not come": "AReplayThatAPeerDoesNotMakeIsATimeoutThatNamesIt",
             "the last calls": "TheLastCallsAreCompared",
             "unmarked gradients": "UnmarkedGradientsEndTheJob"}
    rows = [shared_test(f"in the caller's order: {what}", 60, FAULTS, "*." + case, environment=raises)
            for what, case in cases.items()]
    waits = ["{bin}/" + FAULTS, "--gtest_filter=*.AProgramThatOnlyWaitsForItsStreamIsEnded"]
    return rows + [shared("in the caller's order: a program that only waits for its stream", 60, waits, result="text",
                          environment=deadline, expected_status=1)]


def several_devices(count: int, quick: bool) -> List[Step]:
    """Steps of ranks with a device each."""
    if count < 2:
        return []
    many = f"devices={count}"
    end = "1KiB" if quick else "256MiB"
    bench = [*DEVICE_BENCH, "--max-bytes", end, *(["--iterations", "3"] if quick else [])]
    return [
        test("a device each, threads: all tests", 150, DEVICE_TEST, A_FEW if quick else "*", needs=many),
        test("a device each, processes: all tests", 150, DEVICE_TEST, A_FEW if quick else "*", needs=many, ranks=2),
        Step(ALLREDUCE, 90, [*bench, "--peer", "nccl", "--json", "{out}/allreduce.json"], needs=many, ranks=count, result="text"),
        Step("more ranks than devices", 20, ["{bin}/" + FAULTS, "--gtest_filter=*.MoreRanksThanDevices"],
             needs="devices=2", environment={"CUDA_VISIBLE_DEVICES": "0,1"}),
    ]


def names(rows: List[Step]) -> Tuple[str, ...]:
    return tuple(row.name for row in rows)
