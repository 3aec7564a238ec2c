#include "server/exporter/record_json.h"

#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_format.h"
#include "rapidjson/document.h"
#include "server/format/cat.h"
#include "server/format/dtype_name.h"
#include "server/format/dump/dump_rules.h"

namespace msprobe::server {
namespace {

using Number = v1::TensorLeaf::Number;

constexpr unsigned kJsonFlags =
    rapidjson::kParseNanAndInfFlag | rapidjson::kParseFullPrecisionFlag | rapidjson::kParseIterativeFlag;

void WriteNumber(const Number& number, JsonWriter& writer) {
  switch (number.kind_case()) {
    case Number::kReal:
      writer.Double(number.real());
      return;
    case Number::kInteger:
      writer.Int64(number.integer());
      return;
    case Number::kUnsignedInteger:
      writer.Uint64(number.unsigned_integer());
      return;
    case Number::kBoolean:
      writer.Bool(number.boolean());
      return;
    case Number::KIND_NOT_SET:
      writer.Null();
  }
}

void WriteOptional(bool has, double value, JsonWriter& writer) {
  if (has) {
    writer.Double(value);
  } else {
    writer.Null();
  }
}

class LeafWriter {
 public:
  LeafWriter(const v1::TensorLeaf& leaf, const RecordJsonOptions& options, JsonWriter& writer)
      : leaf_(leaf),
        options_(options),
        writer_(writer),
        dtype_(DTypeOfName(leaf.dtype())),
        rules_(DumpRulesOf(leaf.type(), dtype_, options.high_precision)),
        torch_(leaf.type().starts_with("torch.")),
        numpy_(leaf.type() == "numpy.ndarray") {}

  void WriteLeaf(const std::string& data_name) {
    writer_.StartObject();
    Field("type").Text(leaf_.type());
    Field("dtype").Text(leaf_.dtype());
    Field("shape").StartArray();
    for (int64_t dim : leaf_.shape()) writer_.Int64(dim);
    writer_.EndArray();
    const bool checksum_only = options_.xor_checksum && !numpy_;
    if (checksum_only) {
      Field("md5");
      WriteXor();
    } else if (!options_.nan_only) {
      WriteStatistics();
    }
    if (torch_) Field("requires_grad").Bool(leaf_.requires_grad());
    WriteAttributes();
    if (!data_name.empty()) Field("data_name").Text(data_name);
    if (options_.crc32 && !numpy_) {
      Field("md5");
      if (leaf_.has_crc32()) {
        writer_.Text(absl::StrFormat("%08x", leaf_.crc32()));
      } else {
        writer_.Null();
      }
    }
    if (options_.extended) WriteExtended();
    writer_.EndObject();
  }

 private:
  JsonWriter& Field(std::string_view name) {
    writer_.Name(name);
    return writer_;
  }

  void Write(const Number& number, JsonWriter& writer) {
    // A framework whose types are known by name only gives bools as integers.
    if (dtype_ == v1::DTYPE_BOOL && number.has_integer()) {
      writer.Bool(number.integer() != 0);
    } else {
      WriteNumber(number, writer);
    }
  }

  void WriteExtreme(const Number& number, JsonWriter& writer) {
    if (rules_.real_extremes && number.has_integer()) {
      writer.Double(static_cast<double>(number.integer()));
    } else if (rules_.real_extremes && number.has_unsigned_integer()) {
      writer.Double(static_cast<double>(number.unsigned_integer()));
    } else {
      Write(number, writer);
    }
  }

  void WriteXor() {
    bool empty = false;
    for (int64_t dim : leaf_.shape()) empty = empty || dim == 0;
    const ShownXor shown = !leaf_.has_xor64() || empty
                               ? ShownXor()
                               : ShowXor(leaf_.type(), dtype_, leaf_.shape_size() == 0, leaf_.xor64());
    if (const auto* value = std::get_if<double>(&shown)) {
      writer_.Double(*value);
    } else if (const auto* word = std::get_if<uint64_t>(&shown)) {
      writer_.Text(absl::StrFormat("0x%016x", *word));
    } else {
      writer_.Null();
    }
  }

