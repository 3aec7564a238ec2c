#include "server/exporter/sqlite_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "server/format/cat.h"
#include "server/store/disk/scratch_directory.h"

namespace msprobe::server {
namespace {

using testing::HasSubstr;

constexpr char kSchema[] = "CREATE TABLE rows (id INTEGER PRIMARY KEY, text TEXT, number REAL)";
constexpr char kInsert[] = "INSERT INTO rows VALUES (?1, ?2, ?3)";

class SqliteFileTest : public testing::Test {
 protected:
  // Rows as "id|text|number\n".
  std::string Rows() {
    sqlite3* connection = nullptr;
    EXPECT_EQ(sqlite3_open_v2(path_.c_str(), &connection, SQLITE_OPEN_READONLY, nullptr), SQLITE_OK);
    std::string answer;
    const auto row = [](void* into, int count, char** cells, char**) {
      for (int i = 0; i < count; ++i) {
        *static_cast<std::string*>(into) += Cat(cells[i] == nullptr ? "NULL" : cells[i], i + 1 < count ? "|" : "\n");
      }
      return 0;
    };
    EXPECT_EQ(sqlite3_exec(connection, "SELECT * FROM rows; PRAGMA journal_mode", row, &answer, nullptr), SQLITE_OK);
    sqlite3_close(connection);
    return answer;
  }

  size_t Files() {
    using Iterator = std::filesystem::directory_iterator;
    return static_cast<size_t>(std::distance(Iterator(directory_ / ""), Iterator()));
  }

  ScratchDirectory directory_;
  const std::string path_ = directory_ / "a.db";
};

TEST_F(SqliteFileTest, RowsHaveTheValuesThatWereBound) {
  auto file = SqliteFile::Create(path_, {}, kSchema);
  ASSERT_TRUE(file.ok()) << file.status();
  const std::string text = "a\"'\n\xc3\xa9";
  ASSERT_TRUE((*file)->Run(kInsert, {1, text, 0.5}).ok());
  ASSERT_TRUE((*file)->Run(kInsert, {uint64_t{1} << 40, std::string_view(), std::nullopt}).ok());
  ASSERT_TRUE((*file)->Run(kInsert, {true + 1, std::nullopt, std::optional<double>(2.25)}).ok());
  ASSERT_TRUE((*file)->Run("UPDATE rows SET text = ?2 WHERE id = ?1", {2, "later"}).ok());
  ASSERT_TRUE((*file)->Finish("CREATE INDEX texts ON rows (text)").ok());
  EXPECT_EQ(Rows(), Cat("1|", text, "|0.5\n2|later|2.25\n1099511627776||NULL\ndelete\n"));
}

TEST_F(SqliteFileTest, AppearsWholeInPlaceOfAnEarlierFile) {
  std::ofstream(path_) << "an earlier file";
  {
    auto file = SqliteFile::Create(path_, {}, kSchema);
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE((*file)->Run(kInsert, {1, "text", 1}).ok());
  }
  EXPECT_EQ(Files(), 1U) << "without Finish nothing stays";
  EXPECT_EQ(std::filesystem::file_size(path_), 15U);
  auto file = SqliteFile::Create(path_, {.wal = true}, kSchema);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE((*file)->Run(kInsert, {1, "text", 1}).ok());
  EXPECT_EQ(std::filesystem::file_size(path_), 15U);
  std::ofstream(path_ + "-wal") << "what a reader of the earlier file left";
  ASSERT_TRUE((*file)->Finish("").ok());
  file->reset();
  EXPECT_EQ(Files(), 1U);
  EXPECT_EQ(Rows(), "1|text|1.0\nwal\n");
}

TEST_F(SqliteFileTest, NamesThePlaceThatTakesNoFile) {
  const std::string nowhere = directory_ / "none/a.db";
  const absl::Status status = SqliteFile::Create(nowhere, {}, kSchema).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr(Cat("cannot write ", nowhere, ": No such file")));
  std::filesystem::create_directories(path_);
  auto file = SqliteFile::Create(path_, {}, kSchema);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT(std::string((*file)->Finish("").message()), HasSubstr(Cat("cannot write ", path_, ": Is a directory")));
  EXPECT_EQ(Files(), 1U);
}

TEST_F(SqliteFileTest, NamesTheFileOfARowThatBreaksAConstraint) {
  auto file = SqliteFile::Create(path_, {}, kSchema);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE((*file)->Run(kInsert, {1, "", 1}).ok());
  const absl::Status status = (*file)->Run(kInsert, {1, "", 1});
  EXPECT_TRUE(absl::IsInternal(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr(Cat(path_, ": UNIQUE constraint failed: rows.id")));
}

TEST_F(SqliteFileTest, AFullDiskLeavesNothing) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{1 << 20, before.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  absl::Status status;
  {
    auto file = SqliteFile::Create(path_, {}, kSchema);
    ASSERT_TRUE(file.ok()) << file.status();
    const std::string text(10000, 'x');
    for (int i = 0; i < 100000 && status.ok(); ++i) status = (*file)->Run(kInsert, {i, text, 1});
  }
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(Cat("cannot write ", path_, ": ")));
  EXPECT_EQ(Files(), 0U);
}

}  // namespace
}  // namespace msprobe::server
