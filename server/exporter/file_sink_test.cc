#include "server/exporter/file_sink.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/format/cat.h"

// What happens once: right after a temporary was made, and right before one is locked.
static std::function<void(const std::string& path)> behind_mkdir;
static std::function<void(int descriptor)> before_flock;

// In place of the C library's.
extern "C" int mkdir(const char* path, mode_t mode) noexcept {
  const int made = static_cast<int>(syscall(SYS_mkdirat, AT_FDCWD, path, mode));
  const std::string name(path);
  if (made == 0 && behind_mkdir && name.ends_with(".partial")) std::exchange(behind_mkdir, nullptr)(name);
  return made;
}

extern "C" int flock(int descriptor, int operation) noexcept {
  if (before_flock) std::exchange(before_flock, nullptr)(descriptor);
  return static_cast<int>(syscall(SYS_flock, descriptor, operation));
}

namespace msprobe::server {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;
using testing::UnorderedElementsAre;

class DirectorySinkTest : public testing::Test {
 protected:
  DirectorySinkTest() : root_(fs::temp_directory_path() / Cat("msprobe_sink_", getpid())) { fs::remove_all(root_); }
  ~DirectorySinkTest() override { fs::remove_all(root_); }

  void WriteFile(DirectorySink& sink, std::string_view path, std::string_view content) {
    ASSERT_TRUE(sink.Begin(path).ok());
    ASSERT_TRUE(sink.Write(content).ok());
    ASSERT_TRUE(sink.End().ok());
  }
  std::vector<std::string> Names(const fs::path& directory) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(directory)) names.push_back(entry.path().filename().string());
    return names;
  }

  const fs::path root_;
};

TEST_F(DirectorySinkTest, FilesAppearWholeAndReplaceWhatWasThere) {
  const fs::path target = root_ / "step0" / "rank0";
  for (const char* file : {"old.json", "new.json"}) {
    absl::StatusOr<DirectorySink> sink = DirectorySink::Open(target.string());
    ASSERT_TRUE(sink.ok()) << sink.status();
    WriteFile(*sink, file, "{}");
    WriteFile(*sink, "dump_tensor_data/a.pt", "abc");
    EXPECT_EQ(fs::exists(target / file), false);
    ASSERT_TRUE(sink->Commit().ok());
    EXPECT_THAT(Names(target), UnorderedElementsAre(file, "dump_tensor_data"));
  }
  EXPECT_THAT(Names(root_ / "step0"), ElementsAre("rank0"));
}

