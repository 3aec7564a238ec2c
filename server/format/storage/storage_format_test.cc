// Checks that the bytes that docs/storage_format.md shows are real.

#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <sstream>

#include "server/format/storage/extent.h"
#include "server/format/storage/key.h"
#include "server/format/storage/scripted_block.h"
#include "server/format/storage/value.h"

namespace msprobe::server {
namespace {

// The bytes of one example as hex: the pairs of digits at the start of each indented line after the example's marker.
std::string Documented(const std::string& example) {
  std::ifstream file(std::string(MSPROBE_SOURCE_DIR) + "/docs/storage_format.md");
  std::string hex, line;
  while (std::getline(file, line) && line != "<!-- example: " + example + " -->") {
  }
  const std::regex pairs("^ +((?:[0-9a-f]{2} )*[0-9a-f]{2})(?:  .*)?$");
  std::smatch match;
  while (std::getline(file, line) && std::regex_match(line, match, pairs)) {
    for (char c : match[1].str()) {
      if (c != ' ') hex += c;
    }
  }
  return hex;
}

v1::Structure Structure() { return TensorStructure("Torch.add", v1::RECORD_API, {"input_args"}); }

TEST(StorageFormatDocument, RowIsAsDocumented) {
  const v1::Block block =
      BlockScript(3, 0).Fragment(Structure(), 0, 4, v1::FRAGMENT_ENTER, {1.5f}).Parent("Module.a.A.forward.0").block();
  EXPECT_EQ(Documented("row key"), Hex(RowKey{1, 0, 3, 0, 0, 0}.Encode()));
  EXPECT_EQ(Documented("row value"), Hex(EncodeValue(block)));
}

TEST(StorageFormatDocument, DefinitionIsAsDocumented) {
  EXPECT_EQ(Documented("definition key"), Hex(DefinitionKey(1, IdOf(Structure()))));
  EXPECT_EQ(Documented("definition value"),
            Hex(EncodeDefinition(DefinitionKind::kStructure, Structure().SerializeAsString())));
}

TEST(StorageFormatDocument, ExtentIsAsDocumented) {
  const char hash[] = "\x60\x06\x8f\x9a\x13\x6f\x5b\x2a\xa1\xc0\xde\x00\x11\x22\x33\x44";
  EXPECT_EQ(Documented("extent key"), Hex(ChunkKey{std::string(hash, kIdBytes), 1, 0, 0}.Encode()));
  EXPECT_EQ(Documented("extent value"), Hex(Extent{12, 8192, 5000, 0xdeadbeef}.Encode()));
}

TEST(StorageFormatDocument, NamesTheFormatOfThisServer) {
  std::ifstream file(std::string(MSPROBE_SOURCE_DIR) + "/docs/storage_format.md");
  std::string title;
  std::getline(file, title);
  EXPECT_EQ(title, "# Storage format " + std::to_string(kStorageFormat));
}

}  // namespace
}  // namespace msprobe::server
