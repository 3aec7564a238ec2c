#include "server/format/tensor_file/npy_file.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "server/format/cat.h"
#include "server/format/dtype_name.h"
#include "server/format/tensor_file/widen.h"

namespace msprobe::server {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kChunk = 1 << 20;
constexpr size_t kMaxHeader = 1 << 16;
constexpr uint64_t kMaxGathered = 16ull << 30;

struct NumpyType {
  v1::DType dtype;
  std::string_view code;
};
constexpr NumpyType kTypes[] = {{v1::DTYPE_FLOAT64, "f8"},   {v1::DTYPE_FLOAT32, "f4"},    {v1::DTYPE_FLOAT16, "f2"},
                                {v1::DTYPE_INT8, "i1"},      {v1::DTYPE_INT16, "i2"},      {v1::DTYPE_INT32, "i4"},
                                {v1::DTYPE_INT64, "i8"},     {v1::DTYPE_UINT8, "u1"},      {v1::DTYPE_UINT16, "u2"},
                                {v1::DTYPE_UINT32, "u4"},    {v1::DTYPE_UINT64, "u8"},     {v1::DTYPE_BOOL, "b1"},
                                {v1::DTYPE_COMPLEX64, "c8"}, {v1::DTYPE_COMPLEX128, "c16"}};

std::string_view CodeOf(v1::DType dtype) {
  for (const NumpyType& type : kTypes) {
    if (type.dtype == dtype) return type.code;
  }
  if (dtype == v1::DTYPE_COMPLEX32) return "c8";
  return DTypeSize(dtype) == 0 ? "" : "f4";
}

bool IsNative(v1::DType dtype) {
  return std::any_of(std::begin(kTypes), std::end(kTypes), [&](const NumpyType& type) { return type.dtype == dtype; });
}

class NpyFileWriter : public TensorFileWriter {
 public:
  NpyFileWriter(TensorDescription description, uint64_t size, ByteSink sink)
      : description_(std::move(description)), size_(size), sink_(std::move(sink)) {}

  absl::Status Start() {
    std::vector<int64_t> shape = description_.shape;
    if (description_.dtype == v1::DTYPE_FLOAT4_E2M1FN_X2) {
      if (shape.empty()) shape.push_back(1);
      shape.back() *= 2;
    }
    const std::string_view code = CodeOf(description_.dtype);
    std::string header =
        Cat("{'descr': '", code.back() == '1' ? "|" : "<", code, "', 'fortran_order': False, 'shape': (",
            absl::StrJoin(shape, ", "), shape.size() == 1 ? ",), }" : "), }");
    const size_t unpadded = kMagic.size() + 4 + header.size() + 1;
    header.append((64 - unpadded % 64) % 64, ' ');
    header += '\n';
    std::string prefix(kMagic);
    prefix += '\x01';
    prefix += '\0';
    prefix += static_cast<char>(header.size() & 0xFF);
    prefix += static_cast<char>(header.size() >> 8);
    return sink_(prefix + header);
  }

  const TensorDescription& description() const override { return description_; }

  absl::Status Append(std::string_view content) override {
    written_ += content.size();
    if (written_ > size_) return absl::InvalidArgumentError(Cat("more than ", size_, " bytes of elements"));
    if (IsNative(description_.dtype)) return sink_(content);
    // A chunk may end within an element.
    carry_.append(content);
    const size_t component = IsComplex(description_.dtype) ? 2 : DTypeSize(description_.dtype);
    const size_t whole = carry_.size() / component * component;
    for (size_t begin = 0; begin < whole; begin += kChunk) {
      const std::string wide =
          Widen(std::string_view(carry_).substr(begin, std::min(kChunk, whole - begin)), component);
      if (absl::Status status = sink_(wide); !status.ok()) return status;
    }
    carry_.erase(0, whole);
    return absl::OkStatus();
  }

  absl::Status Finish() override {
    if (written_ == size_) return absl::OkStatus();
    return absl::InvalidArgumentError(Cat(written_, " bytes of elements, not ", size_));
  }

