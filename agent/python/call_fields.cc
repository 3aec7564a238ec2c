#include "agent/python/call_fields.h"

#include <string_view>
#include <utility>
#include <vector>

#include "agent/python/value_walker.h"

namespace msprobe::capture {

CallFields::CallFields(std::shared_ptr<Recorder> recorder, FrameworkValues& framework, std::string own_directory)
    : recorder_(std::move(recorder)),
      framework_(framework),
      call_stack_(std::shared_ptr<core::Session>(recorder_, &recorder_->session()), std::move(own_directory)) {}

core::StackId CallFields::Stack(PyObject* entered) {
  return recorder_->config().extra_info ? call_stack_.Take(entered) : 0;
}

void CallFields::Enter(OpenRecord& record, std::span<PyObject* const> arguments, PyObject* keywords, const Api* api,
                       PyObject* entered) {
  if (!record.wanted) return;
  recorder_->faults().Contain(record, [&] {
    FragmentBuilder& builder = ThreadState::Get().builder;
    FragmentEmitter::Start(record, builder);
    if (recorder_->rules().WantsInput(core::Direction::kForward)) {
      ValueWalker walker(*recorder_, builder, framework_, record.save);
      builder.Key("input_args");
      walker.WalkArguments(arguments, api == nullptr ? std::span<const int>() : api->ignored_inputs);
      builder.Key("input_kwargs");
      walker.WalkKeywords(keywords, api == nullptr ? std::string_view() : api->ignored_keyword);
    }
    if (api != nullptr && api->is_distributed) {
      ValueWalker walker(*recorder_, builder, framework_, false);
      framework_.PutCommunication(*api, record, arguments, keywords, walker);
    }
    recorder_->emitter().Emit(record, builder, core::kEnter, Stack(entered));
  });
}

void CallFields::Exit(OpenRecord& record, const Api* api, std::span<PyObject* const> arguments, PyObject* keywords,
                      PyObject* result, PyObject* parameters, PyObject* entered) {
  const bool was_wanted = record.wanted;
  const bool was_selected = record.selected;
  recorder_->opener().Recheck(record);
  recorder_->faults().Contain(record, [&] {
    if (!record.wanted && !was_wanted) {
      return recorder_->emitter().EmitConstructOnly(record, was_selected || record.selected ? Stack(entered) : 0);
    }
    FragmentBuilder& builder = ThreadState::Get().builder;
    FragmentEmitter::Start(record, builder);
    if (record.wanted && recorder_->rules().WantsOutput(core::Direction::kForward)) {
      ValueWalker walker(*recorder_, builder, framework_, record.save);
      const std::span<const int> ignored = api == nullptr ? std::span<const int>() : api->ignored_outputs;
      builder.Key("output");
      if (api != nullptr && api->is_distributed) {
        std::vector<PyObject*> values(arguments.begin(), arguments.end());
        PyObject *key, *value;
        Py_ssize_t position = 0;
        while (keywords != nullptr && PyDict_Next(keywords, &position, &key, &value)) values.push_back(value);
        walker.WalkArguments(values, ignored);
      } else {
        walker.WalkResult(result, ignored);
      }
      if (api == nullptr) {
        builder.Key("parameters");
        builder.BeginDict();
        PyObject *name, *parameter;
        Py_ssize_t position = 0;
        while (parameters != nullptr && PyDict_Next(parameters, &position, &name, &parameter)) {
          const char* text = PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : nullptr;
          if (text == nullptr || parameter == Py_None) continue;
          builder.Key(text);
          walker.Walk(parameter);
        }
        builder.End();
        PyErr_Clear();
      }
    }
    recorder_->emitter().Emit(record, builder, was_wanted ? core::kExit : core::kEnter | core::kExit);
  });
}

void CallFields::Raised(OpenRecord& record) {
  const KeptError error;
  if (!record.wanted) return;
  recorder_->faults().Contain(record, [&] {
    FragmentBuilder& builder = ThreadState::Get().builder;
    FragmentEmitter::Start(record, builder);
    recorder_->emitter().Emit(record, builder, core::kExit | core::kRaised);
  });
}

void CallFields::Save(const std::string& name, uint32_t count, PyObject* value) {
  if (recorder_->step().forked()) return;
  OpenRecord record = recorder_->opener().BeginDebug(name, count);
  recorder_->faults().Contain(record, [&] {
    FragmentBuilder builder;
    FragmentEmitter::Start(record, builder);
    ValueWalker walker(*recorder_, builder, framework_, record.save);
    builder.Key("value");
    walker.Walk(value);
    recorder_->emitter().Emit(record, builder, core::kEnter | core::kExit);
  });
}

}  // namespace msprobe::capture
