#include "server/format/tensors/arrangement.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_join.h"
#include "server/format/cat.h"
#include "server/format/tensor_file/paged_bytes.h"

namespace msprobe::server {
namespace {

constexpr size_t kChunk = 1 << 20;
constexpr int64_t kDefaultBlock = 16;
constexpr int64_t kByteBlock = 32;  // a block has 32 bytes of the smallest elements
constexpr int64_t kMaxBlock = 1024;

// Axes: a dimension, or its blocks (1) and the places in one (0). Axes without a space between are one stored
// dimension.
struct Format {
  std::string_view name;
  int64_t code;
  std::string_view dimensions;
  std::string_view axes;
};
constexpr std::string_view kMatrix = "BRK";
constexpr Format kFormats[] = {{"NCHW", 0, "NCHW", "N C H W"},
                               {"NHWC", 1, "NCHW", "N H W C"},
                               {"ND", 2, "", ""},
                               {"NC1HWC0", 3, "NCHW", "N C1 H W C0"},
                               {"FRACTAL_Z", 4, "NCHW", "C1HW N1 N0 C0"},
                               {"CHWN", 14, "NCHW", "C H W N"},
                               {"HWCN", 16, "NCHW", "H W C N"},
                               {"NDHWC", 27, "NCDHW", "N D H W C"},
                               {"FRACTAL_NZ", 29, kMatrix, "B K1 R1 R0 K0"},
                               {"NCDHW", 30, "NCDHW", "N C D H W"},
                               {"DHWCN", 31, "NCDHW", "D H W C N"},
                               {"NDC1HWC0", 32, "NCDHW", "N D C1 H W C0"},
                               {"FRACTAL_Z_3D", 33, "NCDHW", "DC1HW N1 N0 C0"}};

const Format* FindFormat(std::string_view name) {
  for (const Format& format : kFormats) {
    if (format.name == name) return &format;
  }
  return nullptr;
}

// An axis by name: 'C' with part 0 (its places), 1 (its blocks) or neither.
struct NamedAxis {
  char letter;
  char part;            // '0', '1' or ' '
  size_t stored_place;  // of the stored dimension that it is, or is a part of
};

struct Order {
  std::string_view name;
  std::string dimensions;
  std::vector<NamedAxis> axes;
  size_t stored_dimensions = 0;

  bool has_blocks() const {
    return std::any_of(axes.begin(), axes.end(), [](const NamedAxis& axis) { return axis.part != ' '; });
  }
  bool is_cut(char letter) const {
    return std::any_of(axes.begin(), axes.end(),
                       [&](const NamedAxis& axis) { return axis.letter == letter && axis.part != ' '; });
  }
  bool is_matrix() const { return dimensions == kMatrix; }
};

Order OrderOf(const Format& format, std::string_view dimensions) {
  Order order{.name = format.name, .dimensions = std::string(dimensions), .axes = {}};
  std::string axes(format.axes);
  if (axes.empty()) {  // ND
    for (char letter : dimensions) axes += {letter, ' '};
    axes.pop_back();
  }
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] == ' ') {
      ++order.stored_dimensions;
      continue;
    }
    const char part = i + 1 < axes.size() && (axes[i + 1] == '0' || axes[i + 1] == '1') ? axes[i + 1] : ' ';
    order.axes.push_back({axes[i], part, order.stored_dimensions});
    if (part != ' ') ++i;
  }
  ++order.stored_dimensions;
  return order;
}

std::string Shown(const std::vector<int64_t>& shape) { return Cat("[", absl::StrJoin(shape, ", "), "]"); }

int64_t Blocks(int64_t size, int64_t block) { return size / block + (size % block != 0); }

// Of matrices: what stands in front of the last `kept` dimensions becomes one number. Nothing: an overflow.
std::optional<std::vector<int64_t>> Flattened(std::vector<int64_t> shape, size_t kept) {
  while (shape.size() < kept) shape.insert(shape.begin(), 1);
  int64_t count = 1;
  for (size_t i = 0; i + kept < shape.size(); ++i) {
    if (shape[i] < 0 || __builtin_mul_overflow(count, shape[i], &count)) return std::nullopt;
  }
  shape.erase(shape.begin(), shape.end() - static_cast<std::ptrdiff_t>(kept));
  shape.insert(shape.begin(), count);
  return shape;
}

