#include "server/format/tensor_file/describe_tensor.h"

#include "rapidjson/document.h"
#include "server/format/dtype_name.h"

namespace msprobe::server {

TensorDescription DescribeTensor(const v1::TensorLeaf& leaf) {
  TensorDescription description;
  description.dtype = DTypeOfName(leaf.dtype());
  description.shape.assign(leaf.shape().begin(), leaf.shape().end());
  if (!leaf.device().empty()) description.device = leaf.device();
  rapidjson::Document attributes;
  attributes.Parse<rapidjson::kParseNanAndInfFlag | rapidjson::kParseIterativeFlag>(leaf.attributes_json().data(),
                                                                                    leaf.attributes_json().size());
  if (!attributes.HasParseError() && attributes.IsObject()) {
    if (auto it = attributes.FindMember("q_scale"); it != attributes.MemberEnd() && it->value.IsNumber()) {
      description.scale = it->value.GetDouble();
    }
    if (auto it = attributes.FindMember("q_zero_point"); it != attributes.MemberEnd() && it->value.IsInt64()) {
      description.zero_point = it->value.GetInt64();
    }
  }
  return description;
}

}  // namespace msprobe::server