TEST_F(DirectorySinkTest, FilesThatStayAsTheyWereAreLinkedToThoseOfTheDirectoryBefore) {
  FormerFiles former;
  // Writes the next directory. Gives the files that had to be written.
  const auto write = [&](const std::string& directory, const std::map<std::string, std::string>& contents) {
    std::vector<std::string> written;
    absl::StatusOr<DirectorySink> sink = DirectorySink::Open((root_ / directory).string(), std::nullopt, &former);
    EXPECT_TRUE(sink.ok()) << sink.status();
    WriteFile(*sink, "dump.json", directory);
    for (const auto& [name, content] : contents) {
      const absl::StatusOr<bool> repeated = sink->Repeat(Cat("t/", name), content);
      EXPECT_TRUE(repeated.ok()) << repeated.status();
      if (*repeated) continue;
      WriteFile(*sink, Cat("t/", name), content);
      written.push_back(name);
    }
    EXPECT_TRUE(sink->Commit().ok());
    for (const auto& [name, content] : contents) {
      std::ifstream file(root_ / directory / "t" / name);
      EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), content) << directory << " " << name;
    }
    return written;
  };
  EXPECT_THAT(write("step0", {{"weight", "w"}, {"input", "0"}, {"gone", "g"}, {"edited", "e"}}),
              ElementsAre("edited", "gone", "input", "weight"));
  fs::remove(root_ / "step0/t/gone");
  std::ofstream(root_ / "step0/t/edited") << "by somebody";
  EXPECT_THAT(write("step1", {{"weight", "w"}, {"input", "1"}, {"gone", "g"}, {"edited", "e"}, {"new", "n"}}),
              ElementsAre("edited", "gone", "input", "new"));
  EXPECT_TRUE(fs::equivalent(root_ / "step0/t/weight", root_ / "step1/t/weight"));
  fs::remove_all(root_ / "step0");
  EXPECT_THAT(write("step2", {{"weight", "w"}, {"edited", "e"}}), IsEmpty());

  absl::StatusOr<DirectorySink> twice = DirectorySink::Open((root_ / "step3").string(), std::nullopt, &former);
  ASSERT_TRUE(twice.ok());
  EXPECT_TRUE(*twice->Repeat("t/weight", "w"));
  EXPECT_FALSE(*twice->Repeat("t/weight", "of another tensor of this name"));
  WriteFile(*twice, "t/weight", "another");
  ASSERT_TRUE(twice->Commit().ok());
  EXPECT_EQ(fs::file_size(root_ / "step2/t/weight"), 1u) << "a file of an earlier step is never written";
  EXPECT_EQ(fs::file_size(root_ / "step3/t/weight"), 7u);

  // Neither is one that somebody edited and gave its old time, nor one that somebody has closed to others.
  const std::map<std::string, std::string> two{{"closed", "c"}, {"edited", "e"}};
  write("edited0", two);
  EXPECT_THAT(write("edited1", two), IsEmpty());
  const fs::path edited = root_ / "edited1/t/edited";
  const auto before = fs::last_write_time(edited);
  std::ofstream(edited) << "x";
  fs::last_write_time(edited, before);
  fs::permissions(root_ / "edited1/t/closed", fs::perms::none);
  EXPECT_THAT(write("edited2", two), ElementsAre("closed", "edited"));

  EXPECT_THAT(write("step4", {{"weight", "w"}}), ElementsAre("weight"));
  fs::rename(root_ / "step4", root_ / "elsewhere");
  EXPECT_THAT(write("step5", {{"weight", "w"}}), ElementsAre("weight"));
}

TEST_F(DirectorySinkTest, NothingIsLinkedOnTmpfsWhichDoesNotNoteEveryWrite) {
  const fs::path shared = Cat("/dev/shm/msprobe_sink_test.", getpid());
  FormerFiles former;
  for (const char* step : {"step0", "step1"}) {
    absl::StatusOr<DirectorySink> sink = DirectorySink::Open((shared / step).string(), std::nullopt, &former);
    ASSERT_TRUE(sink.ok()) << sink.status();
    EXPECT_FALSE(*sink->Repeat("weight", "w")) << step;
    WriteFile(*sink, "weight", "w");
    ASSERT_TRUE(sink->Commit().ok());
  }
  fs::remove_all(shared);
}

TEST_F(DirectorySinkTest, PiecesOfAnySizeStandInTheirOrder) {
  absl::StatusOr<DirectorySink> sink = DirectorySink::Open((root_ / "rank0").string());
  ASSERT_TRUE(sink.ok()) << sink.status();
  std::string whole;
  ASSERT_TRUE(sink->Begin("a.pt").ok());
  for (size_t size : {1, 70'000, 3, 65'536, 65'535, 1, 200'000, 5, 2'000'003}) {
    const std::string piece(size, static_cast<char>('a' + whole.size() % 26));
    ASSERT_TRUE(sink->Write(piece).ok());
    whole += piece;
  }
  ASSERT_TRUE(sink->End().ok());
  ASSERT_TRUE(sink->Commit().ok());
  std::ifstream file(root_ / "rank0" / "a.pt");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), whole);
}