using Letters = std::map<char, int64_t>;

absl::StatusOr<Arrangement> Arrange(const Order& order, const Letters& sizes, const Letters& blocks) {
  Arrangement made;
  made.shape.assign(order.stored_dimensions, 1);
  for (char letter : order.dimensions) made.sizes.push_back(sizes.at(letter));
  for (const NamedAxis& axis : order.axes) {
    StoredAxis& stored = made.axes.emplace_back();
    stored.dimension = order.dimensions.find(axis.letter);
    stored.size = sizes.at(axis.letter);
    if (axis.part != ' ') {
      const int64_t block = blocks.at(axis.letter);
      stored.step = axis.part == '1' ? block : 1;
      stored.size = axis.part == '1' ? Blocks(stored.size, block) : block;
    }
    int64_t& shown = made.shape[axis.stored_place];
    if (__builtin_mul_overflow(shown, stored.size, &shown)) {
      return absl::InvalidArgumentError("a shape has more elements than any memory");
    }
  }
  return made;
}

// What a stored shape says: the sizes of blocks, and, without the hint, those of dimensions.
absl::Status Understand(const Order& order, const std::vector<int64_t>& stored, Letters& sizes, Letters& blocks) {
  std::vector<int> members(order.stored_dimensions, 0);
  for (const NamedAxis& axis : order.axes) {
    ++members[axis.stored_place];
    if (axis.part == '0') blocks[axis.letter] = stored[axis.stored_place];
  }
  for (const auto& [letter, block] : blocks) {
    if (block < 1 || block > kMaxBlock) {
      return absl::InvalidArgumentError(
          Cat(order.name, " with shape ", Shown(stored), " has blocks of ", block, "; 1 to ", kMaxBlock, " are read"));
    }
  }
  if (!sizes.empty()) return absl::OkStatus();
  for (const NamedAxis& axis : order.axes) {
    if (members[axis.stored_place] > 1) {
      return absl::FailedPreconditionError(
          Cat(order.name, " with shape ", Shown(stored), " does not say ", order.dimensions, "; give --shape"));
    }
    const int64_t size = stored[axis.stored_place];
    if (axis.part == ' ') sizes[axis.letter] = size;
    if (axis.part == '1' && __builtin_mul_overflow(size, blocks.at(axis.letter), &sizes[axis.letter])) {
      return absl::InvalidArgumentError("a shape has more elements than any memory");
    }
  }
  return absl::OkStatus();
}

// Where elements lie in an arrangement.
class Places {
 public:
  explicit Places(const Arrangement& arrangement) : axes_(arrangement.axes), strides_(axes_.size()) {
    uint64_t stride = 1;
    for (size_t i = axes_.size(); i-- > 0;) {
      strides_[i] = stride;
      stride *= static_cast<uint64_t>(axes_[i].size);
    }
  }

  // What index `index` of a dimension adds, in elements.
  uint64_t Of(size_t dimension, int64_t index) const {
    uint64_t place = 0;
    for (size_t i = 0; i < axes_.size(); ++i) {
      if (axes_[i].dimension != dimension) continue;
      place += static_cast<uint64_t>(index / axes_[i].step % axes_[i].size) * strides_[i];
    }
    return place;
  }
  // How many runs of elements an order of axes reads between two that lie side by side here.
  uint64_t Streams(const std::vector<StoredAxis>& order) const {
    uint64_t streams = 1, most = 1, nearest = std::numeric_limits<uint64_t>::max();
    for (size_t i = order.size() - 1; i-- > 0;) {
      const uint64_t distance = order[i].size > 1 ? Of(order[i].dimension, order[i].step) : 0;
      if (distance != 0 && distance < nearest) {
        nearest = distance;
        most = streams;
      }
      streams *= static_cast<uint64_t>(order[i].size);
    }
    return most;
  }
  // How many elements from `index` of a dimension on lie one behind the other.
  int64_t Run(size_t dimension, int64_t index) const {
    const StoredAxis& last = axes_.back();
    return last.dimension == dimension && last.step == 1 ? last.size - index % last.size : 1;
  }

