#include "server/store/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rocksdb/db.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "server/store/store_fixture.h"

namespace msprobe::server {
namespace {

using testing::HasSubstr;

TEST_F(StoreTest, SecondOpenIsRefusedAndNamesTheHolder) {
  StoreOptions options;
  options.directory = directory_ / "data";
  auto second = Store::Open(options);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("in use by another msprobe-server"));
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(std::to_string(getpid())));
  store_.reset();
  EXPECT_TRUE(Store::Open(options).ok()) << "the lock goes with its holder";
}

TEST_F(StoreTest, KeepsItsIdentityAndWhatWasWritten) {
  const std::string id = store_->catalogue().server_id();
  EXPECT_EQ(id.size(), 32u);
  ASSERT_TRUE(store_->catalogue().RegisterSession(HelloOf('a', "r")).ok());
  Reopen();
  EXPECT_EQ(store_->catalogue().server_id(), id);
  EXPECT_EQ(store_->catalogue().FindRun("r")->number(), 1u);
}

TEST_F(StoreTest, OtherStorageFormatIsRefused) {
  storage::ServerRow row;
  row.set_format_version(99);
  ChangeSet changes;
  changes.PutMeta(ServerKey(), row);
  ASSERT_TRUE(store_->database().Write(changes).ok());
  store_.reset();
  StoreOptions options;
  options.directory = directory_ / "data";
  auto opened = Store::Open(options);
  EXPECT_EQ(opened.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(opened.status().message()), HasSubstr("format 99"));
}

TEST_F(StoreTest, ADirectoryOfALaterServerIsRefusedByItsFamilies) {
  store_.reset();
  const std::string path = directory_ / "data/store";
  {
    std::vector<std::string> names;
    ASSERT_TRUE(rocksdb::DB::ListColumnFamilies(rocksdb::DBOptions(), path, &names).ok());
    std::vector<rocksdb::ColumnFamilyDescriptor> families;
    for (const std::string& name : names) families.emplace_back(name, rocksdb::ColumnFamilyOptions());
    std::vector<rocksdb::ColumnFamilyHandle*> handles;
    rocksdb::DB* db = nullptr;
    ASSERT_TRUE(rocksdb::DB::Open(rocksdb::DBOptions(), path, families, &handles, &db).ok());
    handles.emplace_back();
    ASSERT_TRUE(db->CreateColumnFamily(rocksdb::ColumnFamilyOptions(), "mosaics", &handles.back()).ok());
    for (rocksdb::ColumnFamilyHandle* handle : handles) db->DestroyColumnFamilyHandle(handle);
    delete db;
  }
  StoreOptions options;
  options.directory = directory_ / "data";
  auto opened = Store::Open(options);
  EXPECT_EQ(opened.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(opened.status().message()),
              HasSubstr("was written by a later msprobe-server: it has \"mosaics\""));
}

}  // namespace
}  // namespace msprobe::server