  void WriteStatistics() {
    if (!leaf_.has_max() || !rules_.statistics) {
      for (std::string_view name : {"Max", "Min", "Mean", "Norm"}) Field(name).Null();
      return;
    }
    if (rules_.own_value && leaf_.shape_size() == 0) {
      for (std::string_view name : {"Max", "Min", "Mean", "Norm"}) Write(leaf_.max(), Field(name));
      return;
    }
    WriteExtreme(leaf_.max(), Field("Max"));
    WriteExtreme(leaf_.min(), Field("Min"));
    WriteOptional(leaf_.has_mean() && rules_.mean, leaf_.mean(), Field("Mean"));
    WriteOptional(leaf_.has_norm() && rules_.norm, leaf_.norm(), Field("Norm"));
  }

  // Writes attributes_json, without the members that mindstudio-probe does not have.
  void WriteAttributes() {
    if (leaf_.attributes_json().empty()) return;
    rapidjson::Document attributes;
    attributes.Parse<kJsonFlags>(leaf_.attributes_json().data(), leaf_.attributes_json().size());
    if (attributes.HasParseError() || !attributes.IsObject()) return;
    for (const auto& member : attributes.GetObject()) {
      const std::string_view name(member.name.GetString(), member.name.GetStringLength());
      if (!options_.extended && (name == "q_scale" || name == "q_zero_point" || name == "no_statistics")) continue;
      Field(name);
      member.value.Accept(writer_);
    }
  }

  void WriteExtended() {
    Field("extended").StartObject();
    if (leaf_.has_max()) {
      Write(leaf_.max(), Field("Max"));
      Write(leaf_.min(), Field("Min"));
      WriteOptional(leaf_.has_mean(), leaf_.mean(), Field("Mean"));
      WriteOptional(leaf_.has_norm(), leaf_.norm(), Field("Norm"));
      WriteOptional(leaf_.has_variance(), leaf_.variance(), Field("Variance"));
    }
    if (leaf_.has_max() && leaf_.has_variance()) {  // an imported leaf has neither variance nor counts
      Field("nan_count").Uint64(leaf_.nan_count());
      Field("positive_inf_count").Uint64(leaf_.positive_inf_count());
      Field("negative_inf_count").Uint64(leaf_.negative_inf_count());
      Field("zero_count").Uint64(leaf_.zero_count());
      if (leaf_.nan_count() + leaf_.positive_inf_count() + leaf_.negative_inf_count() != 0) {
        Field("finite").StartObject();
        WriteOptional(leaf_.has_finite_max(), leaf_.finite_max(), Field("Max"));
        WriteOptional(leaf_.has_finite_min(), leaf_.finite_min(), Field("Min"));
        WriteOptional(leaf_.has_finite_mean(), leaf_.finite_mean(), Field("Mean"));
        WriteOptional(leaf_.has_finite_norm(), leaf_.finite_norm(), Field("Norm"));
        writer_.EndObject();
      }
    }
    if (leaf_.has_crc32()) Field("crc32").Text(absl::StrFormat("%08x", leaf_.crc32()));
    if (leaf_.has_xor64()) Field("xor64").Text(absl::StrFormat("0x%016x", leaf_.xor64()));
    Field("device").Text(leaf_.device());
    writer_.EndObject();
  }

  const v1::TensorLeaf& leaf_;
  const RecordJsonOptions& options_;
  JsonWriter& writer_;
  const v1::DType dtype_;
  const DumpRules rules_;
  const bool torch_;
  const bool numpy_;
};

class ValueWriter {
 public:
  ValueWriter(const RecordJsonOptions& options, JsonWriter& writer) : options_(options), writer_(writer) {}