 private:
  const std::vector<StoredAxis>& axes_;
  std::vector<uint64_t> strides_;
};

}  // namespace

absl::StatusOr<std::string_view> FormatNamed(std::string_view name) {
  if (name == "NZ") name = "FRACTAL_NZ";
  if (const Format* format = FindFormat(name); format != nullptr) return format->name;
  std::vector<std::string> known;
  for (const Format& format : kFormats) known.emplace_back(format.name);
  std::sort(known.begin(), known.end());
  return absl::InvalidArgumentError(
      Cat("layout ", name.substr(0, 60), " is not known; known are ", absl::StrJoin(known, ", ")));
}

std::string_view FormatOfCode(int64_t code) {
  for (const Format& format : kFormats) {
    if (format.code == code) return format.name;
  }
  return {};
}

absl::StatusOr<Rearrangement> PlanRearrangement(const RearrangementRequest& request) {
  auto from_name = FormatNamed(request.from), to_name = FormatNamed(request.to);
  if (!from_name.ok()) return from_name.status();
  if (!to_name.ok()) return to_name.status();
  const Format* from_format = FindFormat(*from_name);
  const Format* to_format = FindFormat(*to_name);
  const Format& nd = *FindFormat("ND");
  // A matrix has no channels: beside FRACTAL_NZ each format without blocks is row-major.
  const auto flat = [](const Format& format) { return format.axes.find('0') == std::string_view::npos; };
  if (from_format->dimensions == kMatrix && flat(*to_format)) to_format = &nd;
  if (to_format->dimensions == kMatrix && flat(*from_format)) from_format = &nd;
  const std::string_view dimensions = from_format == &nd ? to_format->dimensions : from_format->dimensions;
  for (const Format* format : {from_format, to_format}) {
    if (format != &nd && format->dimensions != dimensions) {
      return absl::InvalidArgumentError(Cat(*from_name, " does not become ", *to_name, ": they keep other dimensions"));
    }
  }
  if (dimensions.empty()) return absl::InvalidArgumentError("from ND to ND is no change of layout");
  if (request.block < 0 || request.block > kMaxBlock) {
    return absl::InvalidArgumentError(Cat("a block of ", request.block, " is not allowed; 1 to ", kMaxBlock, " are"));
  }
  const Order from = OrderOf(*from_format, dimensions), to = OrderOf(*to_format, dimensions);

  std::vector<int64_t> stored = request.stored_shape, front;
  const auto unfit = [&] {
    return absl::InvalidArgumentError(
        Cat("a tensor of shape ", Shown(request.stored_shape), " is not in ", from.name,
            from.is_matrix() ? "" : Cat(", which has ", from.stored_dimensions, " dimensions")));
  };
  for (int64_t size : stored) {
    if (size < 0) return unfit();
  }
  if (from.is_matrix()) {
    const size_t kept = from.stored_dimensions - 1;
    if (from.has_blocks() && stored.size() < kept) return unfit();
    if (stored.size() > kept) front.assign(stored.begin(), stored.end() - static_cast<std::ptrdiff_t>(kept));
    auto flattened = Flattened(stored, kept);
    if (!flattened) return unfit();
    stored = *flattened;
  }
  if (stored.size() != from.stored_dimensions) return unfit();

  Letters sizes, blocks;
  if (!request.sizes.empty()) {
    std::vector<int64_t> given = request.sizes;
    const Order& order = !from.has_blocks() ? from : to.has_blocks() ? OrderOf(nd, dimensions) : to;
    if (from.is_matrix()) {
      auto flattened = Flattened(given, 2);
      if (!flattened) return absl::InvalidArgumentError(Cat("shape ", Shown(given), " is none"));
      given = *flattened;
    }
    if (given.size() != order.axes.size() || *std::min_element(given.begin(), given.end()) < 0) {
      return absl::InvalidArgumentError(
          Cat("shape ", Shown(request.sizes), " is not one of ", order.axes.size(), " sizes, as ", order.name, " has"));
    }
    for (size_t i = 0; i < given.size(); ++i) sizes[order.axes[i].letter] = given[i];
  }
  if (absl::Status status = Understand(from, stored, sizes, blocks); !status.ok()) return status;
  Rearrangement plan;
  auto arranged = Arrange(from, sizes, blocks);
  if (!arranged.ok()) return arranged.status();
  plan.from = *std::move(arranged);
  if (plan.from.shape != stored) {
    return absl::InvalidArgumentError(Cat("shape ", Shown(request.sizes), " in ", from.name, " would be stored as ",
                                          Shown(plan.from.shape), ", not as ", Shown(stored)));
  }
  for (char letter : dimensions) {
    const bool of_bytes = letter == 'C' || letter == 'K';
    int64_t block = of_bytes && request.element_size == 1 ? kByteBlock : kDefaultBlock;
    if (of_bytes && request.block != 0) block = request.block;
    if (!from.is_cut(letter) || (of_bytes && request.block != 0)) blocks[letter] = block;
  }
  arranged = Arrange(to, sizes, blocks);
  if (!arranged.ok()) return arranged.status();
  plan.to = *std::move(arranged);
  if (to.is_matrix()) {
    if (!to.has_blocks() && !request.sizes.empty()) {
      plan.to.shape = request.sizes;
    } else {
      plan.to.shape.erase(plan.to.shape.begin());
      plan.to.shape.insert(plan.to.shape.begin(), front.begin(), front.end());
    }
  }
  return plan;
}

