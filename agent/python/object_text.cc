#include "agent/python/object_text.h"

#include <cstdio>

namespace msprobe::capture {

std::string_view Utf8(PyObject* text) {
  Py_ssize_t size = 0;
  const char* data = PyUnicode_AsUTF8AndSize(text, &size);
  if (data == nullptr) {  // lone surrogates
    PyErr_Clear();
    return "\xEF\xBF\xBD";
  }
  return {data, static_cast<size_t>(size)};
}

std::string StringOf(PyObject* value) {
  const ObjectReference text = ObjectReference::Steal(PyObject_Str(value));
  if (!text) {
    PyErr_Clear();
    return {};
  }
  return std::string(Utf8(text.get()));
}

ObjectReference Attribute(PyObject* object, const char* name) {
  ObjectReference attribute = ObjectReference::Steal(PyObject_GetAttrString(object, name));
  if (!attribute) PyErr_Clear();
  return attribute;
}

ObjectReference Attribute(PyObject* object, PyObject* name) {
  ObjectReference attribute = ObjectReference::Steal(PyObject_GetAttr(object, name));
  if (!attribute) PyErr_Clear();
  return attribute;
}

std::string IntegerJson(PyObject* value) {
  if (value == Py_None) return "null";
  const ObjectReference integer = ObjectReference::Steal(PyNumber_Index(value));
  if (!integer) {
    PyErr_Clear();
    const ObjectReference converted = ObjectReference::Steal(PyNumber_Long(value));
    if (!converted) {
      PyErr_Clear();
      return "null";
    }
    return StringOf(converted.get());
  }
  return StringOf(integer.get());
}

std::string JsonQuote(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof(escape), "\\u%04x", c);
      quoted += escape;
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

bool ComesFrom(PyTypeObject* type, std::string_view module_prefix) {
  const ObjectReference module = Attribute(reinterpret_cast<PyObject*>(type), "__module__");
  return module && PyUnicode_Check(module.get()) && Utf8(module.get()).substr(0, module_prefix.size()) == module_prefix;
}

PyTypeObject* LoadedType(const char* module, const char* name) {
  PyObject* loaded = PyDict_GetItemString(PyImport_GetModuleDict(), module);  // borrowed
  if (loaded == nullptr) return nullptr;
  const ObjectReference type = Attribute(loaded, name);
  return type && PyType_Check(type.get()) ? reinterpret_cast<PyTypeObject*>(type.get()) : nullptr;
}

}  // namespace msprobe::capture