  void Write(const v1::Value& value) {
    switch (value.kind_case()) {
      case v1::Value::kBoolean:
        Scalar("bool", [&] { writer_.Bool(value.boolean()); });
        return;
      case v1::Value::kInteger:
        Scalar("int", [&] { writer_.Int64(value.integer()); });
        return;
      case v1::Value::kReal:
        Scalar("float", [&] { writer_.Double(value.real()); });
        return;
      case v1::Value::kText:
        Scalar("str", [&] { writer_.Text(value.text()); });
        return;
      case v1::Value::kJson:
        writer_.Json(value.json());
        return;
      case v1::Value::kList:
        writer_.StartArray();
        for (int i = 0; i < value.list().items_size(); ++i) Under(i, value.list().items(i));
        writer_.EndArray();
        return;
      case v1::Value::kDict:
        writer_.StartObject();
        for (const v1::Value::Entry& entry : value.dict().entries()) {
          writer_.Name(entry.key());
          Under(entry.key(), entry.value());
        }
        writer_.EndObject();
        return;
      case v1::Value::kTensor:
        LeafWriter(value.tensor(), options_, writer_)
            .WriteLeaf(options_.data_name ? options_.data_name(path_, value.tensor()) : std::string());
        return;
      case v1::Value::kNone:
      case v1::Value::KIND_NOT_SET:
        writer_.Null();
    }
  }

  // `key`: a name, or an index.
  void Under(const auto& key, const v1::Value& value) {
    if (!options_.data_name) return Write(value);  // only a file's name needs the path
    path_.push_back(Cat(key));
    Write(value);
    path_.pop_back();
  }

 private:
  template <typename WriteIt>
  void Scalar(std::string_view type, WriteIt write) {
    writer_.StartObject();
    writer_.Name("type");
    writer_.Text(type);
    writer_.Name("value");
    write();
    writer_.EndObject();
  }

  const RecordJsonOptions& options_;
  JsonWriter& writer_;
  std::vector<std::string> path_;
};

// Whether a value holds a NaN or an infinity.
bool HasNonFinite(const v1::Value& value) {
  if (value.has_tensor()) {
    const v1::TensorLeaf& leaf = value.tensor();
    return leaf.nan_count() + leaf.positive_inf_count() + leaf.negative_inf_count() != 0;
  }
  for (const v1::Value& item : value.list().items()) {
    if (HasNonFinite(item)) return true;
  }
  for (const v1::Value::Entry& entry : value.dict().entries()) {
    if (HasNonFinite(entry.value())) return true;
  }
  return false;
}

// Whether one of the record's outputs does: everything but inputs and parameters.
bool GaveNonFinite(const v1::Record& record) {
  for (const v1::Value::Entry& entry : record.fields().dict().entries()) {
    if (!entry.key().starts_with("input") && entry.key() != "parameters" && HasNonFinite(entry.value())) return true;
  }
  return false;
}

// Its fields, without what mindstudio-probe does not have.
void WriteFields(const v1::Record& record, const RecordJsonOptions& options, ValueWriter& values, JsonWriter& writer) {
  for (const v1::Value::Entry& entry : record.fields().dict().entries()) {
    if (!options.extended && record.kind() == v1::RECORD_API && entry.key() == "communication") continue;
    writer.Name(entry.key());
    values.Under(entry.key(), entry.value());
  }
}

void WriteNanCheck(const v1::Record& record, const RecordJsonOptions& options, ValueWriter& values,
                   JsonWriter& writer) {
  writer.StartObject();
  WriteFields(record, options, values, writer);
  writer.Name("is_nan");
  writer.Int64(GaveNonFinite(record) ? 1 : 0);
  writer.EndObject();
}

}  // namespace

void WriteRecord(const v1::Record& record, const RecordJsonOptions& options, JsonWriter& writer) {
  ValueWriter values(options, writer);
  if (options.nan_only) return WriteNanCheck(record, options, values, writer);
  if (record.kind() != v1::RECORD_DEBUG) {
    writer.StartObject();
    WriteFields(record, options, values, writer);
    if (options.extended && (record.flags() & v1::FRAGMENT_TOUCHED) != 0) {
      writer.Name("touched");
      writer.Bool(true);
    }
    writer.EndObject();
    return;
  }
  if (record.fields().dict().entries_size() == 1) {
    const v1::Value::Entry& entry = record.fields().dict().entries(0);
    values.Under(entry.key(), entry.value());
  } else {
    writer.Null();
  }
}

}  // namespace msprobe::server
