// SPDX-License-Identifier: Apache-2.0
// Tests of errors that tests inject into the double, and of the double's options in the environment.
#include <cstdlib>

#include "fake_tables.h"

namespace farandole::fake {
namespace {

using testing::HasSubstr;

using Faults = FakeDeviceTest;

TEST_F(Faults, TheNthCallFails) {
  std::size_t bytes = 0;
  const auto total = [&bytes] { return cuda_api().cuDeviceTotalMem(&bytes, 0); };
  const unsigned long before = fake_device_calls("cuDeviceTotalMem");
  fake_device_inject("cuDeviceTotalMem", 2, CUDA_ERROR_SYSTEM_NOT_READY);
  EXPECT_EQ(total(), CUDA_SUCCESS);
  EXPECT_EQ(total(), CUDA_ERROR_SYSTEM_NOT_READY);
  EXPECT_EQ(total(), CUDA_SUCCESS);
  fake_device_inject("cuDeviceTotalMem_v2", 0, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(total(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(total(), CUDA_ERROR_OUT_OF_MEMORY);
  fake_device_restore();
  EXPECT_EQ(total(), CUDA_SUCCESS);
  EXPECT_EQ(fake_device_calls("cuDeviceTotalMem"), before + 6);
}

TEST_F(Faults, EveryFunctionCanFail) {
  int version = 0;
  fake_device_inject("cuDriverGetVersion", 1, CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(cuda_api().cuDriverGetVersion(&version), CUDA_ERROR_NOT_FOUND);
  fake_device_inject("ncclGetVersion", 1, ncclSystemError);
  EXPECT_EQ(nccl_api().ncclGetVersion(&version), ncclSystemError);
  fake_device_inject("ncclGroupEnd", 1, ncclInternalError);
  EXPECT_EQ(nccl_api().ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(nccl_api().ncclGroupEnd(), ncclInternalError);  // the group is closed nonetheless
  fake_device_inject("ncclGetUniqueId", 1, ncclSystemError);
  ncclUniqueId id{};
  EXPECT_EQ(nccl_api().ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(nccl_api().ncclGetUniqueId(&id), ncclSystemError);
  EXPECT_EQ(nccl_api().ncclGroupEnd(), ncclSystemError);  // as in NCCL, the group fails with its call
  EXPECT_THAT(nccl_api().ncclGetLastError(nullptr), HasSubstr("ncclGetUniqueId fails because a test has injected"));
}

TEST_F(Faults, ALostDeviceFailsAllCallsAndDoesNothing) {
  const CUstream stream = make_stream();
  const Vector<std::uint8_t> memory(std::vector<std::uint8_t>(8, 1));
  const CUevent event = make_event();
  fake_device_stick(stream, 1);
  fake_device_lose(2);
  EXPECT_EQ(cuda_api().cuMemsetD8Async(memory.address(), 2, 8, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuda_api().cuEventRecord(event, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuda_api().cuEventQuery(event), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(cuda_api().cuMemsetD8Async(memory.address(), 2, 8, stream), CUDA_ERROR_ILLEGAL_ADDRESS);
  const char* name = nullptr;
  EXPECT_EQ(cuda_api().cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &name), CUDA_SUCCESS);
  EXPECT_EQ(nccl_api().ncclGroupStart(), ncclUnhandledCudaError);
  EXPECT_THAT(nccl_api().ncclGetLastError(nullptr), HasSubstr("700"));
  fake_device_restore();
  EXPECT_EQ(cuda_api().cuStreamSynchronize(stream), CUDA_SUCCESS);
}

TEST_F(Faults, AStuckStreamNeverGoesOn) {
  const CUstream stream = make_stream();
  const CUevent before = make_event();
  const CUevent after = make_event();
  fake_device_stick(stream, 2);
  EXPECT_EQ(cuda_api().cuEventRecord(before, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuda_api().cuEventRecord(after, stream), CUDA_SUCCESS);
  while (cuda_api().cuEventQuery(before) == CUDA_ERROR_NOT_READY) std::this_thread::yield();
  EXPECT_EQ(cuda_api().cuEventQuery(after), CUDA_ERROR_NOT_READY);
}

// The double reads the environment at its first use, so each of these tests runs in a separate process.
class EnvironmentDeathTest : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(EnvironmentDeathTest, CanHideAllDevices) {
  EXPECT_EXIT(
      {
        setenv("FAKE_DEVICE_COUNT", "0", 1);
        int count = 0;
        const bool is_right = cuda_api().cuInit(0) == CUDA_ERROR_NO_DEVICE && cuda_api().cuDeviceGetCount(&count) == 3;
        std::exit(is_right ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(EnvironmentDeathTest, CanShowSomeDevices) {
  EXPECT_EXIT(
      {
        setenv("CUDA_VISIBLE_DEVICES", "5,2", 1);
        int count = 0;
        CUuuid uuid{};
        cuda_api().cuInit(0);
        cuda_api().cuDeviceGetCount(&count);
        cuda_api().cuDeviceGetUuid(&uuid, 0);
        std::exit(count == 2 && uuid.bytes[15] == 5 ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(EnvironmentDeathTest, CanInjectErrors) {
  EXPECT_EXIT(
      {
        setenv("FAKE_DEVICE_INJECT", "cuInit:2:802,ncclGetVersion:1:2", 1);
        int version = 0;
        const bool is_right = cuda_api().cuInit(0) == CUDA_SUCCESS &&
                              cuda_api().cuInit(0) == CUDA_ERROR_SYSTEM_NOT_READY &&
                              nccl_api().ncclGetVersion(&version) == ncclSystemError;
        std::exit(is_right ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(EnvironmentDeathTest, CanLoseTheDeviceAndStickAStream) {
  EXPECT_EXIT(
      {
        setenv("FAKE_DEVICE_LOST", "9", 1);
        setenv("FAKE_DEVICE_STUCK", "2", 1);
        cuda_api().cuInit(0);
        use_device(0);
        const CUstream stream = make_stream();
        const CUevent first = make_event();
        const CUevent second = make_event();
        bool is_right = cuda_api().cuEventRecord(first, stream) == CUDA_SUCCESS &&
                        cuda_api().cuEventRecord(second, stream) == CUDA_SUCCESS &&
                        cuda_api().cuEventQuery(second) == CUDA_ERROR_NOT_READY;
        std::size_t bytes = 0;
        is_right = is_right && cuda_api().cuDeviceTotalMem(&bytes, 0) == CUDA_SUCCESS &&
                   cuda_api().cuDeviceTotalMem(&bytes, 0) == CUDA_ERROR_ILLEGAL_ADDRESS;
        std::exit(is_right ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(EnvironmentDeathTest, ChoosesSeedAndVersions) {
  EXPECT_EXIT(
      {
        setenv("FAKE_DEVICE_SEED", "7", 1);
        setenv("FAKE_DEVICE_VERBOSE", "1", 1);
        setenv("FAKE_DEVICE_DRIVER_VERSION", "12040", 1);
        setenv("FAKE_NCCL_VERSION", "23007", 1);
        setenv("FAKE_DEVICE_CAPABILITY", "75", 1);
        setenv("FAKE_DEVICE_MEMORY", "2M", 1);
        int driver = 0;
        int nccl = 0;
        int minor = 0;
        std::size_t bytes = 0;
        cuda_api().cuInit(0);
        cuda_api().cuDriverGetVersion(&driver);
        nccl_api().ncclGetVersion(&nccl);
        cuda_api().cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0);
        cuda_api().cuDeviceTotalMem(&bytes, 0);
        std::exit(driver == 12040 && nccl == 23007 && minor == 5 && bytes == 2U << 20 ? 0 : 1);
      },
      testing::ExitedWithCode(0), "FAKE_DEVICE_SEED=7");
}

TEST_F(EnvironmentDeathTest, RefusesUnknownOptions) {
  EXPECT_DEATH(
      {
        setenv("FAKE_DEVICE_DELAY", "7", 1);
        cuda_api().cuInit(0);
      },
      "no option 'FAKE_DEVICE_DELAY=7'");
}

}  // namespace
}  // namespace farandole::fake