absl::Status ReadRearranged(const Rearrangement& plan, ByteSource& source, uint64_t offset, size_t element_size,
                            ContentVisitor visit) {
  const std::vector<StoredAxis>& axes = plan.to.axes;
  if (std::any_of(axes.begin(), axes.end(), [](const StoredAxis& axis) { return axis.size == 0; })) {
    return absl::OkStatus();
  }
  const Places places(plan.from);
  PagedBytes pages(source, places.Streams(axes));
  const StoredAxis& inner = axes.back();
  std::vector<int64_t> at(axes.size() - 1, 0);
  std::vector<int64_t> index(plan.to.sizes.size());
  std::string out;
  const auto flush = [&] {
    absl::Status status = visit(out);
    out.clear();
    return status;
  };
  while (true) {
    std::fill(index.begin(), index.end(), 0);
    for (size_t i = 0; i < at.size(); ++i) index[axes[i].dimension] += at[i] * axes[i].step;
    uint64_t base = 0;
    bool inside = true;
    for (size_t d = 0; d < index.size(); ++d) {
      if (d == inner.dimension) continue;
      inside = inside && index[d] < plan.to.sizes[d];
      base += places.Of(d, index[d]);
    }
    for (int64_t i = 0; i < inner.size;) {
      const int64_t room = static_cast<int64_t>((kChunk - out.size()) / element_size);
      int64_t count = std::min(inner.size - i, room);
      const int64_t from = index[inner.dimension] + i * inner.step;
      if (inside && from < plan.to.sizes[inner.dimension]) {
        if (inner.step != 1) count = 1;
        count = std::min({count, places.Run(inner.dimension, from), plan.to.sizes[inner.dimension] - from});
        const size_t end = out.size();
        out.resize(end + static_cast<size_t>(count) * element_size);
        absl::Status status = pages.Copy(offset + (base + places.Of(inner.dimension, from)) * element_size,
                                         static_cast<uint64_t>(count) * element_size, out.data() + end);
        if (!status.ok()) return status;
      } else {
        out.append(static_cast<size_t>(count) * element_size, '\0');
      }
      i += count;
      if (kChunk - out.size() >= element_size) continue;
      if (absl::Status status = flush(); !status.ok()) return status;
    }
    size_t axis = at.size();
    while (axis > 0 && ++at[axis - 1] == axes[axis - 1].size) at[--axis] = 0;
    if (axis == 0) break;
  }
  return out.empty() ? absl::OkStatus() : flush();
}

}  // namespace msprobe::server