 private:
  std::string Widen(std::string_view content, size_t component) const {
    std::string out;
    auto put = [&](float value) {
      char bytes[4];
      std::memcpy(bytes, &value, 4);
      out.append(bytes, 4);
    };
    for (size_t i = 0; i < content.size(); i += component) {
      if (IsQuantized(description_.dtype)) {
        put(static_cast<float>(static_cast<double>(Stored(content.data() + i) - description_.zero_point) *
                               description_.scale));
        continue;
      }
      uint16_t bits = static_cast<unsigned char>(content[i]);
      if (component == 2) bits = static_cast<uint16_t>(bits | static_cast<unsigned char>(content[i + 1]) << 8);
      if (description_.dtype == v1::DTYPE_FLOAT4_E2M1FN_X2) {
        put(WidenToFloat(description_.dtype, bits & 0xF));
        put(WidenToFloat(description_.dtype, bits >> 4));
      } else {
        put(WidenToFloat(description_.dtype, bits));
      }
    }
    return out;
  }

  int64_t Stored(const char* at) const {
    if (description_.dtype == v1::DTYPE_QUINT8) return static_cast<unsigned char>(*at);
    if (description_.dtype == v1::DTYPE_QINT8) return static_cast<signed char>(*at);
    int32_t value;
    std::memcpy(&value, at, 4);
    return value;
  }

  const TensorDescription description_;
  const uint64_t size_;
  ByteSink sink_;
  uint64_t written_ = 0;
  std::string carry_;
};

absl::Status Malformed(std::string_view what) { return absl::InvalidArgumentError(Cat(".npy: ", what)); }

// Parses numpy's header, a Python dict with three known keys, and no other Python.
class HeaderReader {
 public:
  explicit HeaderReader(std::string_view text) : rest_(text) {}

  absl::Status Read(std::string& descr, bool& fortran, std::vector<int64_t>& shape) {
    bool seen[3] = {false, false, false};
    if (!Skip('{')) return Malformed("the header is no dict");
    while (!Skip('}')) {
      std::optional<std::string> key = Quoted();
      if (!key || !Skip(':')) return Malformed("the header is no dict of texts");
      if (*key == "descr") {
        std::optional<std::string> text = Quoted();
        if (!text) return Malformed("descr is not a plain type: structured arrays are not read");
        descr = *text;
        seen[0] = true;
      } else if (*key == "fortran_order") {
        if (Word("True")) {
          fortran = true;
        } else if (Word("False")) {
          fortran = false;
        } else {
          return Malformed("fortran_order is neither True nor False");
        }
        seen[1] = true;
      } else if (*key == "shape") {
        if (absl::Status status = Shape(shape); !status.ok()) return status;
        seen[2] = true;
      } else {
        return Malformed(Cat("the header has the key '", absl::CHexEscape(key->substr(0, 100)), "'"));
      }
      if (!Skip(',') && !Peek('}')) return Malformed("the header is cut off");
    }
    if (!seen[0] || !seen[1] || !seen[2]) return Malformed("the header lacks descr, fortran_order or shape");
    return absl::OkStatus();
  }

