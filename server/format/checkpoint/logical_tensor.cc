#include "server/format/checkpoint/logical_tensor.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "server/format/cat.h"
#include "server/format/dtype_name.h"
#include "server/format/tensor_file/byte_source.h"
#include "server/format/tensor_file/paged_bytes.h"
#include "server/format/tensor_file/tensor_file.h"

namespace msprobe::server {
namespace {

constexpr size_t kMaxPieces = 1 << 14;
constexpr uint64_t kWindow = 256 << 10;

uint64_t Volume(const std::vector<int64_t>& shape) {
  uint64_t volume = 1;
  for (int64_t size : shape) volume *= static_cast<uint64_t>(size);
  return volume;
}

bool Overlap(const TensorPiece& a, const TensorPiece& b) {
  for (size_t i = 0; i < a.begin.size(); ++i) {
    if (a.begin[i] >= b.begin[i] + b.shape[i] || b.begin[i] >= a.begin[i] + a.shape[i]) return false;
  }
  return true;
}

std::vector<int64_t> RowMajor(const std::vector<int64_t>& shape, int64_t element) {
  std::vector<int64_t> strides(shape.size());
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = element;
    element *= std::max<int64_t>(shape[i], 1);
  }
  return strides;
}

}  // namespace

uint64_t LogicalTensor::elements() const { return Volume(shape); }

LogicalTensor PlainTensor(v1::DType dtype, std::vector<int64_t> shape, std::string path, uint64_t offset) {
  LogicalTensor tensor{.dtype = dtype, .shape = std::move(shape), .pieces = {}};
  tensor.pieces.push_back({.path = std::move(path),
                           .offset = offset,
                           .strides = RowMajor(tensor.shape, static_cast<int64_t>(DTypeSize(dtype))),
                           .begin = std::vector<int64_t>(tensor.shape.size()),
                           .shape = tensor.shape});
  return tensor;
}

absl::Status CheckTensor(const LogicalTensor& tensor) {
  TensorDescription description;
  description.dtype = tensor.dtype;
  description.shape = tensor.shape;
  if (auto size = ContentSize(description); !size.ok()) return size.status();
  if (tensor.pieces.size() > kMaxPieces) {
    return absl::InvalidArgumentError(Cat("it has ", tensor.pieces.size(), " pieces; at most ", kMaxPieces));
  }
  uint64_t covered = 0;
  for (size_t p = 0; p < tensor.pieces.size(); ++p) {
    const TensorPiece& piece = tensor.pieces[p];
    const size_t rank = tensor.shape.size();
    bool inside = piece.begin.size() == rank && piece.shape.size() == rank && piece.strides.size() == rank;
    for (size_t i = 0; inside && i < rank; ++i) {
      inside = piece.begin[i] >= 0 && piece.shape[i] >= 0 && piece.strides[i] >= 0 &&
               piece.begin[i] <= tensor.shape[i] && piece.shape[i] <= tensor.shape[i] - piece.begin[i];
    }
    if (!inside) return absl::InvalidArgumentError(Cat("piece ", p, " lies outside the tensor"));
    const uint64_t volume = Volume(piece.shape);
    covered += volume;
    for (size_t other = 0; volume != 0 && other < p; ++other) {
      if (Overlap(piece, tensor.pieces[other])) {
        return absl::InvalidArgumentError(Cat("pieces ", other, " and ", p, " overlap"));
      }
    }
  }
  if (covered != tensor.elements()) {
    return absl::InvalidArgumentError(Cat("its pieces hold ", covered, " of its ", tensor.elements(), " elements"));
  }
  return absl::OkStatus();
}

absl::StatusOr<LogicalTensor> JoinTensors(const std::vector<LogicalTensor>& parts, size_t dimension) {
  LogicalTensor joined = parts.front();
  for (size_t part = 1; part < parts.size(); ++part) {
    std::vector<int64_t> like = parts[part].shape;
    if (dimension < like.size() && like.size() == joined.shape.size()) like[dimension] = joined.shape[dimension];
    if (parts[part].dtype != joined.dtype || like != joined.shape || dimension >= like.size()) {
      return absl::InvalidArgumentError(Cat("part ", part, " does not fit part 0 along dimension ", dimension));
    }
    for (TensorPiece piece : parts[part].pieces) {
      piece.begin[dimension] += joined.shape[dimension];
      joined.pieces.push_back(std::move(piece));
    }
    joined.shape[dimension] += parts[part].shape[dimension];
  }
  return joined;
}

LogicalTensor SliceTensor(const LogicalTensor& tensor, size_t dimension, int64_t begin, int64_t end) {
  LogicalTensor slice{.dtype = tensor.dtype, .shape = tensor.shape, .pieces = {}};
  slice.shape[dimension] = end - begin;
  for (TensorPiece piece : tensor.pieces) {
    const int64_t first = std::max(begin, piece.begin[dimension]);
    const int64_t last = std::min(end, piece.begin[dimension] + piece.shape[dimension]);
    if (first >= last && begin != end) continue;
    piece.offset += static_cast<uint64_t>((first - piece.begin[dimension]) * piece.strides[dimension]);
    piece.begin[dimension] = first - begin;
    piece.shape[dimension] = std::max<int64_t>(last - first, 0);
    slice.pieces.push_back(std::move(piece));
  }
  return slice;
}

