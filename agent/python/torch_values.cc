#include "agent/python/torch_values.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Layout.h>
#include <torch/csrc/MemoryFormat.h>
#include <torch/csrc/Size.h>
#include <torch/csrc/autograd/python_variable.h>

#include <string>

#include "agent/core/str_cat.h"
#include "agent/python/object_text.h"
#include "agent/python/untraced.h"
#include "agent/python/value_walker.h"
#include "agent/torch/device/device_text.h"
#include "agent/torch/torch_source.h"

namespace msprobe::capture {
namespace {

TensorReading Read(PyObject* tensor, ValueWalker& walker) {
  return walker.recorder().Read(RefTo(THPVariable_Unpack(tensor)), walker.save());
}

std::string DeviceJson(std::string_view value) {
  return core::Cat("{\"type\": \"torch.device\", \"value\": ", value, "}");
}

// Null where a value that stands under "device" is none.
std::string DescribeDevice(PyObject* value) {
  if (THPDevice_Check(value)) {
    const at::Device& device = reinterpret_cast<THPDevice*>(value)->device;
    return DeviceJson(
        JsonQuote(DeviceText(device.type()) + ":" + (device.has_index() ? std::to_string(device.index()) : "None")));
  }
  if (PyLong_Check(value) && !PyBool_Check(value)) return DeviceJson(IntegerJson(value));
  return PyUnicode_Check(value) ? DeviceJson(JsonQuote(Utf8(value))) : std::string();
}

}  // namespace

bool TorchValues::IsTensor(PyObject* value) const { return THPVariable_Check(value); }

bool TorchValues::IsOneValue(PyObject* tuple) const { return THPSize_Check(tuple); }

bool TorchValues::PutFirst(PyObject* value, std::string_view key, ValueWalker& walker) {
  if (THPVariable_Check(value)) {
    const bool is_own = THPVariable_CheckExact(value) || !describe_ || !ComesFrom(Py_TYPE(value), "torch.distributed");
    if (is_own || !PutOther(value, walker)) walker.builder().Tensor(Read(value, walker));
    return true;
  }
  if (key == "device") {
    const std::string shown = DescribeDevice(value);
    if (!shown.empty()) walker.builder().Json(shown);
    return !shown.empty();
  }
  if ((key == "dtype" || key == "output_dtype") && THPDtype_Check(value)) {
    walker.builder().Json("{\"type\": \"torch.dtype\", \"value\": " + JsonQuote(StringOf(value)) + "}");
    return true;
  }
  return false;
}

bool TorchValues::PutObject(PyObject* value, ValueWalker& walker) {
  FragmentBuilder& builder = walker.builder();
  if (THPSize_Check(value)) {
    std::string text = "{\"type\": \"torch.Size\", \"value\": [";
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value); ++i) {
      if (i > 0) text += ", ";
      text += IntegerJson(PyTuple_GET_ITEM(value, i));
    }
    builder.Json(text + "]}");
    return true;
  }
  if (THPDtype_Check(value) || THPDevice_Check(value)) {  // shown under their keywords only
    builder.BeginDict();
    builder.End();
    return true;
  }
  if (THPMemoryFormat_Check(value)) {
    const std::string name = StringOf(value);  // torch.channels_last
    builder.Json("{\"type\": \"torch.memory_format\", \"format\": " + JsonQuote(name.substr(name.rfind('.') + 1)) +
                 "}");
    return true;
  }
  return false;
}

bool TorchValues::PutOther(PyObject* value, ValueWalker& walker) {
  if (!describe_ || (!ComesFrom(Py_TYPE(value), "torch.") && !THPVariable_Check(value))) return false;
  const Untraced untraced;
  const ObjectReference described = ObjectReference::Steal(PyObject_CallOneArg(describe_.get(), value));
  if (!described) {
    PyErr_Clear();
    return false;
  }
  if (PyUnicode_Check(described.get())) {
    walker.builder().Json(Utf8(described.get()));
    return true;
  }
  if (PyDict_Check(described.get())) {
    walker.WalkDescription(described.get());
    return true;
  }
  if (!PyTuple_Check(described.get()) || PyTuple_GET_SIZE(described.get()) != 2 ||
      !THPVariable_Check(PyTuple_GET_ITEM(described.get(), 0))) {
    return false;
  }
  TensorReading reading = Read(PyTuple_GET_ITEM(described.get(), 0), walker);
  reading.type = "torch.distributed.tensor.DTensor";
  reading.requires_grad = THPVariable_Check(value) && THPVariable_Unpack(value).requires_grad();
  reading.attributes_json = Utf8(PyTuple_GET_ITEM(described.get(), 1));
  walker.builder().Tensor(reading);
  return true;
}

