// SPDX-License-Identifier: Apache-2.0
// The search for NVIDIA's libraries in Python environments, in an invented tree.
#include "cuda/library_search.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

namespace farandole::cuda {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kName = "libfarandole_invented.so.1";

class LibrarySearchTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "farandole-XXXXXX").string();
    top_ = fs::canonical(mkdtemp(pattern.data()));
  }
  void TearDown() override { fs::remove_all(top_); }

  /// Makes a file, and returns its path. @param path  below the tree
  std::string make_file(const fs::path& path, fs::perms permissions = fs::perms::owner_all) const {
    const fs::path file = top_ / path;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << "invented";
    fs::permissions(file, permissions);
    return file.string();
  }
  /// Makes a link in the tree, and returns its path.
  std::string make_link(const fs::path& path, const fs::path& target) const {
    const fs::path link = top_ / path;
    fs::create_directories(link.parent_path());
    fs::create_symlink(target, link);
    return link.string();
  }
  std::vector<fs::path> prefixes() const {
    return python_prefixes([this](const char* name) {
      const auto found = environment_.find(name);
      return found == environment_.end() ? nullptr : found->second.c_str();
    });
  }

  fs::path top_;
  std::map<std::string, std::string> environment_;
};

TEST_F(LibrarySearchTest, AnActivatedEnvironmentComesBeforePythonInPath) {
  make_file("usual/bin/python3");
  environment_ = {{"PATH", top_ / "usual/bin"}, {"CONDA_PREFIX", top_ / "conda"}, {"VIRTUAL_ENV", top_ / "venv"}};
  EXPECT_THAT(prefixes(), ElementsAre(top_ / "venv", top_ / "conda", top_ / "usual"));
}

TEST_F(LibrarySearchTest, ThePrefixOfALinkedPythonIsThatOfItsTarget) {
  make_link("local/bin/python3", make_file("opt/python/bin/python3.11"));
  environment_ = {{"PATH", (top_ / "local/bin").string()}};
  EXPECT_THAT(prefixes(), ElementsAre(top_ / "opt/python"));
}

TEST_F(LibrarySearchTest, AVirtualEnvironmentInPathNeedsNoActivation) {
  make_link("venv/bin/python3", make_file("opt/python/bin/python3.11"));
  make_file("venv/pyvenv.cfg");
  environment_ = {{"PATH", (top_ / "venv/bin").string()}};
  EXPECT_THAT(prefixes(), ElementsAre(top_ / "venv"));
}

TEST_F(LibrarySearchTest, SkipsEntriesOfPathWithoutAPython) {
  make_file("text/bin/python3", fs::perms::owner_read);
  make_file("usual/bin/python3");
  const std::string top = top_.string();
  environment_ = {{"PATH", top + "/none::" + top + "/text/bin:" + top + "/usual/bin"}};
  EXPECT_THAT(prefixes(), ElementsAre(top_ / "usual"));
  environment_ = {{"PATH", top + "/none"}};
  EXPECT_THAT(prefixes(), IsEmpty());
  environment_ = {};
  EXPECT_THAT(prefixes(), IsEmpty());
}

TEST_F(LibrarySearchTest, FindsFilesOfAllLayoutsByPrefixAndName) {
  const std::string of_13 = make_file("a/lib/python3.11/site-packages/nvidia/cu13/lib/libcublas.so.13");
  const std::string of_12 = make_file("a/lib/python3.11/site-packages/nvidia/cublas/lib/libcublas.so.12");
  const std::string of_debian = make_file("b/lib/python3/dist-packages/nvidia/cu13/lib/libcublas.so.13");
  make_file("b/lib/python3/dist-packages/nvidia/cu13/lib/libcublasLt.so.13");
  make_file("b/lib/elsewhere/site-packages/nvidia/cu13/lib/libcublas.so.13");
  EXPECT_THAT(files_in_python({top_ / "b", top_ / "none", top_ / "a"}, {"libcublas.so.13", "libcublas.so.12"}),
              ElementsAre(of_debian, of_13, of_12));
  EXPECT_THAT(files_in_python({top_ / "a"}, {"libcublas.so.12"}), ElementsAre(of_12));
}

/// Sets VIRTUAL_ENV as long as it exists.
class ActiveEnvironment {
 public:
  explicit ActiveEnvironment(const fs::path& prefix) {
    if (const char* const value = std::getenv("VIRTUAL_ENV")) before_ = value;
    setenv("VIRTUAL_ENV", prefix.c_str(), 1);
  }
  ~ActiveEnvironment() { before_.empty() ? unsetenv("VIRTUAL_ENV") : setenv("VIRTUAL_ENV", before_.c_str(), 1); }
  ActiveEnvironment(const ActiveEnvironment&) = delete;
  ActiveEnvironment& operator=(const ActiveEnvironment&) = delete;

 private:
  std::string before_;
};

TEST_F(LibrarySearchTest, LoadsALibraryOfTheActiveEnvironment) {
  const std::string file =
      make_link(fs::path("venv/lib/python3.11/site-packages/nvidia/nccl/lib") / kName, FARANDOLE_FAKE_NCCL);
  const ActiveEnvironment active(top_ / "venv");
  const FoundLibrary found = find_library("", "libfarandole_invented.so", {kName});
  ASSERT_NE(found.handle, nullptr) << found.problem;
  EXPECT_EQ(found.file, file);
  EXPECT_EQ(found.problem, "");
  dlclose(found.handle);
}

TEST_F(LibrarySearchTest, ALoadedLibraryComesFirst) {
  void* const loaded = dlopen(FARANDOLE_FAKE_NCCL, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(loaded, nullptr) << dlerror();
  const FoundLibrary found = find_library("", "libnccl.so", {"libm.so.6"});
  EXPECT_EQ(found.handle, loaded);
  dlclose(found.handle);
  dlclose(loaded);
}

TEST_F(LibrarySearchTest, AChosenFileIsTheOnlyOneThatIsTried) {
  make_link(fs::path("venv/lib/python3.11/site-packages/nvidia/nccl/lib") / kName, FARANDOLE_FAKE_NCCL);
  const ActiveEnvironment active(top_ / "venv");
  const FoundLibrary found = find_library("/no/file", "libfarandole_invented.so", {kName});
  EXPECT_EQ(found.handle, nullptr);
  EXPECT_THAT(found.problem, HasSubstr("/no/file"));
}

TEST_F(LibrarySearchTest, TriesTheNextFileIfOneCannotBeLoaded) {
  const fs::path packages = "venv/lib/python3.11/site-packages/nvidia";
  const std::string broken = make_file(packages / "a/lib" / kName);
  const ActiveEnvironment active(top_ / "venv");
  const FoundLibrary none = find_library("", "libfarandole_invented.so", {kName});
  EXPECT_EQ(none.handle, nullptr);
  EXPECT_THAT(none.problem, HasSubstr(broken));
  const std::string whole = make_link(packages / "b/lib" / kName, FARANDOLE_FAKE_NCCL);
  const FoundLibrary found = find_library("", "libfarandole_invented.so", {kName});
  ASSERT_NE(found.handle, nullptr) << found.problem;
  EXPECT_EQ(found.file, whole);
  dlclose(found.handle);
}

}  // namespace
}  // namespace farandole::cuda