// Walks one piece by its runs: elements that follow each other both in the tensor and in the file.
class LogicalReader::Cursor {
 public:
  Cursor(const LogicalTensor& tensor, const TensorPiece& piece, uint64_t window)
      : piece_(piece),
        element_(DTypeSize(tensor.dtype)),
        places_(RowMajor(tensor.shape, 1)),
        window_size_(window),
        outer_(piece.shape.size()) {
    while (outer_ > 0) {
      const size_t i = outer_ - 1;
      if (piece.shape[i] != 1 && piece.strides[i] != static_cast<int64_t>(run_ * element_)) break;
      run_ *= static_cast<uint64_t>(piece.shape[i]);
      --outer_;
      if (piece.shape[i] != tensor.shape[i]) break;
    }
    index_.resize(outer_);
    ended_ = Volume(piece.shape) == 0;
    for (size_t i = 0; i < piece.shape.size(); ++i) start_ += static_cast<uint64_t>(piece.begin[i] * places_[i]);
    offset_ = piece.offset;
    int64_t within = static_cast<int64_t>(run_ * element_);
    for (size_t i = outer_; i-- > 0;) {
      if (piece.shape[i] == 1) continue;
      in_order_ = in_order_ && piece.strides[i] >= within;
      within = piece.strides[i] * piece.shape[i];
    }
  }

  // What lies in elements [begin, begin + count) of the tensor, which begin at `to`. Returns how many those were.
  absl::StatusOr<uint64_t> Fill(uint64_t begin, uint64_t count, char* to) {
    uint64_t filled = 0;
    while (!ended_ && start_ + at_ < begin + count) {
      const uint64_t part = std::min(run_ - at_, begin + count - (start_ + at_));
      absl::Status status = Copy(offset_ + at_ * element_, part * element_, to + (start_ + at_ - begin) * element_);
      if (!status.ok()) return status;
      filled += part;
      at_ += part;
      if (at_ == run_) NextRun();
    }
    return filled;
  }

 private:
  void NextRun() {
    at_ = 0;
    for (size_t i = outer_; i-- > 0;) {
      start_ += static_cast<uint64_t>(places_[i]);
      offset_ += static_cast<uint64_t>(piece_.strides[i]);
      if (++index_[i] < piece_.shape[i]) return;
      start_ -= static_cast<uint64_t>(places_[i] * piece_.shape[i]);
      offset_ -= static_cast<uint64_t>(piece_.strides[i] * piece_.shape[i]);
      index_[i] = 0;
    }
    ended_ = true;
    window_ = {};
    pages_.reset();
    file_.reset();
  }

  absl::Status Copy(uint64_t offset, uint64_t size, char* to) {
    if (file_ == nullptr) {
      auto file = FileBytes::Open(piece_.path);
      if (!file.ok()) return file.status();
      file_ = *std::move(file);
      if (!in_order_) pages_ = std::make_unique<PagedBytes>(*file_, Streams());
    }
    if (!in_order_) return Named(pages_->Copy(offset, size, to));
    if (size >= window_size_) return file_->ReadAt(offset, {to, size});
    if (offset < window_begin_ || offset + size > window_begin_ + window_.size()) {
      if (offset > file_->size() || size > file_->size() - offset) {
        return absl::OutOfRangeError(Cat(piece_.path, " ends at byte ", file_->size(), "; elements lie at ", offset));
      }
      window_.resize(std::min(window_size_, file_->size() - offset));
      window_begin_ = offset;
      if (absl::Status status = file_->ReadAt(offset, {window_.data(), window_.size()}); !status.ok()) return status;
    }
    std::memcpy(to, window_.data() + (offset - window_begin_), size);
    return absl::OkStatus();
  }

  // Runs between two that lie side by side in the file.
  uint64_t Streams() const {
    size_t nearest = 0;
    for (size_t i = 1; i < outer_; ++i) {
      if (piece_.shape[i] > 1 && piece_.strides[i] < piece_.strides[nearest]) nearest = i;
    }
    uint64_t streams = 1;
    for (size_t i = nearest + 1; i < outer_; ++i) streams *= static_cast<uint64_t>(piece_.shape[i]);
    return streams;
  }

  absl::Status Named(const absl::Status& status) const {
    return status.ok() ? status : absl::Status(status.code(), Cat(piece_.path, ": ", StdView(status.message())));
  }

  const TensorPiece& piece_;
  const uint64_t element_;
  const std::vector<int64_t> places_;  // strides of the tensor, in elements
  const uint64_t window_size_;
  size_t outer_;      // dimensions outside a run
  uint64_t run_ = 1;  // elements
  bool in_order_ = true;
  std::vector<int64_t> index_;
  uint64_t start_ = 0;   // of the run, in the tensor
  uint64_t offset_ = 0;  // of the run, in the file
  uint64_t at_ = 0;      // elements of the run that are done
  bool ended_ = false;
  std::unique_ptr<FileBytes> file_;
  std::unique_ptr<PagedBytes> pages_;  // of a piece that is not in order
  std::string window_;
  uint64_t window_begin_ = 0;
};

LogicalReader::LogicalReader(const LogicalTensor& tensor) {
  const uint64_t window = std::max<uint64_t>(kWindow * 64 / std::max<size_t>(tensor.pieces.size(), 64), 4096);
  for (const TensorPiece& piece : tensor.pieces) {
    cursors_.push_back(std::make_unique<Cursor>(tensor, piece, window));
  }
}

LogicalReader::~LogicalReader() = default;

absl::Status LogicalReader::Read(char* to, uint64_t count) {
  uint64_t filled = 0;
  for (const auto& cursor : cursors_) {
    auto part = cursor->Fill(done_, count, to);
    if (!part.ok()) return part.status();
    filled += *part;
  }
  done_ += count;
  return filled == count ? absl::OkStatus() : absl::DataLossError("pieces do not cover the tensor");
}

}  // namespace msprobe::server
