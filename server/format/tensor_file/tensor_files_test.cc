#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "server/format/cat.h"
#include "server/format/dtype_name.h"
#include "server/format/tensor_file/npy_file.h"
#include "server/format/tensor_file/pt_file.h"
#include "server/format/tensor_file/strided_content.h"
#include "server/format/tensor_file/tensor_pickle.h"
#include "server/format/tensor_file/zip_reader.h"
#include "server/format/tensor_file/zip_writer.h"

namespace msprobe::server {
namespace {

using testing::HasSubstr;

constexpr std::string_view kFive("\0\0\0\0\0\0\x80?\0\0\0@\0\0@@\0\0\x80@", 20);  // 0 to 4 as float32

ByteSink Into(std::string& out) {
  return [&out](std::string_view bytes) {
    out.append(bytes);
    return absl::OkStatus();
  };
}

TensorDescription Description(v1::DType dtype, std::vector<int64_t> shape) {
  TensorDescription description;
  description.dtype = dtype;
  description.shape = std::move(shape);
  return description;
}

std::string WritePt(const TensorDescription& description, std::string_view content) {
  std::string out;
  auto writer = NewPtFileWriter("Functional.x.0", description, Into(out));
  EXPECT_TRUE(writer.ok()) << writer.status();
  for (char c : content) EXPECT_TRUE((*writer)->Append({&c, 1}).ok());
  EXPECT_TRUE((*writer)->Finish().ok());
  return out;
}

template <typename File>
absl::StatusOr<std::string> ReadAll(std::string_view bytes) {
  MemoryBytes source(bytes);
  absl::StatusOr<File> file = File::Open(source);
  if (!file.ok()) return file.status();
  std::string content;
  absl::Status status = file->Read([&](std::string_view chunk) {
    content.append(chunk);
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return content;
}

// The pickle that torch 2.13 writes for arange(5, dtype=float32).
constexpr std::string_view kPickle(
    "\x80\x02"
    "ctorch._utils\n_rebuild_tensor_v2\nq\0((X\x07\0\0\0storageq\x01"
    "ctorch\nFloatStorage\nq\x02X\x01\0\0\0"
    "0q\x03X\x03\0\0\0cpuq\x04K\x05tq\x05QK\0K\x05\x85q\x06K\x01\x85q\x07\x89"
    "ccollections\nOrderedDict\nq\x08)Rq\ttq\nRq\x0b.",
    150);

TEST(TensorPickle, IsWhatTorchWrites) { EXPECT_EQ(*WriteTensorPickle(Description(v1::DTYPE_FLOAT32, {5})), kPickle); }

TEST(TensorPickle, ReadsWhatTorchWrites) {
  absl::StatusOr<PickledTensor> tensor = ReadTensorPickle(kPickle);
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  EXPECT_EQ(tensor->layout.description.shape, std::vector<int64_t>{5});
  EXPECT_EQ(tensor->layout.strides, std::vector<int64_t>{1});
  EXPECT_EQ(tensor->storage_key, "0");
  EXPECT_EQ(tensor->storage_bytes, 20u);
}

TEST(TensorPickle, RefusesEverythingElseByName) {
  const struct {
    std::string pickle;
    std::string word;
  } cases[] = {
      {"", "cut off"},
      {std::string("\x80\x02") + "cos\nsystem\n.", "os system"},
      {std::string("\x80\x02") + "c__builtin__\neval\n.", "eval"},
      {std::string("\x80\x02") + "ctorch.storage\n_load_from_bytes\n.", "_load_from_bytes"},
      {std::string("\x80\x02]."), "something else than one tensor"},
      {std::string("\x80\x02)."), "something else than one tensor"},
      {std::string("\x80\x02R."), "an empty stack"},
      {std::string("\x80\x02t."), "mark"},
      {std::string("\x80\x02h\x05."), "recalls the value 5"},
      {std::string("\x80\x02X\xff\xff\xff\x7f."), "cut off"},
      {std::string("\x80\x09."), "protocol 9"},
      {std::string("\x80\x02") + "ctorch._utils\n_rebuild_tensor_v2\n)R.", "with 0 arguments"},
      {std::string("\x80\x02") + std::string(70000, 'N') + ".", "over 65536 values"},
  };
  for (const auto& c : cases) {
    absl::StatusOr<PickledTensor> tensor = ReadTensorPickle(c.pickle);
    ASSERT_FALSE(tensor.ok()) << c.word;
    EXPECT_THAT(tensor.status().ToString(), HasSubstr(c.word));
  }
}

TEST(TensorPickle, DeepNestingCostsNoStack) {
  std::string pickle("\x80\x02)");
  pickle.append(60000, '\x85');
  pickle += '.';
  EXPECT_FALSE(ReadTensorPickle(pickle).ok());
}

TEST(PtFile, ComesBack) {
  for (v1::DType dtype : {v1::DTYPE_FLOAT32, v1::DTYPE_INT32, v1::DTYPE_UINT32, v1::DTYPE_QINT32}) {
    TensorDescription description = Description(dtype, {5});
    description.device = "npu:3";
    if (IsQuantized(dtype)) description.scale = 0.25;
    const std::string file = WritePt(description, kFive);
    MemoryBytes source(file);
    absl::StatusOr<PtFile> back = PtFile::Open(source);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(back->description().dtype, dtype);
    EXPECT_EQ(back->description().device, "npu:3");
    EXPECT_EQ(back->description().scale, description.scale);
    EXPECT_EQ(*ReadAll<PtFile>(file), kFive);
  }
}

TEST(PtFile, EqualTensorsGiveEqualFiles) {
  const TensorDescription description = Description(v1::DTYPE_FLOAT32, {5});
  EXPECT_EQ(WritePt(description, kFive), WritePt(description, kFive));
}

TEST(PtFile, ElementsStartAtAMultipleOf64) {
  const std::string file = WritePt(Description(v1::DTYPE_FLOAT32, {5}), kFive);
  EXPECT_EQ(file.find(kFive) % 64, 0u);
}

TEST(PtFile, WriterCountsItsBytes) {
  std::string out;
  auto writer = NewPtFileWriter("x", Description(v1::DTYPE_FLOAT32, {5}), Into(out));
  ASSERT_TRUE((*writer)->Append(kFive.substr(1)).ok());
  EXPECT_THAT((*writer)->Finish().ToString(), HasSubstr("lacks 1 of its 20 bytes"));
  EXPECT_THAT((*writer)->Append("ab").ToString(), HasSubstr("more than its 20 bytes"));
  EXPECT_FALSE(NewPtFileWriter("x", Description(v1::DTYPE_OTHER, {5}), Into(out)).ok());
  EXPECT_FALSE(NewPtFileWriter("x", Description(v1::DTYPE_INT8, {-1}), Into(out)).ok());
  EXPECT_FALSE(NewPtFileWriter("x", Description(v1::DTYPE_INT8, {1ll << 62, 1ll << 62}), Into(out)).ok());
}

TEST(PtFile, ADamagedElementIsNoticed) {
  std::string file = WritePt(Description(v1::DTYPE_FLOAT32, {5}), kFive);
  file[file.find(kFive) + 3] ^= 1;
  EXPECT_THAT(ReadAll<PtFile>(file).status().ToString(), HasSubstr("CRC"));
}

TEST(PtFile, NoBytesCrashTheReader) {
  const std::string whole = WritePt(Description(v1::DTYPE_FLOAT32, {5}), kFive);
  for (size_t size = 0; size < whole.size(); ++size) EXPECT_FALSE(ReadAll<PtFile>(whole.substr(0, size)).ok());
  std::mt19937 random(5);
  for (int i = 0; i < 20000; ++i) {
    std::string damaged = whole;
    for (int k = static_cast<int>(random() % 3); k >= 0; --k)
      damaged[random() % damaged.size()] = static_cast<char>(random());
    (void)ReadAll<PtFile>(damaged);
  }
}

TEST(Zip, LargeSizesTakeTheWideFields) {
  // Keeps only what frames the 5 GiB.
  constexpr uint64_t kSize = 5ull << 30;
  uint64_t total = 0;
  std::string kept;
  ByteSink sink = [&](std::string_view bytes) {
    total += bytes.size();
    if (bytes.size() < 1000) kept.append(bytes);
    return absl::OkStatus();
  };
  ZipWriter zip(&sink);
  ASSERT_TRUE(zip.Begin("big", kSize).ok());
  const std::string chunk(64 << 20, 'x');
  for (uint64_t done = 0; done < kSize; done += chunk.size()) ASSERT_TRUE(zip.Append(chunk).ok());
  ASSERT_TRUE(zip.End().ok());
  ASSERT_TRUE(zip.Add("small", "abc").ok());
  ASSERT_TRUE(zip.Finish().ok());
  EXPECT_GT(total, kSize);
  std::string wide(8, '\0');
  std::memcpy(wide.data(), &kSize, 8);
  EXPECT_THAT(kept, HasSubstr(wide + wide));  // compressed and plain size, in the descriptor and in the directory
}

TEST(Zip, DirectoriesThatLieAreRefused) {
  std::string end("PK\x05\x06", 4);
  end.append(18, '\0');
  end[8] = end[10] = 1;  // claims one entry, which does not exist
  MemoryBytes source(end);
  EXPECT_THAT(ZipReader::Open(source).status().ToString(), HasSubstr("entry is missing"));
  end[12] = '\xff';
  end[15] = '\x7f';
  MemoryBytes huge(end);
  EXPECT_FALSE(ZipReader::Open(huge).ok());
  MemoryBytes none("not a zip at all, but long enough to be looked at");
  EXPECT_THAT(ZipReader::Open(none).status().ToString(), HasSubstr("not a zip"));
}

TEST(Zip, AnEntryThatUnfoldsToFarMoreIsRefused) {
  std::string entry("PK\x01\x02", 4);
  entry.append(42, '\0');
  entry[10] = 8;           // deflated
  entry[20] = '\x10';      // 16 bytes
  entry[24 + 3] = '\x01';  // of 16 MiB, and
  entry[24] = '\x01';      // one
  entry[28] = 1;           // letters in its name
  std::string end("PK\x05\x06", 4);
  end.append(18, '\0');
  end[8] = end[10] = 1;
  end[12] = static_cast<char>(entry.size() + 1);
  const std::string bomb = entry + "a" + end;
  MemoryBytes source(bomb);
  EXPECT_THAT(ZipReader::Open(source).status().ToString(),
              HasSubstr("zip entry a would unfold from 16 to 16777217 bytes, more than 100 times as many"));
}

TEST(StridedContent, GathersInRowMajorOrder) {
  StridedLayout layout;
  layout.description = Description(v1::DTYPE_INT8, {3, 2});
  layout.strides = {1, 3};
  EXPECT_FALSE(IsPlain(layout));
  ASSERT_TRUE(CheckLayout(layout, 6).ok());
  std::string out;
  ASSERT_TRUE(VisitStrided(layout, "abcdef", [&](std::string_view chunk) {
                out.append(chunk);
                return absl::OkStatus();
              }).ok());
  EXPECT_EQ(out, "adbecf");
}

TEST(StridedContent, RefusesWhatPassesItsStorage) {
  StridedLayout layout;
  layout.description = Description(v1::DTYPE_FLOAT32, {2, 2});
  layout.strides = {2, 1};
  EXPECT_TRUE(CheckLayout(layout, 16).ok());
  EXPECT_FALSE(CheckLayout(layout, 15).ok());
  layout.offset = 1;
  EXPECT_FALSE(CheckLayout(layout, 16).ok());
  layout.offset = ~0ull;
  EXPECT_FALSE(CheckLayout(layout, 16).ok());
  layout.offset = 0;
  layout.strides = {-1, 1};
  EXPECT_FALSE(CheckLayout(layout, 16).ok());
  layout.strides = {0, 0};
  layout.description.shape = {1ll << 30, 1ll << 20};
  EXPECT_THAT(CheckLayout(layout, 16).ToString(), HasSubstr("repeats a storage"));
}

TEST(NpyFile, HeaderIsNumPys) {
  std::string out;
  auto writer = NewNpyFileWriter(Description(v1::DTYPE_FLOAT32, {5}), Into(out));
  ASSERT_TRUE((*writer)->Append(kFive).ok());
  ASSERT_TRUE((*writer)->Finish().ok());
  ASSERT_EQ(out.size(), 128u + 20u);
  EXPECT_THAT(out, HasSubstr("{'descr': '<f4', 'fortran_order': False, 'shape': (5,), }"));
  EXPECT_EQ(*ReadAll<NpyFile>(out), kFive);
}

TEST(NpyFile, NoBytesCrashTheReader) {
  std::string whole;
  auto writer = NewNpyFileWriter(Description(v1::DTYPE_FLOAT32, {5}), Into(whole));
  ASSERT_TRUE((*writer)->Append(kFive).ok());
  for (size_t size = 0; size < whole.size(); ++size) EXPECT_FALSE(ReadAll<NpyFile>(whole.substr(0, size)).ok());
  std::mt19937 random(5);
  for (int i = 0; i < 20000; ++i) {
    std::string damaged = whole;
    for (int k = static_cast<int>(random() % 3); k >= 0; --k) damaged[random() % 100] = static_cast<char>(random());
    (void)ReadAll<NpyFile>(damaged);
  }
}

TEST(StridedContent, AShapeThatFitsNoMemoryIsRefusedEmptyOrNot) {
  for (const int64_t last : {int64_t{0}, int64_t{1}}) {
    const absl::StatusOr<uint64_t> size =
        ContentSize(Description(v1::DTYPE_INT16, {27'951, 1'222'222'222'222'222'221, last}));
    EXPECT_EQ(size.status().message(), "a shape has more elements than any memory");
  }
  EXPECT_EQ(*ContentSize(Description(v1::DTYPE_INT16, {27'951, 0, 3})), 0u);
}

TEST(DTypeName, AllFrameworksSpellings) {
  EXPECT_EQ(DTypeOfName("torch.bfloat16"), v1::DTYPE_BFLOAT16);
  EXPECT_EQ(DTypeOfName("bfloat16"), v1::DTYPE_BFLOAT16);
  EXPECT_EQ(DTypeOfName("BFloat16"), v1::DTYPE_BFLOAT16);
  EXPECT_EQ(DTypeOfName("<U1"), v1::DTYPE_OTHER);
  EXPECT_EQ(DTypeOfName(""), v1::DTYPE_OTHER);
  for (int i = 1; i <= 25; ++i) {
    const v1::DType dtype = static_cast<v1::DType>(i);
    EXPECT_EQ(DTypeOfName(TorchDTypeName(dtype)), dtype);
    EXPECT_GT(DTypeSize(dtype), 0u);
  }
}

}  // namespace
}  // namespace msprobe::server
