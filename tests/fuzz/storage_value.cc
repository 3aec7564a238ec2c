// Keys and values as they are read from the database, and tiles. The first byte says which.

#include <algorithm>
#include <string>

#include "google/protobuf/stubs/logging.h"
#include "server/format/storage/extent.h"
#include "server/format/storage/key.h"
#include "server/format/storage/storage.pb.h"
#include "server/format/storage/value.h"
#include "server/format/tiles/tile_reader.h"
#include "tests/fuzz/fuzz_target.h"

namespace msprobe::server {
namespace {

template <typename... Messages>
void DecodeEach(std::string_view bytes) {
  (void)(DecodeAs<Messages>(bytes).ok() + ... + 0);
}

void ReadTile(std::string_view bytes) {
  absl::StatusOr<TileReader> tile = TileReader::Open(bytes);
  if (!tile.ok()) return;
  // Bounded: how much a tile says it holds is the tile's word.
  const uint32_t passes = std::min<uint32_t>(tile->passes(), 4);
  const uint32_t fragments = std::min<uint32_t>(tile->fragments(), 64);
  for (uint32_t pass = 0; pass < passes; ++pass) {
    BlockBuilder block;
    block.Begin(0, pass);
    if (!tile->AppendFragments(0, fragments, pass, block).ok()) continue;
    block.Take().ByteSizeLong();
    BlockBuilder leaf;
    leaf.Begin(0, pass);
    if (fragments > 0) tile->AppendLeaf(fragments - 1, 0, pass, leaf).IgnoreError();
    leaf.Take();
  }
}

}  // namespace
}  // namespace msprobe::server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace msprobe;          // NOLINT: one function
  using namespace msprobe::server;  // NOLINT: as well
  [[maybe_unused]] static auto* const loud = google::protobuf::SetLogHandler(nullptr);
  if (size == 0) return 0;
  const std::string_view rest = msprobe::fuzz::Text(data + 1, size - 1);
  switch (data[0] % 4) {
    case 0:
      ReadTile(rest);
      break;
    case 1:
      DecodeEach<storage::RunRow, storage::SessionRow, storage::StepRow, storage::PayloadRow, storage::PendingRow,
                 storage::TiledRow, storage::TileSetRow, storage::ReferenceRow, msprobe::v1::Block>(rest);
      break;
    case 2:
      (void)DecodeDefinition(rest).ok();
      break;
    default:
      (void)RowKey::Decode(rest).ok();
      (void)TileKey::Decode(rest).ok();
      (void)ChunkKey::Decode(rest).ok();
      (void)Extent::Decode(rest).ok();
      (void)StepKey::Decode(rest).ok();
  }
  return 0;
}