// On a disk, and on tmpfs, which has nothing but its page cache.
TEST_F(DirectorySinkTest, FilesOfAnySizeHaveTheirBytesWhereverTheyLie) {
  constexpr size_t kBuffer = 256 << 10;
  for (const fs::path& directory : {root_ / "rank0", fs::path(Cat("/dev/shm/msprobe_sink_test.", getpid()))}) {
    absl::StatusOr<DirectorySink> sink = DirectorySink::Open(directory.string());
    ASSERT_TRUE(sink.ok()) << sink.status();
    std::map<std::string, std::string> contents;
    for (size_t size : {size_t{0}, size_t{4095}, size_t{4096}, size_t{65'535}, size_t{65'536}, size_t{65'537},
                        kBuffer - 1, kBuffer, kBuffer + 1, 3 * kBuffer + 4096, 3 * kBuffer + 4097}) {
      std::string& content = contents[std::to_string(size)];
      for (size_t i = 0; i < size; ++i) content += static_cast<char>(i * 7 + i / 4096 + size);
      WriteFile(*sink, std::to_string(size), content);
    }
    ASSERT_TRUE(sink->Commit().ok());
    for (const auto& [name, content] : contents) {
      std::ifstream file(directory / name, std::ios::binary);
      EXPECT_TRUE(std::string(std::istreambuf_iterator<char>(file), {}) == content) << directory << " " << name;
    }
    fs::remove_all(directory);
  }
}

TEST_F(DirectorySinkTest, NothingStaysWithoutCommit) {
  {
    absl::StatusOr<DirectorySink> sink = DirectorySink::Open((root_ / "step0" / "rank0").string());
    ASSERT_TRUE(sink.ok());
    WriteFile(*sink, "dump.json", "{");
  }
  EXPECT_THAT(Names(root_ / "step0"), IsEmpty());
}

TEST_F(DirectorySinkTest, WhatAKilledProcessLeftIsRemoved) {
  const fs::path target = root_ / "step0" / "rank0";
  // Gives the id of a process that is writing `directory`.
  const auto writer = [](const fs::path& directory) {
    int told[2];
    EXPECT_EQ(pipe(told), 0);
    const pid_t child = fork();
    if (child == 0) {
      absl::StatusOr<DirectorySink> sink = DirectorySink::Open(directory.string());
      if (sink.ok() && sink->Begin("dump.json").ok()) (void)!write(told[1], "", 1);
      pause();
    }
    char byte = 0;
    EXPECT_EQ(read(told[0], &byte, 1), 1);
    close(told[0]);
    close(told[1]);
    return child;
  };
  const auto kill_it = [](pid_t process) {
    kill(process, SIGKILL);
    EXPECT_EQ(waitpid(process, nullptr, 0), process);
  };
  const pid_t dead = writer(target), other = writer(root_ / "step0" / "rank01"), alive = writer(target);
  kill_it(dead);
  kill_it(other);
  for (const char* name : {".rank0.mine.partial", ".rank0.partial"}) fs::create_directory(root_ / "step0" / name);
  {
    absl::StatusOr<DirectorySink> sink = DirectorySink::Open(target.string());
    ASSERT_TRUE(sink.ok()) << sink.status();
    ASSERT_TRUE(sink->Commit().ok());
  }
  EXPECT_THAT(Names(root_ / "step0"),
              UnorderedElementsAre("rank0", ".rank0.mine.partial", ".rank0.partial",
                                   StartsWith(Cat(".rank01.", other, ".")), StartsWith(Cat(".rank0.", alive, "."))));
  kill_it(alive);
}

// Between the moments when a sink makes its temporary and locks it, another Open takes it for a leftover.
TEST_F(DirectorySinkTest, ATemporaryThatAnotherTookForALeftoverIsMadeAnew) {
  const fs::path target = root_ / "step0" / "rank0";
  const auto path_of = [](int descriptor) { return fs::read_symlink(Cat("/proc/self/fd/", descriptor)); };
  fs::path taken;
  int lock = -1;
  const std::map<std::string, std::function<void()>> others = {
      {"removed it before it was opened",
       [&] { behind_mkdir = [&](const std::string& path) { fs::remove(taken = path); }; }},
      {"removed it before it was locked",
       [&] { before_flock = [&](int descriptor) { fs::remove(taken = path_of(descriptor)); }; }},
      {"has it locked, and then removes it", [&] {
         before_flock = [&](int descriptor) {
           taken = path_of(descriptor);
           lock = open(taken.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
           EXPECT_EQ(flock(lock, LOCK_EX | LOCK_NB), 0);
         };
       }}};
  for (const auto& [what, interfere] : others) {
    taken.clear();
    interfere();
    absl::StatusOr<DirectorySink> sink = DirectorySink::Open(target.string());
    ASSERT_TRUE(sink.ok()) << what << ": " << sink.status();
    ASSERT_FALSE(taken.empty()) << what;
    WriteFile(*sink, "dump.json", what);
    if (lock >= 0) {
      fs::remove_all(taken);
      close(std::exchange(lock, -1));
    }
    EXPECT_FALSE(fs::exists(taken)) << what;
    // Another one that comes now finds it locked.
    ASSERT_TRUE(DirectorySink::Open(target.string()).ok());
    const absl::Status committed = sink->Commit();
    ASSERT_TRUE(committed.ok()) << what << ": " << committed;
    std::ifstream file(target / "dump.json");
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), what);
    EXPECT_THAT(Names(root_ / "step0"), ElementsAre("rank0")) << what;
  }
}