 private:
  bool Peek(char c) {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\n"), rest_.size()));
    return !rest_.empty() && rest_.front() == c;
  }
  bool Skip(char c) {
    if (!Peek(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool Word(std::string_view word) {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\n"), rest_.size()));
    if (rest_.substr(0, word.size()) != word) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  std::optional<std::string> Quoted() {
    const char quote = Peek('\'') ? '\'' : '"';
    if (!Skip(quote)) return std::nullopt;
    const size_t end = rest_.find(quote);
    if (end == std::string_view::npos) return std::nullopt;
    std::string text(rest_.substr(0, end));
    rest_.remove_prefix(end + 1);
    return text;
  }
  absl::Status Shape(std::vector<int64_t>& shape) {
    if (!Skip('(')) return Malformed("shape is no tuple");
    while (!Skip(')')) {
      Peek(' ');
      const size_t digits = std::min(rest_.find_first_not_of("0123456789"), rest_.size());
      int64_t dim = 0;
      if (!absl::SimpleAtoi(AbslView(rest_.substr(0, digits)), &dim) || shape.size() == 64) {
        return Malformed("shape is no tuple of up to 64 numbers");
      }
      shape.push_back(dim);
      rest_.remove_prefix(digits);
      if (!Skip(',') && !Peek(')')) return Malformed("shape is no tuple of numbers");
    }
    return absl::OkStatus();
  }

  std::string_view rest_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TensorFileWriter>> NewNpyFileWriter(TensorDescription description, ByteSink sink) {
  absl::StatusOr<uint64_t> size = ContentSize(description);
  if (!size.ok()) return size.status();
  auto writer = std::make_unique<NpyFileWriter>(std::move(description), *size, std::move(sink));
  if (absl::Status status = writer->Start(); !status.ok()) return status;
  return writer;
}

absl::StatusOr<NpyFile> NpyFile::Open(ByteSource& source) {
  char head[12] = {};
  const size_t head_size = std::min<uint64_t>(sizeof(head), source.size());
  if (absl::Status status = source.ReadAt(0, {head, head_size}); !status.ok()) return status;
  if (head_size < sizeof(head) || std::string_view(head, kMagic.size()) != kMagic) return Malformed("no NumPy file");
  const int version = head[6];
  if (version < 1 || version > 3) return Malformed(Cat("version ", version, "; 1 to 3 are read"));
  const size_t prefix = version == 1 ? 10 : 12;
  size_t header_size = 0;
  for (size_t i = prefix; i-- > 8;) header_size = header_size << 8 | static_cast<unsigned char>(head[i]);
  if (header_size > kMaxHeader || header_size > source.size() - prefix) {
    return Malformed(Cat("a header of ", header_size, " bytes"));
  }
  std::string header(header_size, '\0');
  if (absl::Status status = source.ReadAt(prefix, {header.data(), header_size}); !status.ok()) return status;

  std::string descr;
  bool fortran = false;
  StridedLayout layout;
  TensorDescription& description = layout.description;
  if (absl::Status status = HeaderReader(header).Read(descr, fortran, description.shape); !status.ok()) return status;
  layout.big_endian = descr.starts_with('>');
  const std::string_view code = std::string_view(descr).substr(descr.find_first_not_of("<>|=") == 1 ? 1 : 0);
  description.dtype = v1::DTYPE_UNSPECIFIED;
  for (const NumpyType& type : kTypes) {
    if (type.code == code) description.dtype = type.dtype;
  }
  if (description.dtype == v1::DTYPE_UNSPECIFIED) {
    return Malformed(Cat("the type '", absl::CHexEscape(descr.substr(0, 100)), "' is not one of numbers or bool"));
  }
  if (absl::StatusOr<uint64_t> size = ContentSize(description); !size.ok()) return size.status();
  layout.strides.resize(description.shape.size());
  int64_t stride = 1;
  for (size_t k = 0; k < layout.strides.size(); ++k) {
    const size_t i = fortran ? k : layout.strides.size() - 1 - k;
    layout.strides[i] = stride;
    stride *= std::max<int64_t>(description.shape[i], 1);
  }
  const uint64_t content_offset = prefix + header_size;
  if (absl::Status status = CheckLayout(layout, source.size() - content_offset); !status.ok()) return status;
  return NpyFile(source, std::move(layout), content_offset);
}

absl::Status NpyFile::Read(ContentVisitor visit) {
  absl::StatusOr<uint64_t> size = ContentSize(description());
  if (!size.ok()) return size.status();
  if (*size == 0) return absl::OkStatus();
  const bool plain = IsPlain(layout_);
  if (!plain && *size > kMaxGathered) return Malformed("a transposed array of more than 16 GiB");
  std::string buffer(plain ? std::min<uint64_t>(kChunk, *size) : *size, '\0');
  for (uint64_t done = 0; done < *size;) {
    const size_t count = std::min<uint64_t>(buffer.size(), *size - done);
    if (absl::Status status = source_->ReadAt(content_offset_ + done, {buffer.data(), count}); !status.ok()) {
      return status;
    }
    done += count;
    if (!plain) break;
    if (absl::Status status = visit({buffer.data(), count}); !status.ok()) return status;
  }
  return plain ? absl::OkStatus() : VisitStrided(layout_, buffer, visit);
}

}  // namespace msprobe::server
