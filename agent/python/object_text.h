#pragma once

#include <Python.h>

#include <string>
#include <string_view>

#include "agent/python/object_reference.h"

namespace msprobe::capture {

// Texts of Python objects. The GIL is held; no error is set before, and none is left.

// A string's text, as long as the string lives. U+FFFD for one that is not UTF-8 (lone surrogates).
std::string_view Utf8(PyObject* text);

// str(value); empty where that raises.
std::string StringOf(PyObject* value);

// An integer as JSON, whatever its size; "null" for what is no integer.
std::string IntegerJson(PyObject* value);

// JSON text of a string, quoted and escaped.
std::string JsonQuote(std::string_view text);

// An attribute; null where there is none. An interned name is found faster.
ObjectReference Attribute(PyObject* object, const char* name);
ObjectReference Attribute(PyObject* object, PyObject* name);

// Whether the module of a type has a name that begins so.
bool ComesFrom(PyTypeObject* type, std::string_view module_prefix);

// A type of a module that need not be imported; null until it is.
PyTypeObject* LoadedType(const char* module, const char* name);

}  // namespace msprobe::capture