TEST_F(DirectorySinkTest, OnlyFilesBelowADirectoryAreTaken) {
  absl::StatusOr<DirectorySink> sink = DirectorySink::Open((root_ / "rank0").string());
  ASSERT_TRUE(sink.ok()) << sink.status();
  FilesBelow files("step0/rank0", *sink);
  ASSERT_TRUE(files.Begin("step0/rank0/dump.json").ok());
  ASSERT_TRUE(files.Write("{}").ok());
  ASSERT_TRUE(files.End().ok());
  for (const char* elsewhere : {"step0/rank01/dump.json", "step0/rank0", "names.txt"}) {
    EXPECT_EQ(files.Begin(elsewhere).code(), absl::StatusCode::kInvalidArgument) << elsewhere;
  }
  ASSERT_TRUE(sink->Commit().ok());
  EXPECT_TRUE(fs::exists(root_ / "rank0" / "dump.json"));
}

TEST_F(DirectorySinkTest, RefusesPathsThatLeaveTheDirectory) {
  absl::StatusOr<DirectorySink> sink = DirectorySink::Open((root_ / "rank0").string());
  ASSERT_TRUE(sink.ok());
  for (const char* path : {"", "/etc/x", "../x", "a/../x", "a//b", "a/"}) EXPECT_FALSE(sink->Begin(path).ok()) << path;
  EXPECT_FALSE(DirectorySink::Open("").ok());
}

TEST_F(DirectorySinkTest, SaysWhatCannotBeWritten) {
  fs::create_directories(root_);
  std::ofstream(root_ / "file") << "x";
  EXPECT_THAT(DirectorySink::Open((root_ / "file" / "rank0").string()).status().ToString(), HasSubstr("file"));
}

TEST(ChunkSink, CarriesThePathOnceAndMarksTheLast) {
  std::vector<v1::FileChunk> chunks;
  ChunkSink sink(
      "step0/rank0/",
      [&](const v1::FileChunk& chunk) {
        chunks.push_back(chunk);
        return true;
      },
      2, 4);
  ASSERT_TRUE(sink.Begin("dump.json").ok());
  ASSERT_TRUE(sink.Write("abcdefghi").ok());
  ASSERT_TRUE(sink.End().ok());
  ASSERT_TRUE(sink.Begin("empty").ok());
  ASSERT_TRUE(sink.End().ok());
  ASSERT_EQ(chunks.size(), 4u);
  EXPECT_EQ(chunks[0].path(), "step0/rank0/dump.json");
  EXPECT_EQ(chunks[1].path(), "");
  EXPECT_EQ(chunks[0].content() + chunks[1].content() + chunks[2].content(), "abcdefghi");
  EXPECT_FALSE(chunks[1].last());
  EXPECT_TRUE(chunks[2].last());
  EXPECT_EQ(chunks[3].path(), "step0/rank0/empty");
  EXPECT_TRUE(chunks[3].last());
}

TEST(ChunkSink, EndsWhenThePeerIsGone) {
  ChunkSink sink("", [](const v1::FileChunk&) { return false; });
  ASSERT_TRUE(sink.Begin("a").ok());
  EXPECT_TRUE(absl::IsCancelled(sink.End()));
}

}  // namespace
}  // namespace msprobe::server
