#include "server/ingest/scripted/scripted_agent.h"

#include <xxhash.h>

#include <algorithm>
#include <cmath>

namespace msprobe::server {

ScriptedAgent::ScriptedAgent(const std::string& name, const std::string& run, uint32_t rank) {
  hello_.set_protocol(1);
  hello_.set_session((name + std::string(16, '.')).substr(0, 16));
  hello_.set_run(run);
  hello_.mutable_rank()->set_kind(v1::Rank::RANK);
  hello_.mutable_rank()->set_number(rank);
  hello_.set_host("host");
  hello_.set_process_id(4242);
  hello_.mutable_settings()->set_task("statistics");
  hello_.mutable_settings()->set_level("L1");
  hello_.mutable_settings()->set_framework("pytorch");
  hello_.mutable_settings()->set_stack_and_construct(true);
}

void ScriptedAgent::Define(const v1::Structure& structure) {
  const uint64_t id = IdOf(structure);
  if (std::count(defined_.begin(), defined_.end(), id) > 0) return;
  defined_.push_back(id);
  v1::Definition* definition = batch_.add_definitions();
  definition->set_id(id);
  definition->set_structure(structure.SerializeAsString());
}

ScriptedAgent& ScriptedAgent::Call(uint32_t step, const std::string& name, float value, uint32_t count) {
  return Enter(step, name, value, count).Exit(step, name, value, count);
}

ScriptedAgent& ScriptedAgent::Exit(uint32_t step, const std::string& name, float value, uint32_t count) {
  const v1::Structure exit = TensorStructure("Torch." + name, v1::RECORD_API, {"output"});
  Define(exit);
  BlockScript script(step, 0);
  script.Fragment(exit, count, ++ordinal_, v1::FRAGMENT_EXIT, {value});
  if (!std::isfinite(value)) {
    v1::NonFinite* leaf = script.block().add_non_finite();
    leaf->set_leaf(0);
    (std::isnan(value) ? leaf->set_nan_count(1) : leaf->set_positive_inf_count(1));
  }
  *batch_.add_items()->mutable_block() = script.block();
  return *this;
}

ScriptedAgent& ScriptedAgent::Enter(uint32_t step, const std::string& name, float value, uint32_t count) {
  const v1::Structure enter = TensorStructure("Torch." + name, v1::RECORD_API, {"input_args"});
  Define(enter);
  BlockScript script(step, 0);
  script.Fragment(enter, count, ++ordinal_, v1::FRAGMENT_ENTER, {value});
  *batch_.add_items()->mutable_block() = script.block();
  return *this;
}

ScriptedAgent& ScriptedAgent::CallWithChecksum(uint32_t step, const std::string& name, uint32_t crc32) {
  const v1::Structure enter = TensorStructure("Torch." + name, v1::RECORD_API, {"input_args"});
  Define(enter);
  BlockScript script(step, 0);
  script.Fragment(enter, 0, ++ordinal_, v1::FRAGMENT_ENTER | v1::FRAGMENT_EXIT, {1});
  v1::Block& block = script.block();
  block.set_leaf_flags(0, v1::LEAF_CRC32);
  block.clear_narrow();
  block.clear_zero_count();
  block.add_crc32(crc32);
  *batch_.add_items()->mutable_block() = block;
  return *this;
}

std::string ScriptedAgent::CallWithPayload(uint32_t step, const std::string& name, const std::string& content) {
  const v1::Structure enter = TensorStructure("Torch." + name, v1::RECORD_API, {"input_args"});
  Define(enter);
  std::string hash = HashOf(content);
  BlockScript script(step, 0);
  script.Fragment(enter, 0, ++ordinal_, v1::FRAGMENT_ENTER | v1::FRAGMENT_EXIT, {1}, hash, content.size());
  script.block().mutable_shapes(0)->set_dims(0, static_cast<int64_t>(content.size() / 4));
  *batch_.add_items()->mutable_block() = script.block();
  return hash;
}

ScriptedAgent& ScriptedAgent::Log(uint32_t step, const std::vector<std::pair<std::string, double>>& scalars) {
  v1::Structure structure;
  structure.set_name("scalars");
  structure.set_kind(v1::RECORD_SCALARS);
  BlockScript script(step, 0);
  for (const auto& [name, value] : scalars) {
    v1::Node::Entry* entry = structure.mutable_fields()->mutable_dict()->add_entries();
    entry->set_key(name);
    entry->mutable_value()->set_slot(v1::Node::FLOAT);
  }
  Define(structure);
  script.Fragment(structure, 0, 0, v1::FRAGMENT_ENTER | v1::FRAGMENT_EXIT, {});
  for (const auto& [name, value] : scalars) script.block().add_floats(value);
  *batch_.add_items()->mutable_scalars() = script.block();
  return *this;
}

ScriptedAgent& ScriptedAgent::Reply(uint32_t step, const std::string& request,
                                    std::optional<core::SampledToken> token) {
  v1::Structure structure;
  structure.set_name(std::string(core::kResponse));
  structure.set_kind(v1::RECORD_SCALARS);
  BlockScript script(step, 0);
  const auto add = [&structure](const std::string& key, v1::Node::Slot slot) {
    v1::Node::Entry* entry = structure.mutable_fields()->mutable_dict()->add_entries();
    entry->set_key(key);
    entry->mutable_value()->set_slot(slot);
  };
  add("request", v1::Node::STRING);
  if (token.has_value()) add("token", v1::Node::INTEGER);
  if (token.has_value() && token->has_logprobs) {
    add("top1", v1::Node::FLOAT);
    add("mass", v1::Node::FLOAT);
  }
  Define(structure);
  script.Fragment(structure, 0, 0, v1::FRAGMENT_ENTER | v1::FRAGMENT_EXIT, {});
  script.block().add_strings(request);
  if (token.has_value()) script.block().add_integers(token->id);
  if (token.has_value() && token->has_logprobs) {
    script.block().add_floats(token->top1);
    script.block().add_floats(token->mass);
  }
  *batch_.add_items()->mutable_scalars() = script.block();
  return *this;
}

ScriptedAgent& ScriptedAgent::StepEnd(uint32_t step) {
  Mark().mutable_step_end()->set_step(step);
  return *this;
}

ScriptedAgent& ScriptedAgent::Discard(uint32_t step) {
  Mark().mutable_step_discarded()->set_step(step);
  return *this;
}

ScriptedAgent& ScriptedAgent::RankKnown(uint32_t rank) {
  v1::Rank* known = Mark().mutable_rank_known()->mutable_rank();
  known->set_kind(v1::Rank::RANK);
  known->set_number(rank);
  return *this;
}

ScriptedAgent& ScriptedAgent::SettingsChanged(const std::string& level) {
  v1::CaptureSettings* settings = Mark().mutable_settings_changed()->mutable_settings();
  *settings = hello_.settings();
  settings->set_level(level);
  return *this;
}

ScriptedAgent& ScriptedAgent::Fault(uint32_t step, const std::string& where, const std::string& message) {
  v1::Marker::Fault* fault = Mark().mutable_fault();
  fault->set_step(step);
  fault->set_where(where);
  fault->set_message(message);
  return *this;
}

ScriptedAgent& ScriptedAgent::Gap(uint32_t step, uint64_t fragments, v1::Marker::Gap::Reason reason) {
  v1::Marker::Gap* gap = Mark().mutable_gap();
  gap->set_step(step);
  gap->set_fragments(fragments);
  gap->set_reason(reason);
  return *this;
}

ScriptedAgent& ScriptedAgent::ExportOpenStep(uint32_t step) {
  Mark().mutable_export_open_step()->set_step(step);
  return *this;
}

ScriptedAgent& ScriptedAgent::End(bool clean) {
  Mark().mutable_session_end()->set_clean(clean);
  return *this;
}

v1::Batch ScriptedAgent::Take() {
  batch_.set_session(hello_.session());
  batch_.set_batch_sequence(++sequence_);
  v1::Batch taken;
  taken.Swap(&batch_);
  return taken;
}

std::string ScriptedAgent::HashOf(const std::string& content) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(content.data(), content.size()));
  return std::string(reinterpret_cast<const char*>(canonical.digest), sizeof(canonical.digest));
}

v1::PayloadChunk ScriptedAgent::Chunk(const std::string& hash, uint64_t offset, const std::string& content, bool last) {
  v1::PayloadChunk chunk;
  chunk.set_hash(hash);
  chunk.set_offset(offset);
  chunk.set_content(content);
  chunk.set_last(last);
  return chunk;
}

}  // namespace msprobe::server