void TorchValues::PutCommunication(const Api& api, const OpenRecord& record, std::span<PyObject* const> arguments,
                                   PyObject* keywords, ValueWalker& walker) {
  if (!communication_) return;
  const Untraced untraced;
  const ObjectReference given = ObjectReference::Steal(PyTuple_New(static_cast<Py_ssize_t>(arguments.size())));
  for (size_t i = 0; given && i < arguments.size(); ++i) {
    PyTuple_SET_ITEM(given.get(), static_cast<Py_ssize_t>(i), ObjectReference::Borrow(arguments[i]).release());
  }
  const char* const operation = api.name.c_str() + api.name.rfind('.') + 1;
  const ObjectReference described =
      given ? ObjectReference::Steal(PyObject_CallFunction(communication_.get(), "sOOI", operation, given.get(),
                                                           keywords == nullptr ? Py_None : keywords,
                                                           static_cast<unsigned>(record.step)))
            : ObjectReference();
  PyErr_Clear();
  if (!described || !PyDict_Check(described.get())) return;
  walker.builder().Key("communication");
  walker.Walk(described.get());
}

void CollectGradientTensors(PyObject* value, Tensors& tensors, int depth) {
  if (depth > ValueWalker::kMaxDepth) return;
  if (THPVariable_Check(value)) {
    const at::Tensor& tensor = THPVariable_Unpack(value);
    if (tensor.requires_grad()) tensors.push_back(tensor);
  } else if (PyList_Check(value) || PyTuple_Check(value)) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value); ++i) {
      CollectGradientTensors(PySequence_Fast_GET_ITEM(value, i), tensors, depth + 1);
    }
  } else if (PyDict_Check(value)) {
    PyObject *key, *item;
    Py_ssize_t position = 0;
    while (PyDict_Next(value, &position, &key, &item)) CollectGradientTensors(item, tensors, depth + 1);
  }
}

namespace {

// Adds the tensors of a value to a sight.
void See(PyObject* value, CallSampler::Sight& sight, int depth = 0) {
  if (THPVariable_Check(value)) {
    const at::Tensor& tensor = THPVariable_Unpack(value);
    const c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
    sight.Mix(static_cast<uint64_t>(tensor.scalar_type()) + 1);
    sight.has_gradients |= impl->requires_grad();
    // Of a subclass with __torch_dispatch__ nothing is saved, and its sizes may be its own code's.
    if (tensor.is_nested() || impl->has_symbolic_sizes_strides() || impl->key_set().has(c10::DispatchKey::Python)) {
      return;
    }
    uint64_t bytes = impl->itemsize();
    for (const int64_t size : impl->sizes()) {
      sight.Mix(static_cast<uint64_t>(size));
      bytes *= static_cast<uint64_t>(size);
    }
    sight.input_bytes += bytes;
  } else if (depth <= ValueWalker::kMaxDepth && (PyList_Check(value) || PyTuple_Check(value))) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value); ++i) {
      See(PySequence_Fast_GET_ITEM(value, i), sight, depth + 1);
    }
  }
}

}  // namespace

CallSampler::Sight SightOf(const Api& operation, std::span<PyObject* const> arguments, PyObject* keywords) {
  CallSampler::Sight sight{.signature = reinterpret_cast<uintptr_t>(&operation)};
  for (PyObject* const argument : arguments) See(argument, sight);
  PyObject *key, *value;
  Py_ssize_t position = 0;
  while (keywords != nullptr && PyDict_Next(keywords, &position, &key, &value)) See(value, sight);
  sight.has_gradients &= at::GradMode::is_enabled();
  return sight;
}

uint64_t BytesOf(PyObject* result) {
  CallSampler::Sight sight;
  See(result, sight);
  return sight.input_bytes;
}

at::Tensor FirstTensor(PyObject* value) {
  for (int depth = 0; depth <= ValueWalker::kMaxDepth; ++depth) {
    if (THPVariable_Check(value)) return THPVariable_Unpack(value);
    if (PyDict_Check(value)) {
      PyObject *key, *item, *found = nullptr;
      Py_ssize_t position = 0;
      while (found == nullptr && PyDict_Next(value, &position, &key, &item)) {
        if (THPVariable_Check(item)) found = item;
      }
      if (found == nullptr) return {};
      value = found;
    } else if ((PyList_Check(value) || PyTuple_Check(value)) && PySequence_Fast_GET_SIZE(value) > 0) {
      value = PySequence_Fast_GET_ITEM(value, 0);
    } else {
      return {};
    }
  }
  return {};
}

}  // namespace msprobe::capture
