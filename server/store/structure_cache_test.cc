#include "server/store/structure_cache.h"

#include <gtest/gtest.h>

#include <string>

namespace msprobe::server {
namespace {

SharedStructure Named(const std::string& name) {
  v1::Structure structure;
  structure.set_name(name);
  structure.set_kind(v1::RECORD_API);
  structure.mutable_fields()->mutable_dict();
  return *DecodeStructure(structure.SerializeAsString());
}

TEST(StructureCacheTest, GivesWhatWasKeptOfThatRunOnly) {
  StructureCache cache;
  cache.Keep(1, 7, Named("one"));
  cache.Keep(2, 7, Named("two"));
  EXPECT_EQ(cache.Find(1, 7)->summary.name, "one");
  EXPECT_EQ(cache.Find(2, 7)->summary.name, "two");
  EXPECT_EQ(cache.Find(3, 7), nullptr);
  EXPECT_EQ(cache.Find(1, 8), nullptr);
}

TEST(StructureCacheTest, ForgetsWhatNobodyAsksForAndKeepsTheRest) {
  const std::string long_name(1000, 'n');
  StructureCache cache(20'000);  // some ten of them
  cache.Keep(1, 0, Named(long_name));
  cache.Keep(1, 1, Named(long_name));
  for (uint64_t id = 2; id < 200; ++id) {
    cache.Keep(1, id, Named(long_name));
    ASSERT_NE(cache.Find(1, 0), nullptr) << "asked for all the time, gone after " << id;
  }
  EXPECT_EQ(cache.Find(1, 1), nullptr);
}

}  // namespace
}  // namespace msprobe::server
